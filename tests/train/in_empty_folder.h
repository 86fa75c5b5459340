// Tests that write files.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace piper {

/// Every test runs in a folder of its own, so that names in messages are short and always the same.
class InEmptyFolder : public testing::Test {
 protected:
  void SetUp() override {
    std::string folder = (std::filesystem::temp_directory_path() / "piper.XXXXXX").string();
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    before_ = std::filesystem::current_path();
    folder_ = folder;
    std::filesystem::current_path(folder_);
  }
  void TearDown() override {
    std::filesystem::current_path(before_);
    std::filesystem::remove_all(folder_);
  }

  static void write(const std::string& path, const std::string& text) {
    if (const auto folder = std::filesystem::path(path).parent_path(); !folder.empty())
      std::filesystem::create_directories(folder);
    std::ofstream(path, std::ios::binary) << text;
  }
  template <class Number>
  static void write_numbers(const std::string& path, const std::vector<Number>& numbers) {
    write(path, std::string(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(Number)));
  }

 private:
  std::filesystem::path before_, folder_;
};

}  // namespace piper
