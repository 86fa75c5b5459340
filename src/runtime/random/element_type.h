// The C++ type of a dtype.
#pragma once

#include <cstdint>
#include <type_traits>

#include "model/size.h"

namespace piper {

/// Calls `f` with a std::type_identity of it. Types of 16 bits are the caller's: libtorch and CUDA have their own.
template <class BFloat16, class Float16, class F>
void with_element_type(DType dtype, const F& f) {
  switch (dtype) {
    case DType::Float64:
      return f(std::type_identity<double>());
    case DType::Float32:
      return f(std::type_identity<float>());
    case DType::BFloat16:
      return f(std::type_identity<BFloat16>());
    case DType::Float16:
      return f(std::type_identity<Float16>());
    case DType::Int64:
      return f(std::type_identity<int64_t>());
    case DType::Int32:
      return f(std::type_identity<int32_t>());
    case DType::Int8:
      return f(std::type_identity<int8_t>());
    case DType::Bool:
      return f(std::type_identity<bool>());
  }
}

}  // namespace piper
