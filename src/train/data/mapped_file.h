// Files as memory: pages are read when they are looked at, and shared by all processes of a machine.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "base/result.h"
#include "train/data/named_file.h"

namespace piper {

/// Read only, of the size that the file had when it was opened.
class MappedFile {
 public:
  /// E108: it cannot be read, or is no file.
  static Result<MappedFile> open(const NamedFile& file);

  MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  explicit MappedFile(std::span<std::byte> bytes) : bytes_(bytes) {}
  std::span<std::byte> bytes_;
};

}  // namespace piper
