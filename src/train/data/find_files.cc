#include "train/data/find_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <span>

namespace piper {
namespace {

namespace fs = std::filesystem;

bool is_pattern(std::string_view name) {
  return name.find_first_of("*?") != std::string_view::npos;
}

/// Walks the folders that the parts of a pattern lead to.
class Search {
 public:
  void walk(const fs::path& folder, std::span<const std::string> parts) {
    if (parts.front() == "**") {
      if (parts.size() > 1) walk(folder, parts.subspan(1));
      for_each_in(folder, "*", [&](const fs::directory_entry& entry) {
        if (is_folder(entry)) walk(entry.path(), parts);
        if (parts.size() == 1 && is_file(entry)) found_.insert(entry.path().string());
      });
      return;
    }
    for_each_in(folder, parts.front(), [&](const fs::directory_entry& entry) {
      if (parts.size() > 1 && is_folder(entry)) walk(entry.path(), parts.subspan(1));
      if (parts.size() == 1 && is_file(entry)) found_.insert(entry.path().string());
    });
  }

  const std::set<std::string>& found() const { return found_; }
  /// The first folder that could not be read.
  const std::string& unreadable() const { return unreadable_; }
  const std::error_code& reason() const { return reason_; }

 private:
  static bool is_folder(const fs::directory_entry& entry) {
    std::error_code ignored;
    return entry.is_directory(ignored) && !entry.is_symlink(ignored);
  }
  static bool is_file(const fs::directory_entry& entry) {
    std::error_code ignored;
    return entry.is_regular_file(ignored);
  }

  template <class Visit>
  void for_each_in(const fs::path& folder, std::string_view pattern, const Visit& visit) {
    std::error_code problem;
    for (fs::directory_iterator entry(folder.empty() ? "." : folder, problem), end; !problem && entry != end;
         entry.increment(problem)) {
      const std::string name = entry->path().filename().string();
      if (name.starts_with('.') && !pattern.starts_with('.')) continue;
      if (matches(pattern, name)) visit(folder.empty() ? fs::directory_entry(name) : *entry);
    }
    if (problem && unreadable_.empty()) {
      unreadable_ = folder.empty() ? "." : folder.string();
      reason_ = problem;
    }
  }

  std::set<std::string> found_;
  std::string unreadable_;
  std::error_code reason_;
};

}  // namespace

bool matches(std::string_view pattern, std::string_view name) {
  size_t p = 0, n = 0, star = std::string_view::npos, after = 0;  // after: where the last star's text ends so far
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      after = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p, ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++after;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

Result<std::vector<NamedFile>> find_files(const NamedFile& file) {
  fs::path folder;
  std::vector<std::string> parts;  // from the first one that is a pattern
  for (const fs::path& part : fs::path(file.path)) {
    if (parts.empty() && !is_pattern(part.string()))
      folder /= part;
    else if (!part.empty())
      parts.push_back(part.string());
  }
  std::error_code ignored;
  const bool whole_folder = parts.empty() && fs::is_directory(folder, ignored);
  if (parts.empty() && !whole_folder) return std::vector{file};  // whoever opens it says what is wrong
  if (whole_folder) parts = {"**"};

  Search search;
  search.walk(folder, parts);
  if (!search.unreadable().empty())
    return error(ErrorCode::E108, file.where,
                 fmt::format("cannot read folder \"{}\": {}", search.unreadable(), search.reason().message()))
        .help("names in a configuration are relative to its folder");
  if (search.found().empty())
    return error(ErrorCode::E108, file.where,
                 whole_folder ? fmt::format("folder \"{}\" has no files", file.path)
                              : fmt::format("no file matches \"{}\"", file.path))
        .help("* stands for any part of a name, the folder ** for any number of folders; hidden files are left out");
  std::vector<NamedFile> out;
  for (const std::string& path : search.found()) out.push_back({path, file.where});
  return out;
}

}  // namespace piper
