#include "checkpoint/export_model.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "checkpoint/problems.h"

namespace piper {
namespace {

namespace fs = std::filesystem;

/// A file of its own whose bytes are the other's until one of them changes; not every file system has that.
bool reflink(const std::string& from, const std::string& to) {
  const int source = open(from.c_str(), O_RDONLY | O_CLOEXEC);
  const int target = open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  const bool done = source >= 0 && target >= 0 && ioctl(target, FICLONE, source) == 0;
  if (source >= 0) close(source);
  if (target >= 0) close(target);
  if (!done && target >= 0) unlink(to.c_str());
  return done;
}

Checked copy(const std::string& from, const std::string& to) {
  if (reflink(from, to) || link(from.c_str(), to.c_str()) == 0) return Ok{};
  std::error_code problem;
  fs::copy_file(from, to, problem);
  return problem ? Checked(cannot_write(to, problem.value())) : Ok{};
}

}  // namespace

Checked export_model(const FolderReader& checkpoint, const std::string& to) {
  std::error_code problem;
  fs::create_directories(to, problem);
  if (problem) return cannot_write(to, problem.value());
  if (!fs::is_empty(to, problem)) return cannot_write(to, ENOTEMPTY).help("name a folder that is new or empty");
  for (const StoredFile& file : checkpoint.layout().files)
    if (!is_optimizer_file(file.name))
      PIPER_CHECK(copy(fmt::format("{}/{}", checkpoint.folder(), file.name), fmt::format("{}/{}", to, file.name)));
  return Ok{};
}

}  // namespace piper
