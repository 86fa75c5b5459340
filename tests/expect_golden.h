// Whole messages of a layer, kept in tests/golden/<layer>; PIPER_UPDATE=1 in the environment writes them anew.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace piper {

inline void expect_golden_in(const std::string& layer, const std::string& name, const std::string& text) {
  const std::string path = std::string(PIPER_SOURCE_DIR) + "/tests/golden/" + layer + "/" + name + ".txt";
  if (std::getenv("PIPER_UPDATE")) std::ofstream(path) << text;
  std::ifstream file(path);
  ASSERT_TRUE(file) << path << " is missing; PIPER_UPDATE=1 in the environment writes it";
  std::stringstream expected;
  expected << file.rdbuf();
  EXPECT_EQ(text, expected.str());
}

}  // namespace piper
