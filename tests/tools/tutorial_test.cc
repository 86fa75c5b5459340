// The tutorial runs: its files are written, its commands executed, and what they print is what the page shows.
#include <gtest/gtest.h>

#include <sstream>

#include "run_piper.h"

namespace piper::testing {
namespace {

/// A fenced block: ```file NAME, or ```console with `$ piper …` lines and their output.
struct Block {
  std::string kind;
  std::string text;
};

std::vector<Block> read_blocks(const std::string& page) {
  std::vector<Block> blocks;
  std::istringstream in(page);
  bool inside = false;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("```")) {
      inside = !inside;
      if (inside) blocks.push_back({line.substr(3), ""});
    } else if (inside) {
      blocks.back().text += line + "\n";
    }
  }
  return blocks;
}

TEST(Tutorial, RunsAsWritten) {
  const std::string folder = temporary_folder();
  int commands = 0;
  for (const Block& block : read_blocks(read_text(PIPER_SOURCE_DIR "/docs/tutorial.md"))) {
    if (block.kind.starts_with("file ")) write_file(folder + "/" + block.kind.substr(5), block.text);
    if (block.kind != "console") continue;
    std::istringstream in(block.text);
    std::string line, command, expected;
    const auto check = [&] {
      if (command.empty()) return;
      const ProgramResult result = run_piper(command, folder);
      EXPECT_EQ(result.errors + result.output, expected) << "$ piper " << command;
      ++commands;
    };
    while (std::getline(in, line)) {
      if (line.starts_with("$ piper ")) {
        check();
        command = line.substr(8);
        expected.clear();
      } else {
        expected += line + "\n";
      }
    }
    check();
  }
  EXPECT_GE(commands, 5);
}

}  // namespace
}  // namespace piper::testing
