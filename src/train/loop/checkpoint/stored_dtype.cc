#include "train/loop/checkpoint/stored_dtype.h"

#include <array>
#include <utility>

#include "base/invariant.h"

namespace piper {
namespace {

constexpr std::array<std::pair<DType, StoredDType>, dtype_count> pairs = {{
    {DType::Float64, StoredDType::F64},
    {DType::Float32, StoredDType::F32},
    {DType::Float16, StoredDType::F16},
    {DType::BFloat16, StoredDType::BF16},
    {DType::Int64, StoredDType::I64},
    {DType::Int32, StoredDType::I32},
    {DType::Int8, StoredDType::I8},
    {DType::Bool, StoredDType::Bool},
}};

}  // namespace

StoredDType stored(DType dtype) {
  for (const auto& [own, file] : pairs)
    if (own == dtype) return file;
  internal_error("an element type that no checkpoint has");
}

std::optional<DType> dtype_of(StoredDType dtype) {
  for (const auto& [own, file] : pairs)
    if (file == dtype) return own;
  return {};
}

}  // namespace piper
