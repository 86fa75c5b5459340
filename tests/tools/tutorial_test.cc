// Pages run: files are written, commands executed, and what they print is what the page shows. With PIPER_UPDATE=1 in
// the environment pages are given what came out instead: read the diff.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "run_piper.h"

namespace piper::testing {
namespace {

/// A fenced block: ```file NAME, or ```console with `$ piper …` lines and their output; a line … stands for any
/// lines. ```console measured: the output has measured times, so only the words of its first line are compared,
/// progress left out. ```console rounded: other processors round otherwise, so any fraction stands for any other.
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

/// The words of the first line that is no progress, and does not depend on how many cores there are.
std::string first_words(const std::string& text) {
  std::istringstream in(text);
  std::string line;
  while (std::getline(in, line) &&
         std::regex_search(line, std::regex("^step +[0-9]+/|^[0-9]+ devices? of .* share .* core"))) {
  }
  line = std::regex_replace(line, std::regex("plan [0-9a-f]{16}"), "plan N");  // of measured costs
  return std::regex_replace(line, std::regex("[0-9][0-9.]* *(ns|us|ms|s|B|KiB|MiB|GiB)?"), "N");
}

std::string without_fractions(const std::string& text) {
  return std::regex_replace(text, std::regex("[0-9]+(\\.[0-9]+(e[-+][0-9]+)?|e[-+][0-9]+)"), "N");
}

const std::string omitted = "…\n";

/// Whether the text is that of a page in which lines … stand for any lines.
bool has_parts(const std::string& text, const std::string& expected) {
  size_t from = 0, at = 0;
  for (size_t end; (end = expected.find(omitted, from)) != std::string::npos; from = end + omitted.size()) {
    const std::string part = expected.substr(from, end - from);
    const size_t found = text.find(part, at);
    if (found == std::string::npos || (from == 0 && found != 0)) return false;
    at = found + part.size();
  }
  return text.substr(at).ends_with(expected.substr(from));
}

TEST(Pages, LinesMayBeLeftOut) {
  EXPECT_TRUE(has_parts("a\nb\nc\n", "a\n…\nc\n"));
  EXPECT_TRUE(has_parts("a\nb\nc\n", "…\nb\n…\n"));
  EXPECT_FALSE(has_parts("a\nb\nc\n", "b\n…\n"));
  EXPECT_FALSE(has_parts("a\nb\nc\n", "…\nb\n"));
  EXPECT_FALSE(has_parts("a\nb\nc\n", "…\nc\n…\nb\n…\n"));
}

void expect_as_shown(const std::string& kind, const ProgramResult& result, const std::string& expected) {
  if (kind == "console") {
    if (expected.find(omitted) == std::string::npos)
      EXPECT_EQ(result.errors + result.output, expected);
    else
      EXPECT_TRUE(has_parts(result.errors + result.output, expected)) << result.errors << result.output;
    return;
  }
  if (kind == "console rounded") {
    EXPECT_EQ(without_fractions(result.errors + result.output), without_fractions(expected));
    return;
  }
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_EQ(first_words(result.output), first_words(expected));
}

/// Puts what came out in the place of what the page shows below a command.
void update(const std::string& page, const std::string& command, const std::string& shown, const std::string& found) {
  std::string text = read_text(page);
  const std::string before = "$ piper " + command + "\n";
  const size_t at = text.find(before + shown);
  ASSERT_NE(at, std::string::npos);
  write_file(page, text.replace(at + before.size(), shown.size(), found));
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
      if (std::getenv("PIPER_UPDATE") && block.kind == "console" && expected.find(omitted) == std::string::npos &&
          result.errors + result.output != expected)
        return update(page, command, expected, result.errors + result.output);
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

/// The text of a command's help; empty if there is no such command.
const std::string& help_of(const std::string& command) {
  static std::map<std::string, std::string> known;
  const auto [found, fresh] = known.try_emplace(command);
  if (fresh) {
    const ProgramResult result = run_piper("help " + command, PIPER_SOURCE_DIR);
    if (result.exit_code == 0) found->second = result.output;
  }
  return found->second;
}

bool has_option(const std::string& help, const std::string& option) {
  return std::regex_search(help, std::regex("[ ,!]" + option + "(?![a-z-])"));
}

std::vector<std::string> matches(const std::string& text, const std::regex& what, size_t group = 0) {
  std::vector<std::string> out;
  for (auto m = std::sregex_iterator(text.begin(), text.end(), what); m != std::sregex_iterator(); ++m)
    out.push_back((*m)[group]);
  return out;
}

const std::regex option_word("--[a-z][a-z-]*");

/// `piper COMMAND …` of a page, in blocks and in sentences; what follows && or a comment is not part of it.
std::vector<std::string> shown_commands(const std::string& text) {
  std::vector<std::string> out =
      matches(text, std::regex("(?:^|[`\n] *\\$? ?|&& |(?:mpirun|srun)[^`\n]*? )piper ([a-z]+[^`\n#&]*)"), 1);
  std::erase_if(out, [](const std::string& shown) { return std::regex_match(shown, std::regex("[a-z]+ [0-9]+ *")); });
  return out;  // without the first lines of text formats: `piper costs 1`
}

/// What is wrong with them, placeholders or not: unknown commands and options.
std::string wrong_commands(const std::string& text) {
  static const std::set<std::string> with_parts = {"checkpoint", "data", "trace", "kernels"};
  std::string out;
  for (const std::string& shown : shown_commands(text)) {
    std::istringstream words(shown);
    std::string command, part;
    words >> command >> part;
    if (with_parts.contains(command) && std::regex_match(part, std::regex("[a-z]+"))) command += " " + part;
    std::string help = help_of(command);
    if (command == "launch") help += help_of("train");  // which it starts
    if (help.empty()) out += "no command: piper " + shown + "\n";
    for (const std::string& option : matches(shown, option_word))
      if (!help.empty() && !has_option(help, option)) out += "no option " + option + ": piper " + shown + "\n";
  }
  return out;
}

std::vector<std::string> pages() {
  std::vector<std::string> out = {PIPER_SOURCE_DIR "/README.md"};
  for (const auto& entry : std::filesystem::directory_iterator(PIPER_SOURCE_DIR "/docs"))
    if (entry.path().extension() == ".md") out.push_back(entry.path().string());
  return out;
}

TEST(EveryPage, CommandsAndTheirOptionsExist) {
  size_t commands = 0;
  for (const std::string& page : pages()) {
    const std::string text = read_text(page);
    EXPECT_EQ(wrong_commands(text), "") << page;
    commands += shown_commands(text).size();
  }
  EXPECT_GT(commands, 150u);
  EXPECT_THAT(wrong_commands("`piper tran x.toml`"), ::testing::HasSubstr("no command: piper tran x.toml"));
  EXPECT_THAT(wrong_commands("```\n$ piper trace diff a b --fromat json\n"),
              ::testing::HasSubstr("no option --fromat"));
  EXPECT_THAT(wrong_commands("srun -n 4 piper train x.toml --backends mpi"),
              ::testing::HasSubstr("no option --backends"));
}

/// `--option` alone is of one command at least.
TEST(EveryPage, OptionsInSentencesExist) {
  static const std::set<std::string> of_others = {"--no-build-isolation", "--overlap-moe-expert-parallel-comm"};
  std::string all;
  for (const char* command : {"check",
                              "compile",
                              "explain",
                              "schedule",
                              "simulate",
                              "compare",
                              "calibrate",
                              "search",
                              "train",
                              "launch",
                              "diff",
                              "profile",
                              "kernels build",
                              "doctor",
                              "trace diff",
                              "trace flight",
                              "plot",
                              "view",
                              "data prepare",
                              "checkpoint list",
                              "checkpoint show",
                              "checkpoint verify",
                              "checkpoint diff",
                              "checkpoint export"}) {
    ASSERT_NE(help_of(command), "") << command;
    EXPECT_EQ(wrong_commands(help_of(command)), "");  // the examples in it
    all += help_of(command);
  }
  for (const std::string& page : pages())
    for (const std::string& option : matches(read_text(page), std::regex("`(--[a-z][a-z-]*)"), 1))
      EXPECT_TRUE(has_option(all, option) || of_others.contains(option)) << page << ": " << option;
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

TEST(Clusters, CommandsRun) {
  const std::string folder = temporary_folder();
  std::filesystem::create_directory_symlink(root + "/examples", folder + "/examples");
  std::string steps = "model,schedule,batch,seconds\n";
  for (const int batch : {32, 64, 128, 256})
    steps += fmt::format("examples/moe.toml,examples/dualpipe.piper,{},{}\n", batch, 0.01 + 0.001 * batch);
  write_file(folder + "/steps.csv", steps);
  EXPECT_EQ(run_plain_commands("cluster.md", folder), 4);
}

/// The costs that the page shows are read, names and all: then those of other chunks are missing.
TEST(Clusters, CostsAreReadAsShown) {
  const std::string folder = temporary_folder();
  write_file(folder + "/small.toml",
             "[model]\nname = \"small\"\narch = \"llama3\"\nlayers = 2\nhidden = 64\nheads = 4\nffn = 128\nvocab = "
             "256\n[step]\nbatch = 4\n"
             "sequence = 16\n");
  write_file(folder + "/one.piper", "devices(1)\nplace({}, devices=[0])\n");
  for (const Block& block : read_blocks(read_text(root + "/docs/cluster.md")))
    if (block.text.starts_with("piper costs ")) write_file(folder + "/costs.txt", block.text);
  const ProgramResult result = run_piper("check small.toml one.piper --costs costs.txt", folder);
  EXPECT_THAT(result.errors,
              ::testing::HasSubstr("error[E411]: the cost table has no cost of F of embed on 4 samples"));
}

TEST(Checkpoints, TakeTheMemoryThatIsShown) {
  EXPECT_EQ(run_page(root + "/docs/checkpoints.md", root), 1);
}

/// Beside the files that its data are.
TEST(TrainingPage, RunsAsWritten) {
  const std::string folder = temporary_folder();
  std::filesystem::create_directory(folder + "/run");
  std::filesystem::create_directory_symlink(root + "/docs", folder + "/docs");
  std::filesystem::create_symlink(root + "/README.md", folder + "/README.md");
  EXPECT_EQ(run_page(root + "/docs/training.md", folder + "/run"), 3);
}

/// With placeholders, all of them; a command that is none is run from now on.
TEST(OtherPages, CommandsRun) {
  for (const char* page : {"view.md", "checkpoints.md", "trace.md"}) run_plain_commands(page, temporary_folder());
}

TEST(Tutorial, RunsAsWritten) {
  EXPECT_GE(run_page(PIPER_SOURCE_DIR "/docs/tutorial.md", temporary_folder()), 5);
}

TEST(Quickstart, RunsAsWritten) {
  EXPECT_EQ(run_page(PIPER_SOURCE_DIR "/docs/quickstart.md", temporary_folder()), 5);
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
