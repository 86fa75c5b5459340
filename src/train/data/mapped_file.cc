#include "train/data/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/files_in_use.h"
#include "base/read_file.h"

namespace piper {
namespace {

Diagnostic cannot_read(const NamedFile& file, int reason) {
  const std::string similar = reason == ENOENT ? similar_file(file.path) : "";
  return error(ErrorCode::E108, file.where,
               fmt::format("cannot read data \"{}\": {}", file.path, std::strerror(reason)))
      .help(reason != ENOENT || !similar.empty() ? similar : "names in a configuration are relative to its folder");
}

}  // namespace

Result<MappedFile> MappedFile::open(const NamedFile& file) {
  const int descriptor = ::open(file.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe must not block
  if (descriptor < 0) return cannot_read(file, errno);
  struct stat status {};
  void* memory = nullptr;
  int reason = ::fstat(descriptor, &status) != 0 ? errno : 0;
  const bool plain = S_ISREG(status.st_mode);
  const auto size = plain ? static_cast<size_t>(status.st_size) : 0;
  if (reason == 0 && size > 0) {
    memory = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0);
    if (memory == MAP_FAILED) reason = errno;
  }
  ::close(descriptor);
  if (reason != 0) return cannot_read(file, reason);
  if (!plain)
    return error(ErrorCode::E108, file.where, fmt::format("cannot read data \"{}\": it is no file", file.path))
        .help("pipes and devices cannot be read twice; copy the data to a file");
  use_file(file.path, "data");
  return MappedFile({static_cast<std::byte*>(memory), size});
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

}  // namespace piper
