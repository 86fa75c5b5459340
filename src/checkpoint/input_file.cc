#include "checkpoint/input_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "checkpoint/problems.h"

namespace piper {

Result<InputFile> InputFile::open(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0 && (errno == ENOENT || errno == ENOTDIR))
    return error(ErrorCode::E901, {}, fmt::format("there is no {}", path));
  if (descriptor < 0) return damaged(path, std::strerror(errno));
  struct stat status {};
  InputFile file(path, descriptor, 0);
  if (fstat(descriptor, &status) != 0) return damaged(path, std::strerror(errno));
  if (!S_ISREG(status.st_mode)) return damaged(path, "it is no regular file");
  file.bytes_ = status.st_size;
  return file;
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)), bytes_(other.bytes_) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

InputFile::~InputFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

Checked InputFile::read(int64_t begin, std::span<std::byte> to) const {
  while (!to.empty()) {
    const ssize_t got = pread(descriptor_, to.data(), to.size(), begin);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return damaged(path_, fmt::format("byte {} cannot be read: {}", begin, std::strerror(errno)));
    if (got == 0) return damaged(path_, fmt::format("it ends at byte {}", begin));
    to = to.subspan(static_cast<size_t>(got));
    begin += got;
  }
  return Ok{};
}

Result<std::string> read_small_file(const std::string& path, int64_t largest) {
  PIPER_TRY(const InputFile file, InputFile::open(path));
  if (file.bytes() > largest) return damaged(path, fmt::format("it has more than {} bytes", largest));
  std::string text(static_cast<size_t>(file.bytes()), '\0');
  PIPER_CHECK(file.read(0, std::as_writable_bytes(std::span(text))));
  return text;
}

}  // namespace piper
