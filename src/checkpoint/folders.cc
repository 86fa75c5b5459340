#include "checkpoint/folders.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "checkpoint/folder_names.h"
#include "checkpoint/problems.h"
#include "checkpoint/remove_folder.h"

namespace piper {
namespace {

namespace fs = std::filesystem;

/// Names of the folders in a folder.
Result<std::vector<std::string>> folders_in(const std::string& parent) {
  std::error_code problem;
  std::vector<std::string> names;
  for (fs::directory_iterator entry(parent, problem), end; !problem && entry != end; entry.increment(problem))
    if (entry->is_directory(problem)) names.push_back(entry->path().filename());
  if (problem)
    return error(ErrorCode::E901, {}, fmt::format("cannot look for checkpoints in {}: {}", parent, problem.message()));
  return names;
}

/// What was being written or deleted when something ended it.
bool is_leftover(const std::string& name) {
  for (const std::string_view suffix : {partial_suffix, removed_suffix})
    if (name.ends_with(suffix) && step_of(std::string_view(name).substr(0, name.size() - suffix.size()))) return true;
  return false;
}

}  // namespace

Result<std::vector<CheckpointFolder>> list_checkpoints(const std::string& parent) {
  PIPER_TRY(const std::vector<std::string> names, folders_in(parent));
  std::vector<CheckpointFolder> out;
  for (const std::string& name : names)
    if (const auto step = step_of(name)) out.push_back({*step, parent + "/" + name});
  std::ranges::sort(out, {}, &CheckpointFolder::step);
  return out;
}

Checked keep(const std::string& parent, int64_t newest, int64_t every) {
  PIPER_TRY(const std::vector<std::string> names, folders_in(parent));
  for (const std::string& name : names)
    if (is_leftover(name)) PIPER_CHECK(remove_folder(parent + "/" + name));
  PIPER_TRY(const std::vector<CheckpointFolder> folders, list_checkpoints(parent));
  for (size_t i = 0; i + static_cast<size_t>(newest) < folders.size(); ++i) {
    if (every > 0 && folders[i].step % every == 0) continue;
    const std::string removed = fmt::format("{}{}", folders[i].path, removed_suffix);
    std::error_code problem;
    fs::rename(folders[i].path, removed, problem);
    if (problem) return cannot_write(folders[i].path, problem.value());
    PIPER_CHECK(remove_folder(removed));
  }
  return Ok{};
}

}  // namespace piper
