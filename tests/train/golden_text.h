// Whole messages of this layer, kept in tests/golden/train; PIPER_UPDATE=1 in the environment writes them anew.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace piper {

inline void expect_golden(const std::string& name, const std::string& text) {
  const std::string path = std::string(PIPER_SOURCE_DIR) + "/tests/golden/train/" + name + ".txt";
  if (std::getenv("PIPER_UPDATE")) std::ofstream(path) << text;
  std::ifstream file(path);
  ASSERT_TRUE(file) << path << " is missing; PIPER_UPDATE=1 in the environment writes it";
  std::stringstream expected;
  expected << file.rdbuf();
  EXPECT_EQ(text, expected.str());
}

}  // namespace piper
