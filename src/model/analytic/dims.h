// Dimensions of an analytic model's values and parameters.
#pragma once

#include "model/size.h"

namespace piper {

inline Dim fixed(int64_t size) {
  return {size, false, 1, {}};
}
inline Dim samples() {
  return {1, true, 1, {}};
}
/// Divided among devices where the chunk is cut: heads, inner features; or tokens.
inline Dim cut(int64_t size) {
  return {size, false, 1, "cut"};
}
inline Dim tokens(int64_t sequence) {
  return {sequence, false, 1, "sequence"};
}
inline Dim per_expert(int64_t experts) {
  return {experts, false, 1, "expert"};
}

}  // namespace piper
