// The folders that `piper data prepare` makes; docs/data.md.
#include <fmt/format.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/read_file.h"
#include "train/data/token_file.h"

namespace piper {
namespace {

Diagnostic bad(const NamedFile& folder, std::string_view why, std::string help) {
  return error(ErrorCode::E703, folder.where, fmt::format("\"{}\" {}", folder.path, why)).help(std::move(help));
}

std::optional<TokenWidth> width_named(const std::string& dtype) {
  for (const TokenWidth width : {TokenWidth::Bits16, TokenWidth::Bits32})
    if (dtype == name(width)) return width;
  return std::nullopt;
}

struct Shard {
  std::string name;
  int64_t tokens = 0, documents = 0;
};

/// A file of a shard, of the size that it must have.
Result<MappedFile> open_part(const NamedFile& folder, const Shard& shard, std::string_view what, int64_t bytes) {
  const NamedFile file{fmt::format("{}/{}.{}", folder.path, shard.name, what), folder.where};
  PIPER_TRY(MappedFile memory, MappedFile::open(file));
  if (static_cast<int64_t>(memory.bytes().size()) != bytes)
    return error(ErrorCode::E703, file.where,
                 fmt::format("\"{}\" has {} bytes and should have {}", file.path, memory.bytes().size(), bytes))
        .help("piper data verify compares all files; piper data prepare makes what is damaged anew");
  return memory;
}

Result<TokenFile> open_shard(const NamedFile& folder, const Shard& shard, TokenWidth width, bool completions) {
  PIPER_TRY(MappedFile tokens, open_part(folder, shard, "tokens", shard.tokens * static_cast<int64_t>(width)));
  PIPER_TRY(const MappedFile ends, open_part(folder, shard, "documents", shard.documents * 8));
  TokenFile out{{fmt::format("{}/{}.tokens", folder.path, shard.name), folder.where}, std::move(tokens), width};
  out.ends.resize(static_cast<size_t>(shard.documents));
  if (shard.documents > 0) std::memcpy(out.ends.data(), ends.bytes().data(), ends.bytes().size());
  int64_t before = 0;
  for (const int64_t end : out.ends) {
    if (end < before || end > shard.tokens)
      return bad(folder, fmt::format("is damaged: documents of shard {} overlap", shard.name),
                 "piper data prepare makes what is damaged anew");
    before = end;
  }
  if (completions) {
    PIPER_TRY(out.counted, open_part(folder, shard, "loss", shard.tokens));
  }
  return out;
}

}  // namespace

bool is_data_folder(const std::string& path) {
  return std::filesystem::exists(path + "/data.json") || std::filesystem::exists(path + "/progress/plan.json");
}

Checked add_data_folder(const NamedFile& folder, std::vector<TokenFile>& to) {
  if (!std::filesystem::exists(folder.path + "/data.json"))
    return bad(folder, "is not complete", "run piper data prepare again: it resumes where it stopped");
  PIPER_TRY(const SourceFilePtr file, read_file(folder.path + "/data.json", "the description of data"));
  const std::string broken = "piper data verify says what is wrong with it";
  const auto json = nlohmann::json::parse(file->text, nullptr, false);
  try {
    if (json.at("format") != "piper-data") return bad(folder, "has a data.json that is not of Piper", broken);
    if (const int64_t version = json.at("version"); version != 1)
      return bad(folder, fmt::format("has version {}; this program reads version 1", version),
                 "prepare the data again");
    const auto width = width_named(json.at("dtype"));
    if (!width) return bad(folder, "has tokens that are neither uint16 nor uint32", broken);
    const bool completions = json.at("loss") == "completions";
    for (const auto& of : json.at("shards")) {
      const Shard shard{of.at("name"), of.at("tokens"), of.at("documents")};
      if (shard.tokens <= 0) continue;  // nothing but empty documents
      PIPER_TRY(TokenFile opened, open_shard(folder, shard, *width, completions));
      to.push_back(std::move(opened));
    }
  } catch (const nlohmann::json::exception&) {
    return bad(folder, "has a data.json that is not complete", broken);
  }
  return Ok{};
}

}  // namespace piper
