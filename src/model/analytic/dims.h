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
/// Divided by tensor parallelism: heads, inner features; or, by sequence parallelism, tokens.
inline Dim tp(int64_t size) {
  return {size, false, 1, std::string(tp_label)};
}
inline Dim tokens(int64_t sequence) {
  return {sequence, false, 1, std::string(sequence_label)};
}
inline Dim per_expert(int64_t experts) {
  return {experts, false, 1, std::string(expert_label)};
}

}  // namespace piper
