#include "base/read_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/utf8.h"

namespace piper {
namespace {

class ReadFile : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("piper_read_file_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return (folder_ / name).string();
  }
  std::string refusal(const std::string& path) {
    auto file = read_file(path, "schedule");
    return file ? "" : render(file.error());
  }

  std::filesystem::path folder_;
};

TEST_F(ReadFile, TextInUtf8) {
  auto file = read_file(write("a", "\xC3\xA9t\xC3\xA9\r\n"), "schedule");
  ASSERT_TRUE(file);
  EXPECT_EQ((*file)->text, "\xC3\xA9t\xC3\xA9\r\n");
  EXPECT_EQ(refusal(write("empty", "")), "");
}

TEST_F(ReadFile, OtherBytesAreRefusedAtTheirPlace) {
  const std::string path = write("latin", "one\ntwo caf\xE9\n");
  EXPECT_EQ(refusal(path), path +
                               ":2:8: error[E108]: the schedule is not text: byte 0xe9 is not UTF-8\n"
                               "  two caf?\n"
                               "         ^\n"
                               "help: save the file as UTF-8, if it is the one you meant\n");
  EXPECT_NE(refusal(write("utf16", std::string("\xFF\xFE"
                                               "d\0",
                                               4)))
                .find("byte 0xff"),
            std::string::npos);
}

TEST_F(ReadFile, MissingFilesAndFolders) {
  write("pipeline.piper", "");
  const std::string typo = (folder_ / "pipelin.piper").string();
  EXPECT_NE(refusal(typo).find("did you mean \"" + (folder_ / "pipeline.piper").string() + "\"?"), std::string::npos);
  EXPECT_EQ(refusal((folder_ / "x").string()).find("help"), std::string::npos);
  EXPECT_NE(refusal(folder_.string()).find("help: name a file in it"), std::string::npos);
}

TEST(Utf8, TheFirstByteThatIsNone) {
  EXPECT_EQ(first_not_utf8("plain, \xC3\xA9, \xF0\x9F\x98\x80"), std::nullopt);
  EXPECT_EQ(first_not_utf8("ab\x80"), 2u);
  EXPECT_EQ(first_not_utf8("\xC3"), 0u);
  EXPECT_EQ(first_not_utf8("a\xED\xA0\x80"), 1u);  // half a surrogate pair
}

}  // namespace
}  // namespace piper
