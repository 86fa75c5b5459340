#include "base/usual_python.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace piper {
namespace {

TEST(UsualPython, IsThatOfTheEnvironment) {
  const std::filesystem::path root = std::filesystem::path(testing::TempDir()) / "usual_python";
  const std::filesystem::path scripts = root / "env/lib/python3.11/site-packages/piper_training.scripts";
  std::filesystem::create_directories(scripts);
  std::filesystem::create_directories(root / "env/bin");
  std::filesystem::create_directories(root / "env/clones/piper/build/release");
  std::ofstream(root / "env/bin/python3") << "";
  const std::string python = (root / "env/bin/python3").string();
  EXPECT_EQ(python_of_environment(root / "env/bin/piper"), python);
  EXPECT_EQ(python_of_environment(scripts / "piper"), python);  // a repaired wheel
  EXPECT_EQ(python_of_environment(root / "env/clones/piper/build/release/piper"), "");
  EXPECT_EQ(python_of_environment(""), "");
  std::filesystem::remove_all(root);
}

TEST(UsualPython, IsWhatPiperPythonNames) {
  const char* const before = std::getenv("PIPER_PYTHON");
  const std::string kept = before ? before : "";
  setenv("PIPER_PYTHON", "/some/python", 1);
  EXPECT_EQ(usual_python(), "/some/python");
  before ? setenv("PIPER_PYTHON", kept.c_str(), 1) : unsetenv("PIPER_PYTHON");
}

}  // namespace
}  // namespace piper
