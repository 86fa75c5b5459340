#include "base/files_in_use.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>

namespace piper {
namespace {

/// Device, inode, and time of birth, where it is known: inodes are used again.
using Identity = std::tuple<uint64_t, uint64_t, int64_t, uint32_t>;

/// Nothing where there is no file, and of devices and pipes: what is written there takes nobody's place.
std::optional<Identity> identity_of(const std::string& path) {
  struct statx status {};
  if (statx(AT_FDCWD, path.c_str(), 0, STATX_BASIC_STATS | STATX_BTIME, &status) != 0 || !S_ISREG(status.stx_mode))
    return {};
  return Identity((uint64_t{status.stx_dev_major} << 32) | status.stx_dev_minor, status.stx_ino,
                  status.stx_btime.tv_sec, status.stx_btime.tv_nsec);
}

struct FilesInUse {
  std::mutex mutex;
  std::map<Identity, std::string> as;
};
FilesInUse& files_in_use() {
  static FilesInUse files;
  return files;
}

}  // namespace

void use_file(const std::string& path, std::string_view as) {
  const auto identity = identity_of(path);
  if (!identity) return;
  FilesInUse& files = files_in_use();
  const std::lock_guard lock(files.mutex);
  files.as.try_emplace(*identity, as);
}

Checked check_not_in_use(const std::string& path) {
  const auto identity = identity_of(path);
  if (!identity) return Ok{};
  FilesInUse& files = files_in_use();
  const std::lock_guard lock(files.mutex);
  const auto found = files.as.find(*identity);
  if (found == files.as.end()) return Ok{};
  return error(ErrorCode::E108, {}, fmt::format("cannot write {}: it is in use as {}", path, found->second))
      .help("name another file to write");
}

}  // namespace piper
