// Whole messages of this layer, kept in tests/golden/train.
#pragma once

#include <string>

#include "../golden_text.h"

namespace piper {

inline void expect_golden(const std::string& name, const std::string& text) {
  expect_golden_in("train", name, text);
}

}  // namespace piper
