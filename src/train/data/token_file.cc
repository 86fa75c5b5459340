#include "train/data/token_file.h"

#include <fmt/format.h>

#include <cstring>
#include <filesystem>

#include "train/data/find_files.h"

namespace piper {
namespace {

template <class Token>
void copy_as(std::span<const std::byte> bytes, int64_t position, std::span<int64_t> into) {
  const std::byte* from = bytes.data() + static_cast<size_t>(position) * sizeof(Token);
  for (int64_t& out : into) {
    Token token;
    std::memcpy(&token, from, sizeof(Token));
    out = static_cast<int64_t>(token);
    from += sizeof(Token);
  }
}

/// Whole numbers and nothing else: no header, no half number.
Checked check_numbers(const NamedFile& file, TokenWidth width, std::span<const std::byte> bytes) {
  constexpr std::string_view numpy = "\x93NUMPY";
  if (bytes.size() >= numpy.size() && std::memcmp(bytes.data(), numpy.data(), numpy.size()) == 0)
    return error(ErrorCode::E703, file.where,
                 fmt::format("\"{}\" is a NumPy file, with a header before its tokens", file.path))
        .help(
            fmt::format("write the tokens without a header: array.astype(\"{}\").tofile(\"tokens.bin\")", name(width)));
  if (bytes.size() % static_cast<size_t>(width) != 0)
    return error(ErrorCode::E703, file.where,
                 fmt::format("\"{}\" has {} bytes, which is not a whole number of {} tokens", file.path, bytes.size(),
                             name(width)))
        .help("is dtype right, and was the file written to the end?");
  return Ok{};
}

/// `tokens.bin` and `tokens.idx` are one.
std::string without_ending(const std::string& path) {
  return std::filesystem::path(path).replace_extension().string();
}

Checked add_path(const NamedFile& path, TokenWidth width, std::vector<TokenFile>& to) {
  if (is_data_folder(path.path)) return add_data_folder(path, to);
  if (is_megatron(path.path)) return add_megatron(path, to);
  PIPER_TRY(const auto files, find_files(path));
  for (const NamedFile& file : files) {
    const std::string prefix = without_ending(file.path);
    if (is_megatron(prefix)) {
      if (file.path.ends_with(".bin")) PIPER_CHECK(add_megatron({prefix, file.where}, to));
    } else {
      PIPER_CHECK(add_plain_file(file, width, file.path == path.path, to));
    }
  }
  return Ok{};
}

/// Nothing is left out that the user does not know of.
Checked check_loss(const TokenFile& file, std::optional<LossOn> wanted) {
  if (file.counted && !wanted)
    return error(ErrorCode::E111, file.file.where,
                 fmt::format("\"{}\" says which tokens the loss counts, and [data] does not say whether it should",
                             file.file.path))
        .help("write loss = \"completions\" in [data], or loss = \"all\" to count all");
  if (!file.counted && wanted == LossOn::Completions)
    return error(ErrorCode::E111, file.file.where,
                 fmt::format("loss = \"completions\", but \"{}\" does not say which tokens they are", file.file.path))
        .help("prepare it with --as chat or --as completions, or leave loss out");
  return Ok{};
}

}  // namespace

std::string_view name(TokenWidth width) {
  switch (width) {
    case TokenWidth::Bits8:
      return "uint8";
    case TokenWidth::Bits16:
      return "uint16";
    case TokenWidth::Bits32:
      return "uint32";
    case TokenWidth::Bits64:
      return "uint64";
  }
  internal_error("every width has a name");
}

int64_t TokenFile::token(int64_t position) const {
  int64_t out = 0;
  copy(position, {&out, 1});
  return out;
}

void TokenFile::copy(int64_t position, std::span<int64_t> into) const {
  switch (width) {
    case TokenWidth::Bits8:
      return copy_as<uint8_t>(memory.bytes(), position, into);
    case TokenWidth::Bits16:
      return copy_as<uint16_t>(memory.bytes(), position, into);
    case TokenWidth::Bits32:
      return copy_as<uint32_t>(memory.bytes(), position, into);
    case TokenWidth::Bits64:
      return copy_as<uint64_t>(memory.bytes(), position, into);
  }
}

Checked add_plain_file(const NamedFile& file, TokenWidth width, bool named, std::vector<TokenFile>& to) {
  PIPER_TRY(MappedFile memory, MappedFile::open(file));
  if (memory.bytes().empty()) {
    if (!named) return Ok{};  // one of many
    return error(ErrorCode::E701, file.where, fmt::format("\"{}\" is empty", file.path))
        .help("is it the file you meant?");
  }
  const bool text = width == TokenWidth::Bits8;
  if (!text) PIPER_CHECK(check_numbers(file, width, memory.bytes()));
  to.push_back({file, std::move(memory), width});
  if (text) to.back().ends = {to.back().size()};
  return Ok{};
}

Result<std::vector<TokenFile>> open_token_files(const DataConfig& config, const SourceConfig& source) {
  std::vector<TokenFile> out;
  for (const NamedFile& path : source.paths) {
    if (config.kind == DataKind::Tokens) {
      PIPER_CHECK(add_path(path, config.width, out));
      continue;
    }
    PIPER_TRY(const auto files, find_files(path));
    for (const NamedFile& file : files)
      PIPER_CHECK(add_plain_file(file, TokenWidth::Bits8, file.path == path.path, out));
  }
  for (TokenFile& file : out) {
    PIPER_CHECK(check_loss(file, config.loss));
    if (config.loss == LossOn::All) file.counted.reset();
  }
  return out;
}

}  // namespace piper
