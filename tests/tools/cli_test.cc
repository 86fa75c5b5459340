// The command line: exit codes, help, suggestions, every form of output.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>
#include <tuple>

#include "run_piper.h"

namespace piper::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const std::string inputs = "examples/moe.toml examples/dualpipe.piper";

TEST(CommandLine, ChecksTheExample) {
  const ProgramResult result = run_piper("check " + inputs, root);
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_THAT(result.output, HasSubstr("sound: 8 devices in 4 kinds"));
  EXPECT_EQ(result.errors, "");
}

/// What comes through a pipe is gone once it was read.
TEST(CommandLine, CheckReadsScheduleAndClusterOnce) {
  const std::string said = temporary_folder() + "/said";
  for (const auto& [piped, before, after] :
       {std::tuple{"examples/dualpipe.piper", "examples/moe.toml ", ""},
        std::tuple{"clusters/h100.toml", "examples/moe.toml examples/dualpipe.piper --cluster ", " --format json"}}) {
    const auto arguments = [&](const std::string& path) { return "check " + (before + path) + after; };
    const std::string command =
        "cd '" + root + "' && cat " + piped + " | '" PIPER_PROGRAM "' " + arguments("/dev/stdin") + " >" + said;
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
    EXPECT_EQ(read_text(said), run_piper(arguments(piped), root).output) << piped;
  }
}

TEST(CommandLine, EmitsEveryForm) {
  for (const std::string form : {"schedule", "dag", "plan", "timeline", "grid", "json"}) {
    const ProgramResult result = run_piper("compile " + inputs + " --emit " + form, root);
    EXPECT_EQ(result.exit_code, 0) << form << result.errors;
    EXPECT_GT(result.output.size(), 100u) << form;
    EXPECT_EQ(result.output.find('\x1b'), std::string::npos) << "colour without a terminal in " << form;
  }
}

TEST(CommandLine, JsonIsVersioned) {
  const auto json = nlohmann::json::parse(run_piper("check --format json " + inputs, root).output);
  EXPECT_EQ(json["version"], 1);
  EXPECT_EQ(json["templates"].size(), 4u);
  int64_t sum = 0;
  for (const auto& bytes : json["templates"][0]["peak_by_category"]) sum += bytes.get<int64_t>();
  EXPECT_EQ(sum, json["templates"][0]["peak_bytes"].get<int64_t>());
}

TEST(CommandLine, SameInputSameOutput) {
  EXPECT_EQ(run_piper("compile " + inputs, root).output, run_piper("compile " + inputs, root).output);
}

TEST(CommandLine, PlanOfOneDeviceNamesItsPeers) {
  const ProgramResult result = run_piper("compile " + inputs + " --device 3", root);
  EXPECT_THAT(result.output, StartsWith("# device 3, as [2, 3]"));
  EXPECT_THAT(result.output, HasSubstr("# with [2, 3]"));
  const ProgramResult none = run_piper("compile " + inputs + " --device 8", root);
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_THAT(none.errors, HasSubstr("error[E205]"));
}

TEST(CommandLine, DumpsAfterAPass) {
  const ProgramResult result = run_piper("compile " + inputs + " --dump-after split --emit timeline", root);
  EXPECT_THAT(result.output, StartsWith("# after split\ndag "));
  const ProgramResult unknown = run_piper("compile " + inputs + " --dump-after splt", root);
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_THAT(unknown.errors, HasSubstr("did you mean \"split\"?"));
}

TEST(CommandLine, TimesPasses) {
  EXPECT_THAT(run_piper("compile " + inputs + " --emit timeline --time-passes", root).errors,
              HasSubstr("insert-updates"));
}

TEST(CommandLine, RefusedInputIsOne) {
  const std::string folder = temporary_folder();
  write_file(folder + "/bad.piper", "devices(2)\nplce({}, devices=[0])\n");
  const ProgramResult result = run_piper("check analytic:Qwen3-0.6B bad.piper", folder);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.errors,
            "bad.piper:2:1: error[E103]: unknown directive \"plce\"\n  plce({}, devices=[0])\n  ^^^^\nhelp: did you "
            "mean \"place\"?\n");
  const auto json =
      nlohmann::json::parse(run_piper("check --format json analytic:Qwen3-0.6B bad.piper", folder).errors);
  EXPECT_EQ(json["code"], "E103");
  EXPECT_EQ(json["place"]["line"], 2);
}

TEST(CommandLine, WhatDoesNotFitIsShownAndRefused) {
  const std::string folder = temporary_folder();
  write_file(folder + "/small.toml", "[device.small]\nmemory = \"4GB\"\n");
  for (const std::string command : {"check ", "compile --emit grid "}) {
    const ProgramResult result = run_piper(command + inputs + " --cluster " + folder + "/small.toml", root);
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.output, HasSubstr("[6, 7]"));
    EXPECT_THAT(result.errors, HasSubstr("error[E405]: device 6 needs 5.83 GiB"));
  }
}

TEST(CommandLine, ClustersAreFoundByName) {
  EXPECT_EQ(run_piper("check " + inputs + " --cluster h100", root).exit_code, 0);
  EXPECT_EQ(run_piper("check " + inputs + " --cluster examples/cluster.toml", root).exit_code, 0);
  const ProgramResult unknown = run_piper("check " + inputs + " --cluster h10", root);
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_THAT(unknown.errors, HasSubstr("error[E108]: no cluster is called \"h10\""));
  EXPECT_THAT(unknown.errors,
              HasSubstr("help: did you mean \"h100\"?\nhelp: shipped: a100-40, a100-80, a100-megatron, b200"));
}

TEST(CommandLine, MeasuredCostsMustBeComplete) {
  const std::string folder = temporary_folder();
  write_file(folder + "/costs", "piper costs 1\n");
  const ProgramResult result = run_piper("check " + inputs + " --costs " + folder + "/costs", root);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.errors, HasSubstr("error[E411]: the cost table has no cost of F of"));
}

TEST(CommandLine, CheckShowsTheMemoryOfASave) {
  const std::string text = run_piper("check " + inputs + " --checkpoint --processes 2", root).output;
  EXPECT_THAT(text, HasSubstr("\nprocesses  host memory of each while it saves\n[0]  "));
  const ProgramResult json = run_piper("check " + inputs + " --checkpoint --format json", root);
  EXPECT_THAT(json.output, HasSubstr("\"checkpoint\": [\n    {\n      \"processes\": [\n        0,"));
  EXPECT_EQ(run_piper("check " + inputs + " --format json", root).output.find("checkpoint"), std::string::npos);
  const ProgramResult many = run_piper("check " + inputs + " --checkpoint --processes 9", root);
  EXPECT_EQ(many.exit_code, 1);
  EXPECT_THAT(many.errors, HasSubstr("error[E105]: --processes 9: there are 8 devices"));
}

TEST(CommandLine, UsageIsTwo) {
  const std::vector<std::string> wrong = {"",
                                          "check " + inputs + " --processes 2",
                                          "chek",
                                          "check",
                                          "check --formt json " + inputs,
                                          "compile " + inputs + " --emit pln",
                                          "profile examples/train_moe.toml -o profile --backend mpi",
                                          "diff",
                                          "diff examples/train_moe.toml --tolerance nan",
                                          "diff examples/train_moe.toml --tolerance -1",
                                          "diff examples/train_moe.toml --steps 0",
                                          "diff examples/train_moe.toml --find-nan --against a.piper",
                                          "diff examples/train_moe.toml --find-nan --tolerance 1"};
  for (const std::string& arguments : wrong) {
    const ProgramResult result = run_piper(arguments, root);
    EXPECT_EQ(result.exit_code, 2) << arguments;
    EXPECT_THAT(result.errors, HasSubstr("--help")) << arguments;
  }
  EXPECT_THAT(run_piper("chek", root).errors,
              StartsWith("piper: there is no command \"chek\"\nhelp: did you mean \"check\"?\n"));
  EXPECT_THAT(run_piper("foo", root).errors, HasSubstr("help: commands: compile, check, "));
  EXPECT_EQ(run_piper("foo", root).exit_code, 2);
  for (const std::string asked : {"chek --help", "--help chek", "chek -h", "chek --version", "chek check"}) {
    const ProgramResult result = run_piper(asked, root);
    EXPECT_EQ(result.exit_code, 2) << asked;
    EXPECT_EQ(result.output, "") << asked;
    EXPECT_THAT(result.errors, StartsWith("piper: there is no command \"chek\"\nhelp: did you mean \"check\"?\n"))
        << asked;
  }
  EXPECT_EQ(run_piper("trace dif --help", root).errors,
            "piper: there is no command \"dif\" of piper trace\nhelp: did you mean \"diff\"?\n"
            "help: piper trace --help lists all commands\n");
  EXPECT_THAT(run_piper("check --formt json " + inputs, root).errors, HasSubstr("did you mean \"--format\"?"));
}

/// Names at the beginnings of the lines below SUBCOMMANDS.
std::vector<std::string> subcommands_in(const std::string& help) {
  std::vector<std::string> out;
  std::istringstream in(help);
  bool listed = false;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("SUBCOMMANDS") || line.starts_with("Subcommands"))
      listed = true;
    else if (line.empty() || line[0] != ' ')
      listed = false;
    else if (listed && line.starts_with("  ") && line[2] != ' ')
      out.push_back(line.substr(2, line.find(' ', 2) - 2));
  }
  return out;
}

/// Every command there is, and those below it; how many.
int expect_help(const std::string& command) {
  SCOPED_TRACE(command);
  const ProgramResult result = run_piper(command + " --help", root);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.output, HasSubstr("Example"));
  int out = 1;
  for (const std::string& below : subcommands_in(result.output))
    out += expect_help(command.empty() ? below : command + " " + below);
  return out;
}

TEST(CommandLine, HelpEverywhere) {
  EXPECT_GE(expect_help(""), 35);
  EXPECT_THAT(run_piper("--version", root).output, StartsWith("piper "));
}

TEST(CommandLine, DoctorSaysWhatThereIs) {
  const ProgramResult text = run_piper("doctor", root);
  EXPECT_EQ(text.exit_code, 0) << text.errors;
  for (const char* line : {": piper ", "\n  cores ", "\n  memory ", "\n  PyTorch ", "\n  Python ", "\n  ports "})
    EXPECT_THAT(text.output, HasSubstr(line));
  const auto json = nlohmann::json::parse(run_piper("doctor --format json", root).output);
  EXPECT_EQ(json["version"], 1);
  ASSERT_EQ(json["hosts"].size(), 1u);
  EXPECT_GT(json["hosts"][0]["cores"], 0);
  EXPECT_GT(json["hosts"][0]["memory"]["bytes"], 0);
  EXPECT_TRUE(json["links"].empty());
}

/// What is missing is said with a way out.
TEST(CommandLine, DoctorSaysWhatWouldNotWork) {
  const std::string folder = temporary_folder();
  const std::string command =
      "cd '" + folder + "' && CXX=/no/such PIPER_PYTHON=/no/python '" PIPER_PROGRAM "' doctor >said";
  ASSERT_EQ(std::system(command.c_str()), 0);
  EXPECT_THAT(read_text(folder + "/said"),
              HasSubstr("would not work: --kernels inductor: there is no C++ compiler\n    help: "));
  EXPECT_THAT(read_text(folder + "/said"), HasSubstr("/no/python cannot be started"));
  EXPECT_EQ(run_piper("doctor --backend mpi --hosts hosts", folder).exit_code, 2);
  EXPECT_EQ(run_piper("doctor --hosts none", folder).exit_code, 1);
}

TEST(CommandLine, HelpOfACommandIsItsHelp) {
  for (const std::string command : {"check", "trace diff", "models"})
    EXPECT_EQ(run_piper("help " + command, root).output, run_piper(command + " --help", root).output);
  EXPECT_EQ(run_piper("help", root).output, run_piper("--help", root).output);
  const ProgramResult unknown = run_piper("help trace dif", root);
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.errors, HasSubstr("did you mean \"diff\"?"));
}

TEST(CommandLine, ExplainsErrors) {
  EXPECT_EQ(run_piper("explain E405", root).output, read_text(root + "/docs/errors/E405.md"));
  EXPECT_EQ(run_piper("explain e405", root).output, read_text(root + "/docs/errors/E405.md"));
  const ProgramResult unknown = run_piper("explain E499", root);
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_THAT(unknown.errors, HasSubstr("there is no error E499"));
  EXPECT_EQ(run_piper("explain examples/moe.toml", root).exit_code, 2) << "a model needs a schedule";
}

TEST(CommandLine, ListsWhatThereIs) {
  EXPECT_THAT(run_piper("models", root).output, HasSubstr("\nQwen3-8B "));
  EXPECT_THAT(run_piper("clusters", root).output, AllOf(HasSubstr("\nh100 "), Not(HasSubstr("e+"))));
  EXPECT_EQ(run_piper("schedules", root).output, run_piper("schedule --list", root).output);
}

TEST(CommandLine, DrawsTimelines) {
  const std::string drawn = run_piper("schedule 1f1b --ranks 2 --microbatches 3 --format svg --width 700", root).output;
  EXPECT_THAT(drawn, StartsWith("<svg "));
  EXPECT_THAT(drawn, HasSubstr("width=\"700\""));
  EXPECT_THAT(drawn, HasSubstr(">device 1</text>"));
  EXPECT_EQ(drawn.find(" ms<"), std::string::npos) << "a timeline has no seconds";
  EXPECT_EQ(run_piper("schedule 1f1b --ranks 2 --microbatches 3 --width 700", root).exit_code, 2);
}

TEST(CommandLine, PrintsTimelines) {
  EXPECT_THAT(run_piper("schedule --list", root).output, HasSubstr("dualpipev"));
  EXPECT_EQ(run_piper("schedule 1f1b --ranks 2 --microbatches 3 --format csv", root).output,
            "0F0,0F1,0B0,0F2,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n");
  EXPECT_EQ(run_piper("schedule", root).exit_code, 2);
  EXPECT_EQ(run_piper("schedule dualpipev --ranks 4 --microbatches 7", root).exit_code, 1);
  EXPECT_THAT(run_piper("schedule zb-1p --ranks 2 --microbatches 4 --cost F=1,J=2", root).errors,
              HasSubstr("unknown cost \"J\""));
}

TEST(CommandLine, ListSchedulesUnevenStages) {
  const std::string request = "schedule list --ranks 4 --microbatches 16 --stages-per-rank 2 ";
  const ProgramResult csv = run_piper(request + "--cost stages=1:1:1:1:1:1:1:1.5 --format csv", root);
  EXPECT_EQ(csv.errors, "makespan 120, lower bound 120 (1.000)\n");
  const std::string last = "F=1:1:1:1:1:1:1:1.5,I=1:1:1:1:1:1:1:1.5,W=1:1:1:1:1:1:1:1.5";
  EXPECT_EQ(run_piper(request + "--cost " + last + " --format csv", root).output, csv.output);
  EXPECT_THAT(run_piper("schedule list --ranks 2 --microbatches 4 --placement two-way --format grid", root).output,
              HasSubstr("\nmakespan "));
  EXPECT_THAT(run_piper("schedule list --ranks 2 --microbatches 2 --backward whole --format csv", root).output,
              HasSubstr("1F0,1B0,1F1,1B1"));
}

TEST(CommandLine, RefusesWrongCosts) {
  const auto errors = [](const std::string& arguments) {
    return run_piper("schedule list --ranks 2 --microbatches 4 " + arguments, root).errors;
  };
  EXPECT_THAT(errors("--cost F=1:1:2"), HasSubstr("costs of 3 stages are given; there are 2"));
  EXPECT_THAT(errors("--cost F=1:2,I=1:2:3"), HasSubstr("error[E104]: 3 stages here, 2 there"));
  EXPECT_THAT(errors("--cost F=1,F=2"), HasSubstr("F is given twice"));
  EXPECT_THAT(errors("--cost F=1:-2"), HasSubstr("F must be a number of at least 0"));
  EXPECT_THAT(errors("--cost comm=1:2"), HasSubstr("comm is the same for all stages"));
  EXPECT_THAT(errors("--cost overlap=1"), HasSubstr("unknown cost \"overlap\""));
  EXPECT_THAT(run_piper("schedule 1f1b --ranks 2 --microbatches 4 --placement line", root).errors,
              HasSubstr("its own placement"));
}

/// What `schedule` prints as a schedule compiles to the timeline it came from.
TEST(CommandLine, TimelinesCompileToThemselves) {
  const std::string folder = temporary_folder();
  write_file(folder + "/m.toml",
             "[model]\narch = \"llama3\"\nhidden = 64\nlayers = 8\nheads = 4\nffn = 128\nvocab = 128\n[step]\nbatch = "
             "16\nsequence = 16\n");
  for (const std::string name :
       {"gpipe", "1f1b", "interleaved-1f1b", "looped-bfs", "zb-h1", "interleaved-zb", "zb-h2", "zb-1p", "zb-2p", "zb-v",
        "dualpipe", "dualpipev", "1f1b-v", "v-half", "v-min", "list", "list --placement w --stages-per-rank 2"}) {
    const std::string request = "schedule " + name + " --ranks 4 --microbatches 8 --format ";
    write_file(folder + "/s.piper", run_piper(request + "piper", folder).output);
    const ProgramResult compiled = run_piper("compile m.toml s.piper --emit timeline", folder);
    EXPECT_EQ(compiled.exit_code, 0) << name << compiled.errors;
    EXPECT_EQ(compiled.output, run_piper(request + "timeline", folder).output) << name;
  }
}

/// Where a program that draws is installed; otherwise both are named.
TEST(CommandLine, CardsAsPixels) {
  const std::string trace = root + "/tests/fuzz/corpus/trace/steps.json", folder = temporary_folder();
  const std::string draw = "view " + trace + " --card -o card.png";
  const ProgramResult drawn = run_piper(draw, folder);
  if (drawn.exit_code == 0) {
    const std::string bytes = read_text(folder + "/card.png");
    ASSERT_GT(bytes.size(), 1000u);
    EXPECT_THAT(bytes, StartsWith("\x89PNG\r\n"));
    EXPECT_EQ(bytes.substr(16, 4), std::string("\0\0\x04\xb0", 4)) << "1200 pixels wide";
  }
  const std::string none = "cd '" + folder + "' && PATH=/no/such '" PIPER_PROGRAM "' " + draw + " 2>said";
  EXPECT_NE(std::system(none.c_str()), 0);
  EXPECT_THAT(read_text(folder + "/said"), HasSubstr("neither rsvg-convert nor chromium is installed"));
  EXPECT_EQ(run_piper("view " + trace + " -o page.png", folder).exit_code, 2);
}

TEST(CommandLine, ComparesTraces) {
  const std::string trace = "tests/fuzz/corpus/trace/steps.json";
  const ProgramResult same = run_piper("trace diff " + trace + " " + trace, root);
  EXPECT_EQ(same.exit_code, 0) << same.errors;
  EXPECT_THAT(same.output, HasSubstr("difference +0.000 ms (+0.0 %)"));
  const ProgramResult none = run_piper("trace diff --format json missing.json " + trace, root);
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_EQ(nlohmann::json::parse(none.errors)["code"], "E108");
  EXPECT_EQ(run_piper("trace", root).exit_code, 2);
  EXPECT_THAT(run_piper("trace diff --formt json a b", root).errors, HasSubstr("piper trace diff --help"));
}

TEST(CommandLine, CompletionIsBash) {
  const std::string folder = temporary_folder();
  write_file(folder + "/completion", run_piper("completion bash", root).output);
  const std::string script =
      "bash -c 'source completion; COMP_WORDS=(piper com); COMP_CWORD=1; _piper; echo ${COMPREPLY[@]}' > words";
  ASSERT_EQ(std::system(("cd " + folder + " && " + script).c_str()), 0);
  EXPECT_EQ(read_text(folder + "/words"), "compile compare completion\n");
}

/// Their shells are not installed where tests run, so the words are looked for.
TEST(CommandLine, OtherShellsHaveTheSameWords) {
  const std::string zsh = run_piper("completion zsh", root).output, fish = run_piper("completion fish", root).output;
  EXPECT_THAT(zsh, StartsWith("#compdef piper\n"));
  EXPECT_THAT(zsh, HasSubstr("'check:Prove a schedule sound"));
  EXPECT_THAT(zsh, HasSubstr("    view) options=(--help "));
  EXPECT_THAT(fish, HasSubstr("-a check -d 'Prove a schedule sound"));
  EXPECT_THAT(fish, HasSubstr("'__fish_seen_subcommand_from view' -l card\n"));
  EXPECT_THAT(fish, HasSubstr("analytic:Qwen3-8B\n"));
  EXPECT_EQ(run_piper("completion tcsh", root).exit_code, 2);
}

TEST(CommandLine, CompletionKnowsTheBuiltInModels) {
  const std::string folder = temporary_folder();
  write_file(folder + "/completion", run_piper("completion bash", root).output);
  const auto completed = [&](const std::string& line, const std::string& words) {
    const std::string script = "source completion; COMP_LINE=\"" + line + "\"; COMP_POINT=${#COMP_LINE}; COMP_WORDS=(" +
                               words + "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _piper; echo ${COMPREPLY[@]}";
    EXPECT_EQ(std::system(("cd " + folder + " && bash -c '" + script + "' > words").c_str()), 0);
    return read_text(folder + "/words");
  };
  EXPECT_EQ(completed("piper check ana", "piper check ana"), "analytic:\n");
  EXPECT_EQ(completed("piper check analytic:Qwen3-8", "piper check analytic : Qwen3-8"), "Qwen3-8B\n");
  EXPECT_NE(completed("piper check analytic:", "piper check analytic :").find("Mixtral-8x7B"), std::string::npos);
}

}  // namespace
}  // namespace piper::testing
