// Pages run: files are written, commands executed, and what they print is what the page shows.
#include <gtest/gtest.h>

#include <regex>
#include <sstream>

#include "run_piper.h"

namespace piper::testing {
namespace {

/// A fenced block: ```file NAME, or ```console with `$ piper …` lines and their output. ```console measured: the output
/// has measured times, so only the words of its first line are compared, progress left out. ```console rounded: other
/// processors round otherwise, so any fraction stands for any other.
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

/// The words of the first line that is no progress.
std::string first_words(const std::string& text) {
  std::istringstream in(text);
  std::string line;
  while (std::getline(in, line) && std::regex_search(line, std::regex("^step +[0-9]+/"))) {
  }
  return std::regex_replace(line, std::regex("[0-9][0-9.]* *(ns|us|ms|s|B|KiB|MiB|GiB)?"), "N");
}

std::string without_fractions(const std::string& text) {
  return std::regex_replace(text, std::regex("[0-9]+(\\.[0-9]+(e[-+][0-9]+)?|e[-+][0-9]+)"), "N");
}

void expect_as_shown(const std::string& kind, const ProgramResult& result, const std::string& expected) {
  if (kind == "console") {
    EXPECT_EQ(result.errors + result.output, expected);
    return;
  }
  if (kind == "console rounded") {
    EXPECT_EQ(without_fractions(result.errors + result.output), without_fractions(expected));
    return;
  }
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_EQ(first_words(result.output), first_words(expected));
}

/// Runs the commands of a page in a folder, with `more` words behind each; how many there were.
int run_page(const std::string& page, const std::string& folder, const std::string& more = "") {
  int commands = 0;
  bool can_train = true;
  for (const Block& block : read_blocks(read_text(page))) {
    if (block.kind.starts_with("file ")) write_file(folder + "/" + block.kind.substr(5), block.text);
    if (!block.kind.starts_with("console")) continue;
    std::istringstream in(block.text);
    std::string line, command, expected;
    const auto check = [&] {
      if (command.empty()) return;
      ++commands;
      if (block.kind != "console" && !can_train) return;
      const ProgramResult result = run_piper(command + more, folder);
      can_train = can_train && result.errors.find("error[E804]") == std::string::npos;  // built without libtorch
      if (block.kind != "console" && !can_train) return;
      SCOPED_TRACE("$ piper " + command);
      expect_as_shown(block.kind, result, expected);
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
  return commands;
}

/// `piper …` lines in blocks that show no output, without what a line says behind them.
std::vector<std::string> plain_commands(const std::string& page) {
  std::vector<std::string> out;
  for (const Block& block : read_blocks(read_text(page))) {
    if (!block.kind.empty()) continue;
    std::istringstream in(block.text);
    for (std::string line; std::getline(in, line);) {
      if (!line.starts_with("piper ")) continue;
      if (const size_t comment = line.find("  "); comment != std::string::npos) line.resize(comment);
      out.push_back(line.substr(6));
    }
  }
  return out;
}

/// Words that stand for something of the reader's, and optional parts.
bool has_placeholder(const std::string& command) {
  return std::regex_search(command, std::regex("\\b[A-Z]{2,}[a-z]*\\b|…|[\\[|<]|\\b[AB]\\b|\\*")) &&
         !command.starts_with("explain ");
}

/// Runs the command lines of a page that need nothing of the reader's, in turn; how many there were.
int run_plain_commands(const std::string& page, const std::string& folder) {
  int commands = 0;
  for (std::string command : plain_commands(PIPER_SOURCE_DIR "/docs/" + page)) {
    if (has_placeholder(command)) continue;
    ++commands;
    SCOPED_TRACE("piper " + command);
    for (size_t at; (at = command.find("&& piper ")) != std::string::npos;)
      command.replace(at, 9, "&& '" PIPER_PROGRAM "' ");
    const ProgramResult result = run_piper(command, folder);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
  }
  return commands;
}

TEST(HowTo, CommandsRun) {
  const std::string folder = temporary_folder();
  write_file(folder + "/zb.csv", run_piper("schedule zb-h1 --ranks 2 --microbatches 4 --format csv", folder).output);
  write_file(folder + "/last.json", read_text(PIPER_SOURCE_DIR "/tests/fuzz/corpus/trace/steps.json"));
  EXPECT_GE(run_plain_commands("howto.md", folder), 7);
}

/// After what the page writes before them.
TEST(Quickstart, OtherCommandsRun) {
  const std::string folder = temporary_folder();
  for (const Block& block : read_blocks(read_text(PIPER_SOURCE_DIR "/docs/quickstart.md")))
    if (block.kind.starts_with("file ")) write_file(folder + "/" + block.kind.substr(5), block.text);
  EXPECT_EQ(run_plain_commands("quickstart.md", folder), 4);
}

/// With placeholders, all of them; a command that is none is run from now on.
TEST(OtherPages, CommandsRun) {
  for (const char* page : {"view.md", "checkpoints.md", "trace.md"}) run_plain_commands(page, temporary_folder());
}

TEST(Tutorial, RunsAsWritten) {
  EXPECT_GE(run_page(PIPER_SOURCE_DIR "/docs/tutorial.md", temporary_folder()), 5);
}

TEST(Quickstart, RunsAsWritten) {
  EXPECT_EQ(run_page(PIPER_SOURCE_DIR "/docs/quickstart.md", temporary_folder()), 3);
}

TEST(Diff, FindsWhatIsShown) {
  EXPECT_EQ(run_page(PIPER_SOURCE_DIR "/docs/diff.md", temporary_folder()), 3);
}

TEST(Search, AnswersAsShown) {
  const std::string on_any_machine = " --budget 1000000s";  // however slow it is
  EXPECT_EQ(run_page(PIPER_SOURCE_DIR "/docs/search.md", PIPER_SOURCE_DIR, on_any_machine), 2);
}

TEST(Timelines, AreDrawnAsShown) {
  EXPECT_EQ(run_page(PIPER_SOURCE_DIR "/docs/timelines.md", temporary_folder()), 1);
}

TEST(PublishedResults, AreSimulatedAsShown) {
  EXPECT_EQ(run_page(PIPER_SOURCE_DIR "/docs/published.md", PIPER_SOURCE_DIR), 2);
}

TEST(LongSequences, AreSimulatedAsShown) {
  EXPECT_EQ(run_page(PIPER_SOURCE_DIR "/docs/context.md", PIPER_SOURCE_DIR), 1);
}

TEST(Simulation, IsReportedAsShown) {
  EXPECT_EQ(run_page(PIPER_SOURCE_DIR "/docs/simulate.md", PIPER_SOURCE_DIR), 1);
}

TEST(Recovery, CostsWhatIsShown) {
  EXPECT_EQ(run_page(PIPER_SOURCE_DIR "/docs/recovery.md", PIPER_SOURCE_DIR), 2);
}

TEST(Readme, ShowsWhatThereIs) {
  EXPECT_EQ(run_page(PIPER_SOURCE_DIR "/README.md", PIPER_SOURCE_DIR), 2);
}

}  // namespace
}  // namespace piper::testing
