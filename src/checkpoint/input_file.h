// A file that is read at given places.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "base/result.h"

namespace piper {

/// Open as long as it lives. May be read from several threads.
class InputFile {
 public:
  /// E901: there is no such file. E902: it cannot be read.
  static Result<InputFile> open(const std::string& path);
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;
  ~InputFile();

  const std::string& path() const { return path_; }
  int64_t bytes() const { return bytes_; }
  /// All bytes of `to`, from the place `begin` on. E902: an error of the disk, or the file ends before.
  Checked read(int64_t begin, std::span<std::byte> to) const;

 private:
  InputFile(std::string path, int descriptor, int64_t bytes)
      : path_(std::move(path)), descriptor_(descriptor), bytes_(bytes) {}

  std::string path_;
  int descriptor_ = -1;
  int64_t bytes_ = 0;
};

/// A whole small file. E902 also if it is larger than `largest`.
Result<std::string> read_small_file(const std::string& path, int64_t largest);

}  // namespace piper
