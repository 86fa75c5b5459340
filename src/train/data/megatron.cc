// What Megatron's preprocessing writes. The index: "MMIDIDX\0\0", a version (uint64, 1), a code of the dtype (uint8),
// the number of sequences and of ends of documents (uint64 each), the lengths of the sequences (int32), their first
// bytes (int64), and the sequences before each end of a document (int64), the first of which is 0.
#include <fmt/format.h>

#include <cstring>
#include <filesystem>

#include "train/data/token_file.h"

namespace piper {
namespace {

constexpr std::string_view magic("MMIDIDX\0\0", 9);

/// Reads one number after the other.
class Numbers {
 public:
  explicit Numbers(std::span<const std::byte> bytes) : left_(bytes) {}

  template <class Number>
  std::optional<Number> next() {
    if (left_.size() < sizeof(Number)) return std::nullopt;
    Number out;
    std::memcpy(&out, left_.data(), sizeof(Number));
    left_ = left_.subspan(sizeof(Number));
    return out;
  }
  size_t left() const { return left_.size(); }

 private:
  std::span<const std::byte> left_;
};

std::optional<TokenWidth> width_of(uint8_t code) {
  switch (code) {
    case 1:
      return TokenWidth::Bits8;
    case 4:  // int32: tokens are not negative
      return TokenWidth::Bits32;
    case 5:
      return TokenWidth::Bits64;
    case 3:  // int16
    case 8:
      return TokenWidth::Bits16;
    default:
      return std::nullopt;
  }
}

Diagnostic not_an_index(const NamedFile& index, std::string_view why) {
  return error(ErrorCode::E703, index.where, fmt::format("\"{}\" is not an index of Megatron: {}", index.path, why))
      .help("is it complete, and of the indexed datasets of Megatron-LM?");
}

}  // namespace

bool is_megatron(const std::string& prefix) {
  return std::filesystem::exists(prefix + ".idx") && std::filesystem::exists(prefix + ".bin");
}

Checked add_megatron(const NamedFile& prefix, std::vector<TokenFile>& to) {
  const NamedFile index{prefix.path + ".idx", prefix.where}, tokens{prefix.path + ".bin", prefix.where};
  PIPER_TRY(const MappedFile index_memory, MappedFile::open(index));
  std::span<const std::byte> bytes = index_memory.bytes();
  if (bytes.size() < magic.size() || std::memcmp(bytes.data(), magic.data(), magic.size()) != 0)
    return not_an_index(index, "it begins differently");
  Numbers numbers(bytes.subspan(magic.size()));
  const auto version = numbers.next<uint64_t>();
  const auto code = numbers.next<uint8_t>();
  const auto sequences = numbers.next<uint64_t>(), documents = numbers.next<uint64_t>();
  if (!documents) return not_an_index(index, "it is too short");
  if (version != 1) return not_an_index(index, fmt::format("its version is {}, not 1", *version));
  const auto width = width_of(*code);
  if (!width) return not_an_index(index, fmt::format("its dtype has code {}, which is none of whole numbers", *code));
  if (*sequences > bytes.size() || *documents > bytes.size() || numbers.left() < *sequences * 12 + *documents * 8)
    return not_an_index(index, "it is too short");

  std::vector<int64_t> after = {0};  // tokens up to each sequence
  for (uint64_t s = 0; s < *sequences; ++s) after.push_back(after.back() + *numbers.next<int32_t>());
  for (uint64_t s = 0; s < *sequences; ++s)
    if (*numbers.next<int64_t>() != after[s] * static_cast<int64_t>(*width))
      return not_an_index(index, fmt::format("sequence {} does not follow the one before", s));
  PIPER_TRY(MappedFile memory, MappedFile::open(tokens));
  TokenFile out{tokens, std::move(memory), *width};
  if (out.size() != after.back())
    return error(ErrorCode::E703, tokens.where,
                 fmt::format("\"{}\" has {} tokens, and its index {}", tokens.path, out.size(), after.back()))
        .help("do both files belong together?");
  for (uint64_t d = 0; d < *documents; ++d) {
    const int64_t before = *numbers.next<int64_t>();
    if (before < 0 || static_cast<uint64_t>(before) > *sequences)
      return not_an_index(index, fmt::format("document {} ends with sequence {}", d, before));
    if (before > 0) out.ends.push_back(after[static_cast<size_t>(before)]);
  }
  if (out.size() > 0) to.push_back(std::move(out));
  return Ok{};
}

}  // namespace piper
