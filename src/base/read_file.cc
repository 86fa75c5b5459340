#include "base/read_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/files_in_use.h"
#include "base/suggest.h"
#include "base/utf8.h"

namespace piper {

namespace {

/// Programs, images and files in other encodings are told apart here, before a parser wonders.
Result<SourceFilePtr> check_text(SourceFilePtr file, std::string_view what) {
  const auto bad = first_not_utf8(file->text);
  if (!bad) return file;
  const int at = static_cast<int>(*bad);
  return error(ErrorCode::E108, {file, at, at + 1},
               fmt::format("the {} is not text: byte 0x{:02x} is not UTF-8", what,
                           static_cast<unsigned char>(file->text[*bad])))
      .help("save the file as UTF-8, if it is the one you meant");
}

}  // namespace

std::string similar_file(const std::string& path) {
  namespace fs = std::filesystem;
  const fs::path asked(path);
  std::error_code problem;
  std::vector<std::string> names;
  constexpr size_t most = 1000;
  for (fs::directory_iterator entry(asked.has_parent_path() ? asked.parent_path() : fs::path("."), problem), end;
       !problem && entry != end && names.size() < most; entry.increment(problem))
    if (entry->is_regular_file(problem)) names.push_back(entry->path().filename().string());
  std::sort(names.begin(), names.end());
  const std::string found = nearest(asked.filename().string(), names);
  return found.empty() ? "" : fmt::format("did you mean \"{}\"?", (asked.parent_path() / found).string());
}

Result<SourceFilePtr> read_file(const std::string& path, std::string_view what, size_t largest) {
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  std::string text;
  for (std::string block(1 << 16, '\0'); in && text.size() <= largest;) {
    in.read(block.data(), static_cast<std::streamsize>(block.size()));
    text.append(block, 0, static_cast<size_t>(in.gcount()));
  }
  if (text.size() > largest)
    return error(ErrorCode::E113, {}, fmt::format("{} \"{}\" has more than {} bytes", what, path, largest))
        .help("is it the file you meant?");
  if (in.is_open() && !in.bad() && errno == 0) {
    use_file(path, what);
    return check_text(make_source(path, std::move(text)), what);
  }
  const int reason = errno;
  return error(ErrorCode::E108, {},
               fmt::format("cannot read {} \"{}\": {}", what, path,
                           reason != 0 ? std::strerror(reason) : "unknown reason"))
      .help(reason == ENOENT   ? similar_file(path)
            : reason == EISDIR ? "name a file in it"
                               : "");
}

}  // namespace piper
