#include "checkpoint/layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/invariant.h"
#include "base/utf8.h"

namespace piper {
namespace {

/// The tensors of one file after the other.
std::vector<std::vector<StoredTensor>> cut_into_files(std::vector<StoredTensor> tensors, int64_t shard_size) {
  std::vector<std::vector<StoredTensor>> files;
  int64_t filled = 0;
  for (StoredTensor& tensor : tensors) {
    const int64_t bytes = bytes_of(tensor);
    if (files.empty() || filled > shard_size - bytes) {
      files.emplace_back();
      filled = 0;
    }
    filled += bytes;
    files.back().push_back(std::move(tensor));
  }
  return files;
}

constexpr std::string_view model_files = "model", optimizer_files = "optimizer";

/// `model-00001-of-00002.safetensors`, …
std::vector<StoredFile> make_files(std::string_view what, std::vector<std::vector<StoredTensor>> tensors,
                                   const std::map<std::string, std::string>& metadata) {
  std::vector<StoredFile> files;
  for (size_t i = 0; i < tensors.size(); ++i) {
    SafetensorsHeader header = make_header(std::move(tensors[i]), metadata);
    StoredFile file{fmt::format("{}-{:05}-of-{:05}.safetensors", what, i + 1, tensors.size()), print(header), {}, 0};
    file.bytes = header.bytes;
    for (const TensorEntry& entry : header.tensors) file.bytes += entry.bytes;
    file.tensors = std::move(header.tensors);
    files.push_back(std::move(file));
  }
  return files;
}

/// As transformers writes it.
std::string index_text(const std::vector<StoredFile>& files) {
  int64_t total = 0;
  nlohmann::json weight_map = nlohmann::json::object();
  for (const StoredFile& file : files)
    for (const TensorEntry& entry : file.tensors) {
      total += entry.bytes;
      weight_map[entry.tensor.name] = file.name;
    }
  const nlohmann::json index = {{"metadata", {{"total_size", total}}}, {"weight_map", std::move(weight_map)}};
  return index.dump(2, ' ', true) + "\n";
}

Checked check_names(const std::vector<StoredTensor>& tensors, std::map<std::string, int>& seen) {
  for (const StoredTensor& tensor : tensors) {
    const auto refuse = [&](std::string_view reason) {
      return error(ErrorCode::E903, {}, fmt::format("tensor \"{}\" cannot be saved: {}", tensor.name, reason));
    };
    if (tensor.name == "__metadata__") return refuse("safetensors files keep this name for themselves");
    if (first_not_utf8(tensor.name)) return refuse("its name is no UTF-8");
    if (++seen[tensor.name] > 1) return refuse("another one has the same name");
  }
  return Ok{};
}

}  // namespace

const TensorPlace* FolderLayout::find(std::string_view tensor) const {
  const auto found = places.find(tensor);
  return found == places.end() ? nullptr : &found->second;
}

int64_t FolderLayout::bytes() const {
  return std::accumulate(files.begin(), files.end(), int64_t{0},
                         [](int64_t sum, const StoredFile& file) { return sum + file.bytes; });
}

Result<FolderLayout> make_layout(std::vector<StoredTensor> model, std::vector<StoredTensor> optimizer,
                                 int64_t shard_size) {
  invariant(shard_size > 0, "files have room for something");
  std::map<std::string, int> seen;
  PIPER_CHECK(check_names(model, seen));
  PIPER_CHECK(check_names(optimizer, seen));
  auto cut = cut_into_files(std::move(model), shard_size);
  if (cut.empty()) cut.emplace_back();  // a folder without a model file is none that transformers reads
  FolderLayout layout;
  layout.files = make_files(model_files, std::move(cut), {{"format", "pt"}});
  add_text(layout, std::string(index_file), index_text(layout.files));
  for (StoredFile& file : make_files(optimizer_files, cut_into_files(std::move(optimizer), shard_size), {}))
    layout.files.push_back(std::move(file));
  for (size_t i = 0; i < layout.files.size(); ++i)
    for (const TensorEntry& entry : layout.files[i].tensors)
      layout.places[entry.tensor.name] = {static_cast<int>(i), entry};
  return layout;
}

void add_text(FolderLayout& layout, std::string name, std::string text) {
  const auto bytes = static_cast<int64_t>(text.size());
  layout.files.push_back({std::move(name), std::move(text), {}, bytes});
}

bool is_optimizer_file(std::string_view name) {
  return name.starts_with(optimizer_files);
}

std::string tensors_in(const StoredFile& file, int64_t begin, int64_t end) {
  constexpr size_t most = 3;
  std::vector<std::string> names;
  if (!file.tensors.empty() && begin < file.tensors.front().begin) names.emplace_back("its header");
  size_t more = 0;
  for (const TensorEntry& entry : file.tensors) {
    if (entry.bytes == 0 || entry.begin >= end || entry.begin + entry.bytes <= begin) continue;
    if (names.size() < most)
      names.push_back(entry.tensor.name);
    else
      ++more;
  }
  std::string out = fmt::format("{}", fmt::join(names, ", "));
  if (more > 0) out += fmt::format(" and {} more", more);
  return out;
}

}  // namespace piper
