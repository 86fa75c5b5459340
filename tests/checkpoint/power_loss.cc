#include "checkpoint/power_loss.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace piper::checkpoint_tests {
namespace {

namespace fs = std::filesystem;

struct stat status_of(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) throw std::runtime_error("no " + path);
  return status;
}

std::string path_of(int file) {
  return fs::read_symlink("/proc/self/fd/" + std::to_string(file));
}

std::set<std::string> names_in(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

void zero(const std::string& path, int64_t begin, int64_t bytes) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(begin);
  file << std::string(static_cast<size_t>(bytes), '\0');
}

}  // namespace

PowerLoss* PowerLoss::current = nullptr;

PowerLoss::PowerLoss(int64_t calls) : left_(calls) {
  current = this;
}
PowerLoss::~PowerLoss() {
  current = nullptr;
}

void PowerLoss::count() {
  if (left_-- == 0) throw Now{};
}

void PowerLoss::written(int file, int64_t at, int64_t bytes) {
  const Inode inode = status_of(path_of(file)).st_ino;
  files_.insert(inode);
  unsynced_[inode].emplace_back(at, bytes);
}

void PowerLoss::synced(int file) {
  const std::string path = path_of(file);
  const struct stat status = status_of(path);
  if (!S_ISDIR(status.st_mode)) {
    unsynced_.erase(status.st_ino);
    synced_files_.insert(status.st_ino);
    return;
  }
  names_[status.st_ino] = names_in(path);
  std::erase_if(changes_, [&](const Change& change) { return fs::path(change.to).parent_path() == path; });
}

FileCalls PowerLoss::calls() const {
  return {
      [](int file, const void* bytes, size_t count, off_t at) {
        current->count();
        current->written(file, at, static_cast<int64_t>(count));
        return system_calls.pwrite(file, bytes, count, at);
      },
      [](int file) {
        current->count();
        current->synced(file);
        return 0;
      },
      [](const char* from, const char* to) {
        current->count();
        current->changes_.push_back({from, to, false});
        return system_calls.rename(from, to);
      },
      [](const char* one, const char* other) {
        current->count();
        current->changes_.push_back({one, other, true});
        return system_calls.exchange(one, other);
      },
  };
}

void PowerLoss::undo(const Change& change) {
  if (change.exchanged)
    system_calls.exchange(change.from.c_str(), change.to.c_str());
  else
    system_calls.rename(change.to.c_str(), change.from.c_str());
}

void PowerLoss::lose(const std::string& parent, Random& random) {
  const auto gone = [&] { return up_to(random, 1) == 0; };
  for (auto change = changes_.rbegin(); change != changes_.rend(); ++change)
    if (gone()) undo(*change);
  std::vector<std::string> files, lost_names;
  for (const auto& entry : fs::recursive_directory_iterator(parent))
    if (entry.is_regular_file()) files.push_back(entry.path());
  for (const std::string& path : files) {
    const Inode inode = status_of(path).st_ino;
    if (!files_.contains(inode)) continue;
    for (const auto& [begin, bytes] : unsynced_[inode])
      if (gone()) zero(path, begin, bytes);
    if (!synced_files_.contains(inode) && gone()) fs::resize_file(path, 0);
    const auto names = names_.find(status_of(fs::path(path).parent_path()).st_ino);
    const bool safe = names != names_.end() && names->second.contains(fs::path(path).filename());
    if (!safe && gone()) fs::remove(path);
  }
}

}  // namespace piper::checkpoint_tests
