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

void zero(const std::string& path, int64_t begin, int64_t bytes) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(begin);
  file << std::string(static_cast<size_t>(bytes), '\0');
}

}  // namespace

PowerLoss* PowerLoss::current = nullptr;

PowerLoss::PowerLoss(std::string root, int64_t calls) : root_(std::move(root)), left_(calls) {
  for (const auto& entry : fs::recursive_directory_iterator(root_)) old_.insert(status_of(entry.path()).st_ino);
  current = this;
}
PowerLoss::~PowerLoss() {
  current = nullptr;
}

void PowerLoss::count() {
  if (left_-- == 0) throw Now{};
}

void PowerLoss::written(int file, int64_t at, int64_t bytes) {
  unsynced_[status_of(path_of(file)).st_ino][file].emplace_back(at, bytes);
}

void PowerLoss::synced(int file) {
  const std::string path = path_of(file);
  const struct stat status = status_of(path);
  if (!S_ISDIR(status.st_mode)) {
    unsynced_[status.st_ino].erase(file);
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

/// The name of a file or folder: its folder was synced when it had it.
bool PowerLoss::is_safe(const std::string& path) const {
  const auto names = names_.find(status_of(fs::path(path).parent_path()).st_ino);
  return names != names_.end() && names->second.contains(fs::path(path).filename());
}

void PowerLoss::lose_bytes(const std::string& path, Random& random) {
  const Inode inode = status_of(path).st_ino;
  for (const auto& [file, writes] : unsynced_[inode])
    for (const auto& [begin, bytes] : writes)
      if (up_to(random, 1) == 0) zero(path, begin, bytes);
  if (!synced_files_.contains(inode) && up_to(random, 1) == 0) fs::resize_file(path, 0);
}

void PowerLoss::lose(Random& random) {
  for (auto change = changes_.rbegin(); change != changes_.rend(); ++change)
    if (up_to(random, 1) == 0) undo(*change);
  std::vector<std::string> fresh;  // folders before what is in them
  for (const auto& entry : fs::recursive_directory_iterator(root_))
    if (!old_.contains(status_of(entry.path()).st_ino)) fresh.push_back(entry.path());
  for (const std::string& path : fresh) {
    if (!fs::exists(path)) continue;  // gone with its folder
    if (fs::is_regular_file(path)) lose_bytes(path, random);
    if (!is_safe(path) && up_to(random, 1) == 0) fs::remove_all(path);
  }
}

}  // namespace piper::checkpoint_tests
