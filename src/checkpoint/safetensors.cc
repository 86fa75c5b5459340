#include "checkpoint/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "base/saturate.h"
#include "checkpoint/input_file.h"
#include "checkpoint/problems.h"
#include "checkpoint/unique_json.h"

namespace piper {
namespace {

using Json = nlohmann::json;

struct DTypeRow {
  std::string_view name;
  int64_t bytes;
};
constexpr DTypeRow dtypes[] = {{"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8},
                               {"I32", 4}, {"I16", 2}, {"I8", 1},  {"U8", 1},   {"BOOL", 1}};

constexpr int64_t length_bytes = 8;
/// Longer ones are refused, by the library of the format too.
constexpr int64_t longest_header = 100'000'000;
constexpr const char* metadata_name = "__metadata__";

std::string little_endian(uint64_t value) {
  std::string out;
  for (int64_t i = 0; i < length_bytes; ++i) out += static_cast<char>(value >> (8 * i));
  return out;
}

uint64_t from_little_endian(std::string_view text) {
  uint64_t out = 0;
  for (int64_t i = 0; i < length_bytes; ++i) out |= uint64_t{static_cast<unsigned char>(text[i])} << (8 * i);
  return out;
}

/// Length and JSON with blanks; offsets count from where it ends.
std::string header_text(const SafetensorsHeader& header) {
  std::string json = "{";
  if (!header.metadata.empty()) json += fmt::format("\"{}\":{}", metadata_name, Json(header.metadata).dump());
  int64_t at = 0;
  for (const TensorEntry& entry : header.tensors) {
    if (json.size() > 1) json += ",";
    json += fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", Json(entry.tensor.name).dump(),
                        name(entry.tensor.dtype), fmt::join(entry.tensor.sizes, ","), at, at + entry.bytes);
    at += entry.bytes;
  }
  json += "}";
  json.resize((json.size() + 7) / 8 * 8, ' ');
  return little_endian(json.size()) + json;
}

bool is_size(const Json& json) {
  return json.is_number_unsigned() && json.get<uint64_t>() <= uint64_t{1} << 62;
}

bool is_list_of_sizes(const Json& json) {
  return json.is_array() && std::ranges::all_of(json, is_size);
}

/// One member of the header; `begin` counts from the first tensor.
Result<TensorEntry> parse_entry(const std::string& file, const std::string& tensor, const Json& json) {
  const auto wrong = [&](const std::string& reason) {
    return damaged(file, fmt::format("tensor \"{}\" {}", tensor, reason));
  };
  if (!json.is_object() || json.size() != 3 || !json.contains("dtype") || !json.contains("shape") ||
      !json.contains("data_offsets"))
    return wrong("has other members than dtype, shape and data_offsets");
  const Json &dtype = json["dtype"], &shape = json["shape"], &offsets = json["data_offsets"];
  if (!dtype.is_string()) return wrong("has a dtype that is no text");
  const auto known = stored_dtype_named(dtype.get_ref<const std::string&>());
  if (!known) return wrong(fmt::format("has the unknown dtype {}", dtype.get_ref<const std::string&>()));
  if (!is_list_of_sizes(shape)) return wrong("has a shape that is no list of sizes");
  if (!is_list_of_sizes(offsets) || offsets.size() != 2 || offsets[0] > offsets[1])
    return wrong("has data_offsets that are no range of bytes");
  TensorEntry entry{{tensor, *known, shape.get<std::vector<int64_t>>()}, offsets[0].get<int64_t>(), 0};
  entry.bytes = offsets[1].get<int64_t>() - entry.begin;
  if (entry.bytes != bytes_of(entry.tensor))
    return wrong(fmt::format("has {} bytes when {} should have {}", entry.bytes, print_type(entry.tensor),
                             bytes_of(entry.tensor)));
  return entry;
}

/// The tensors fill `room` bytes without overlaps and gaps.
Checked check_ranges(const std::string& file, const std::vector<TensorEntry>& tensors, int64_t room) {
  int64_t at = 0;
  for (const TensorEntry& entry : tensors) {
    if (entry.begin != at)
      return damaged(file, fmt::format("tensor \"{}\" begins at byte {} of the data when it should at {}",
                                       entry.tensor.name, entry.begin, at));
    at += entry.bytes;
  }
  if (at != room) return damaged(file, fmt::format("its tensors have {} bytes and the file has {} for them", at, room));
  return Ok{};
}

}  // namespace

int64_t bytes_of(StoredDType dtype) {
  return dtypes[static_cast<int>(dtype)].bytes;
}
std::string_view name(StoredDType dtype) {
  return dtypes[static_cast<int>(dtype)].name;
}

std::optional<StoredDType> stored_dtype_named(std::string_view text) {
  for (size_t i = 0; i < std::size(dtypes); ++i)
    if (dtypes[i].name == text) return static_cast<StoredDType>(i);
  return std::nullopt;
}

int64_t elements(const StoredTensor& tensor) {
  int64_t product = 1;
  for (const int64_t size : tensor.sizes) product = saturating_multiply(product, size);
  return product;
}

int64_t bytes_of(const StoredTensor& tensor) {
  return saturating_multiply(elements(tensor), bytes_of(tensor.dtype));
}

std::string print_type(const StoredTensor& tensor) {
  return fmt::format("{} [{}]", name(tensor.dtype), fmt::join(tensor.sizes, ", "));
}

SafetensorsHeader make_header(std::vector<StoredTensor> tensors, std::map<std::string, std::string> metadata) {
  std::ranges::stable_sort(tensors, std::greater<>(), [](const StoredTensor& t) { return bytes_of(t.dtype); });
  SafetensorsHeader header{{}, std::move(metadata), 0};
  for (StoredTensor& tensor : tensors) {
    const int64_t bytes = bytes_of(tensor);
    header.tensors.push_back({std::move(tensor), 0, bytes});
  }
  header.bytes = static_cast<int64_t>(header_text(header).size());
  int64_t at = header.bytes;
  for (TensorEntry& entry : header.tensors) {
    entry.begin = at;
    at += entry.bytes;
  }
  return header;
}

std::string print(const SafetensorsHeader& header) {
  return header_text(header);
}

Result<SafetensorsHeader> parse_header(const std::string& file, std::string_view text, int64_t file_bytes) {
  if (file_bytes < length_bytes || text.size() < static_cast<size_t>(length_bytes))
    return damaged(file, fmt::format("{} bytes are too few for a safetensors file", file_bytes));
  const uint64_t length = from_little_endian(text);
  const int64_t room = std::min(longest_header, file_bytes - length_bytes);
  if (length > static_cast<uint64_t>(room))
    return damaged(file, fmt::format("its header would have {} bytes; at most {} can be", length, room));
  if (text.size() - length_bytes < length) return damaged(file, "its header is cut off");
  PIPER_TRY(const Json json, parse_json_object(file, "its header", text.substr(length_bytes, length)));
  SafetensorsHeader header{{}, {}, length_bytes + static_cast<int64_t>(length)};
  for (const auto& [tensor, value] : json.items()) {
    if (tensor == metadata_name) {
      if (!value.is_object() || !std::ranges::all_of(value, [](const Json& item) { return item.is_string(); }))
        return damaged(file, "the metadata in its header are no texts");
      header.metadata = value.get<std::map<std::string, std::string>>();
      continue;
    }
    PIPER_TRY(TensorEntry entry, parse_entry(file, tensor, value));
    header.tensors.push_back(std::move(entry));
  }
  std::ranges::stable_sort(header.tensors, {}, [](const TensorEntry& e) { return std::pair(e.begin, e.bytes); });
  PIPER_CHECK(check_ranges(file, header.tensors, file_bytes - header.bytes));
  for (TensorEntry& entry : header.tensors) entry.begin += header.bytes;
  return header;
}

Result<SafetensorsHeader> read_header(const std::string& path) {
  PIPER_TRY(const InputFile file, InputFile::open(path));
  std::string text(static_cast<size_t>(std::min(file.bytes(), length_bytes)), '\0');
  PIPER_CHECK(file.read(0, std::as_writable_bytes(std::span(text))));
  if (text.size() == static_cast<size_t>(length_bytes)) {
    const uint64_t length = from_little_endian(text);
    const int64_t room = std::min(longest_header, file.bytes() - length_bytes);
    text.resize(static_cast<size_t>(length_bytes) + std::min(length, static_cast<uint64_t>(room)));
    PIPER_CHECK(file.read(0, std::as_writable_bytes(std::span(text))));
  }
  return parse_header(path, text, file.bytes());
}

}  // namespace piper
