// Whole messages of this layer, kept in tests/golden/train.
#pragma once

#include <string>

#include "expect_golden.h"

namespace piper {

inline void expect_golden(const std::string& name, const std::string& text) {
  expect_golden_in("train", name, text);
}

}  // namespace piper
