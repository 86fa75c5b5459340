// Files in the format safetensors: a header that says which bytes belong to which tensor, then the bytes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace piper {

/// Element types that the format can name and Piper reads.
enum class StoredDType { F64, F32, F16, BF16, I64, I32, I16, I8, U8, Bool };
int64_t bytes_of(StoredDType dtype);
/// As headers have it: `F64` … `BOOL`.
std::string_view name(StoredDType dtype);
std::optional<StoredDType> stored_dtype_named(std::string_view text);

/// A whole tensor: its global shape, whoever holds which part of it.
struct StoredTensor {
  std::string name;
  StoredDType dtype = StoredDType::F32;
  std::vector<int64_t> sizes;  // none: a scalar

  friend bool operator==(const StoredTensor&, const StoredTensor&) = default;
};
/// Saturates instead of overflowing.
int64_t elements(const StoredTensor& tensor);
int64_t bytes_of(const StoredTensor& tensor);
/// `F32 [4, 8]`
std::string print_type(const StoredTensor& tensor);

/// A tensor and its bytes in a file, counted from the beginning of the file.
struct TensorEntry {
  StoredTensor tensor;
  int64_t begin = 0, bytes = 0;

  friend bool operator==(const TensorEntry&, const TensorEntry&) = default;
};

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;             // in the order of their bytes
  std::map<std::string, std::string> metadata;  // `__metadata__`
  int64_t bytes = 0;                            // of the header with its length: where the first tensor begins
};

/// Places the tensors one after another: large elements first, otherwise in the given order, so that every tensor is
/// aligned to its elements.
SafetensorsHeader make_header(std::vector<StoredTensor> tensors, std::map<std::string, std::string> metadata = {});

/// The first `bytes` of the file: length, JSON, and blanks up to a multiple of 8.
std::string print(const SafetensorsHeader& header);

/// The header of a file of `file_bytes` bytes, which begins with `text`. E902 names the file and the reason: cut off,
/// length out of bounds, not JSON, a name twice, bytes that overlap, leave a gap or end elsewhere than the file does, a
/// number of bytes that is not that of the shape.
Result<SafetensorsHeader> parse_header(const std::string& file, std::string_view text, int64_t file_bytes);

/// The same of a file on disk; E901 if there is none.
Result<SafetensorsHeader> read_header(const std::string& path);

}  // namespace piper
