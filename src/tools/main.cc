// The `piper` program: reads the command line and hands over to a command.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>

#include "base/bytes.h"
#include "base/invariant.h"
#include "base/suggest.h"
#include "base/time_text.h"
#include "model/analytic/builtin_models.h"
#include "tools/calibrate_command.h"
#include "tools/checkpoint_options.h"
#include "tools/commands.h"
#include "tools/completion.h"
#include "tools/data_options.h"
#include "tools/list_command.h"
#include "tools/number_option.h"
#include "tools/on_choice.h"
#include "tools/plot_command.h"
#include "tools/search_command.h"
#include "tools/simulate_command.h"
#include "tools/trace_options.h"
#include "tools/train_command.h"
#include "tools/train_options.h"

namespace piper {
namespace {

int terminal_columns() {
  winsize size{};
  return isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 100;
}

/// What a step depends on besides model and schedule, and how results are printed.
void add_step(CLI::App& app, CompileInput& input) {
  app.add_option("--cluster", input.cluster,
                 "Cluster: a shipped one such as h100, or a file (.toml): costs, and the memory of a device");
  app.add_option("--costs", input.costs, "Measured costs of all computations, instead of the cluster's formulas");
  app.add_option("--batch", input.step.batch, "Samples of a step, instead of the model's")
      ->check(whole_number(1, 1'000'000'000));
  app.add_option("--sequence", input.step.sequence, "Tokens of a sample, instead of the model's")
      ->check(whole_number(1, 1'000'000'000));
  app.add_option("--format", input.format, "Output format of results and errors: text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  app.add_flag("--color,!--no-color", input.color, "Colours (default: only on a terminal)");
  app.add_option("--columns", input.columns, "Width of pictures (default: the terminal's)")
      ->check(whole_number(40, 10000));
}

CLI::Option* add_model(CLI::App& app, CompileInput& input) {
  return app.add_option("MODEL", input.model, "Model file, configuration (.toml), or analytic:NAME");
}

void add_input(CLI::App& app, CompileInput& input) {
  add_model(app, input)->required();
  app.add_option("SCHEDULE", input.schedule, "Schedule file: text, or the original Piper's .json");
  app.add_option("--timeline", input.timeline,
                 "File with the order of passes, such as PyTorch's CSV; without SCHEDULE also the stages");
  app.add_option("--with", input.instead,
                 "Replace the schedule's directive of the same name: 'mesh(dp=2, pp=4)' (may be repeated)")
      ->allow_extra_args(false);
  app.add_flag("--evaluation", input.evaluation,
               "Compile the plan of an evaluation: the schedule without backward and updates");
  add_step(app, input);
  app.parse_complete_callback([&input] {
    if (input.schedule.empty() && input.timeline.empty()) throw CLI::RequiredError("SCHEDULE (or --timeline)");
  });
}

void add_simulation(CLI::App& app, SimulationInput& input) {
  app.add_option(
      "--what-if", input.what_if,
      "Change the cluster: bandwidth=x2,compute=x0.5,memory=…,latency=…,issue=…; or one link, infiniband=x2");
  app.add_flag("--all-devices", input.all_devices, "Simulate every device, not one of each kind");
  app.add_flag("--free-links", input.free_links, "Let communications that share links not slow each other down");
  app.add_option("--routing", input.routing,
                 "How tokens choose experts without slots: balanced (the default), or skewed, zipf:1.2; or as in a "
                 "run, trace:FILE of its metrics");
}

void add_simulate(CLI::App& app, SimulateCommand& command) {
  add_input(app, command.input);
  app.get_option("MODEL")->required(false);
  add_simulation(app, command.simulation);
  app.add_flag("--hints,!--no-hints", command.hints, "Show what would make the step faster (default)");
  app.add_option("--trace", command.trace, "Write when every operation ran: Chrome's trace events, for any viewer");
  app.add_option("--cost", command.costs,
                 "Times of a timeline without MODEL: F=1,I=1,W=1,comm=0; overlap=2 is the time of an overlapped pair");
  CLI::Option* fail =
      app.add_option("--fail", command.fail,
                     "What a step costs without these devices, and how it goes on: 6, 6,7; each: any single one");
  for (const char* other : {"--trace", "--what-if", "--all-devices", "--free-links", "--evaluation"})
    fail->excludes(app.get_option(other));
  app.callback([&] {
    const bool bare = command.input.model.empty();
    if (bare && command.input.timeline.empty()) throw CLI::RequiredError("MODEL (or --timeline)");
    if (!bare && !command.costs.empty()) throw CLI::ValidationError("--cost", "goes with --timeline without MODEL");
    if (bare && !command.trace.empty()) throw CLI::ValidationError("--trace", "needs a MODEL");
    if (bare && !command.fail.empty()) throw CLI::ValidationError("--fail", "needs a MODEL");
  });
  app.footer(
      "Examples:\n  piper simulate examples/moe.toml examples/dualpipe.piper --cluster h100\n"
      "  piper simulate examples/moe.toml examples/dualpipe.piper --cluster h100 --fail each\n"
      "  piper simulate --timeline zb.csv --cost F=1,I=1,W=1,comm=0 --format json");
}

void add_compare(CLI::App& app, CompareCommand& command) {
  add_model(app, command.input)->required();
  app.add_option("SCHEDULE", command.schedules, "Schedule files")->required();
  add_step(app, command.input);
  add_simulation(app, command.simulation);
  app.footer("Example:\n  piper compare examples/moe.toml a.piper b.piper --cluster h100");
}

void add_calibrate(CLI::App& app, CalibrateCommand& command) {
  app.add_option("STEPS", command.steps, "Measured steps (.csv): set,model,schedule,batch,sequence,seconds")
      ->required();
  app.add_option("--cluster", command.cluster, "Cluster to start from: a shipped one, or a file (.toml)")->required();
  CLI::Option* out = app.add_option("-o,--out", command.out, "Write the fitted cluster, with the remaining error");
  app.add_option("--folds", command.folds, "Cross-validate with this many folds: fit to one, predict the others")
      ->check(whole_number(2, 100));
  app.add_flag("--check", command.check, "Fit nothing; only report the cluster's error on the measurements")
      ->excludes(out);
  app.add_option("--format", command.format, "Output format of results and errors: text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  app.footer(
      "Examples:\n  piper calibrate steps.csv --cluster a100-80 -o mine.toml\n"
      "  piper calibrate steps.csv --cluster mine.toml --check");
}

/// `30s`, `2min`, `30`: seconds.
std::optional<double> parse_seconds(const std::string& text) {
  const size_t end = text.find_last_of("0123456789.") + 1;
  const std::string number = text.substr(0, end), unit = text.substr(end);
  const auto seconds = seconds_in(unit.empty() ? "s" : unit);
  if (!seconds || !any_number(0, 1e6)(number).empty()) return std::nullopt;
  return std::stod(number) * *seconds;
}

void add_search(CLI::App& app, SearchCommand& command) {
  add_model(app, command.input)->required();
  add_step(app, command.input);
  app.get_option("--cluster")->required();
  app.add_option("--devices", command.devices, "Devices of the cluster that the step runs on")
      ->required()
      ->check(whole_number(1, 1 << 20));
  app.add_option_function<std::string>(
         "--memory", [&](const std::string& text) { command.memory = parse_bytes(text); },
         "Memory that a step may use on each device, such as 70GB (default: all)")
      ->check(
          [](const std::string& text) { return parse_bytes(text) ? "" : text + " is no size such as 70GB or 64GiB"; });
  const auto is_time = [](const std::string& text) {
    return parse_seconds(text) ? "" : text + " is no time such as 60s or 2min";
  };
  app.add_option_function<std::string>(
         "--budget", [&](const std::string& text) { command.budget = *parse_seconds(text); },
         "Work of the search, such as 60s or 2min: counted, about seconds on two cores; then the best so far is the "
         "answer (default: 30s)")
      ->check(is_time);
  app.add_option_function<std::string>(
         "--time", [&](const std::string& text) { command.time = *parse_seconds(text); },
         "Time limit, whatever work is left (default: the budget)")
      ->check(is_time);
  app.add_option("--fix", command.fixed,
                 "Directive that the schedule must contain, such as 'mesh(tp=8)' (may be repeated)")
      ->allow_extra_args(false);
  app.add_option("--try", command.tried, "Schedule file to compare with (may be repeated)")->allow_extra_args(false);
  app.add_option("-o,--output", command.output, "Write the best schedule to this file");
  app.add_option("--plot", command.plot,
                 "Plot time against memory of all simulated schedules: a picture (.svg) or a page (.html)");
  app.footer(
      "Examples:\n  piper search analytic:Llama-3-8B --cluster h100 --devices 64 --batch 256\n"
      "  piper search analytic:Qwen3-30B-A3B --cluster h100 --devices 64 --batch 512 --memory 70GB -o best.piper\n"
      "  piper search examples/moe.toml --cluster h100 --devices 8 --fix 'mesh(pp=4)' --try examples/dualpipe.piper");
}

void add_timeline(CLI::App& app, ScheduleCommand& command) {
  app.add_option("NAME", command.name, "Name of a timeline; --list shows them");
  CLI::Option* from =
      app.add_option("--from", command.from, "File instead of NAME: PyTorch's CSV, the notation, a schedule's orders");
  app.add_flag("--list", command.list, "List all timelines with placement, legal sizes, bubble and memory");
  app.add_option("--ranks", command.request.ranks, "Pipeline ranks")->check(whole_number(1, 1'000'000));
  app.add_option("--microbatches", command.request.microbatches, "Microbatches of a step")
      ->check(whole_number(1, 1'000'000));
  app.add_option("--stages-per-rank", command.request.stages_per_rank, "Stages on every rank (default: the timeline's)")
      ->check(whole_number(1, 1000));
  app.add_option("--group", command.request.group, "Microbatches per group of an interleaved timeline")
      ->check(whole_number(1, 1'000'000));
  app.add_option("--memory-limit", command.request.memory_limit,
                 "Maximum activations that a rank keeps, in forwards of one stage")
      ->check(any_number(0, 1e9));
  app.add_option("--placement", command.placement,
                 "For list: which rank runs which stage (default: line for one stage per rank, v for two, else loop)")
      ->check(CLI::IsMember({"line", "loop", "v", "w", "two-way"}));
  app.add_option("--backward", command.backward, "For list: run backward as I and W (split), or in one piece (whole)")
      ->check(CLI::IsMember({"split", "whole"}))
      ->capture_default_str();
  app.add_option("--cost", command.costs,
                 "Times such as F=1,I=1,W=1,comm=0; by stage: F=1:1:1:2, or as factors: stages=1:1:1:1.5");
  app.add_option("--format", command.format, "Output format")
      ->check(CLI::IsMember({"timeline", "csv", "piper", "json", "grid", "svg"}))
      ->capture_default_str();
  app.add_option("--width", command.width, "Width of an svg in pixels (default: what its labels need)")
      ->check(whole_number(300, 20'000));
  app.add_flag("--communication", command.communication, "Add sends and receives, in the formats timeline and csv");
  app.add_flag("--color,!--no-color", command.color, "Colours (default: only on a terminal)");
  app.add_option("--columns", command.columns, "Width of pictures (default: the terminal's)")
      ->check(whole_number(40, 10000));
  for (const char* other : {"NAME", "--ranks", "--microbatches", "--stages-per-rank", "--group", "--memory-limit"})
    from->excludes(app.get_option(other));
  app.footer(
      "Examples:\n  piper schedule --list\n  piper schedule dualpipev --ranks 4 --microbatches 8 --format grid\n"
      "  piper schedule list --ranks 4 --microbatches 8 --stages-per-rank 2 --cost stages=1:1:1:1:1:1:1:1.5\n"
      "  piper schedule --from zb.csv --format grid\n  piper schedule zb_v --ranks 4 --microbatches 8 --format svg > "
      "zb_v.svg");
  app.callback([&] {
    if (!command.list && command.name.empty() && command.from.empty())
      throw CLI::RequiredError("NAME (or --from, or --list)");
    if (command.width && command.format != "svg") throw CLI::ValidationError("--width", "goes with --format svg");
    if (command.communication && command.format != "csv" && command.format != "timeline")
      throw CLI::ValidationError("--communication", "goes with --format csv or timeline");
  });
}

CompileInput usual_input() {
  CompileInput input;
  input.color = isatty(STDOUT_FILENO) && std::getenv("NO_COLOR") == nullptr;
  input.columns = terminal_columns();
  return input;
}

/// `piper trace diff`
std::string command_of(const CLI::App& app) {
  return app.get_parent() ? command_of(*app.get_parent()) + " " + app.get_name() : app.get_name();
}

/// The commands below an app.
std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

/// Names of all options and commands below an app, for "did you mean" and completion.
std::vector<std::string> known_words(const CLI::App& app) {
  std::vector<std::string> words;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) words.push_back("--" + name);
  for (const CLI::App* sub : commands_of(app)) words.push_back(sub->get_name());
  return words;
}

/// Of a word where a command must stand.
int no_such_command(const CLI::App& app, const std::string& word) {
  std::vector<std::string> names;
  for (const CLI::App* sub : commands_of(app)) names.push_back(sub->get_name());
  const std::string meant = nearest(word, names);
  const std::string here = app.get_parent() ? fmt::format(" of {}", command_of(app)) : "";
  std::cerr << "piper: there is no command \"" << word << "\"" << here << "\n"
            << (meant.empty() ? fmt::format("help: commands: {}\n", fmt::join(names, ", "))
                              : fmt::format("help: did you mean \"{}\"?\n", meant))
            << "help: " << command_of(app) << " --help lists all commands\n";
  return usage;
}

/// The commands that were named, from `piper` on.
std::vector<const CLI::App*> named_commands(const CLI::App& app) {
  std::vector<const CLI::App*> out = {&app};
  while (!out.back()->get_subcommands().empty()) out.push_back(out.back()->get_subcommands()[0]);
  return out;
}

/// The exit code for a word that stands where a command must, and is none; if there is one.
std::optional<int> unknown_command(const CLI::App& app) {
  for (const CLI::App* named : named_commands(app))
    if (const auto words = named->remaining();
        !words.empty() && !words[0].starts_with("-") && !commands_of(*named).empty())
      return no_such_command(*named, words[0]);
  return std::nullopt;
}

/// `piper help check`, `piper help trace diff`
int print_help(const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* at = &app;
  std::string path = app.get_name();
  for (const std::string& word : words) {
    const auto subs = at->get_subcommands([&](const CLI::App* sub) { return sub->get_name() == word; });
    if (subs.empty()) return no_such_command(*at, word);
    at = subs[0];
    path += " " + word;
  }
  std::cout << at->get_formatter()->make_help(at, path,
                                              CLI::AppFormatMode::Normal);  // help() is that of what was parsed
  return fine;
}

int usage_error(const CLI::App& app, const CLI::ParseError& problem) {
  const CLI::App& last = *named_commands(app).back();
  std::cerr << "piper: " << problem.what() << "\n";
  for (const std::string& word : last.remaining())
    if (const std::string meant = nearest(word, known_words(last)); !meant.empty())
      std::cerr << "help: did you mean \"" << meant << "\"?\n";
  std::cerr << "help: " << command_of(last) << " --help lists its arguments and options\n";
  return usage;
}

int run_program(int argc, char** argv) {
  CLI::App app("Piper: training strategies as schedules, checked before they run.", "piper");
  app.set_version_flag("--version", std::string("piper ") + PIPER_VERSION);
  app.require_subcommand(1);
  app.footer("Example:\n  piper check examples/moe.toml examples/dualpipe.piper");

  CompileCommand compile{usual_input(), "plan", {}, {}, false};
  CLI::App* compile_app = app.add_subcommand("compile", "Compile a model under a schedule and print any stage");
  add_input(*compile_app, compile.input);
  compile_app->add_option("--emit", compile.emit, "What to print")
      ->check(CLI::IsMember({"schedule", "dag", "plan", "timeline", "grid", "json"}))
      ->capture_default_str();
  compile_app->add_option("--device", compile.device, "Only the plan of this device, with its peers")
      ->check(whole_number(0, INT32_MAX));
  compile_app->callback([&] {
    if (compile.device && compile.emit != "plan") throw CLI::ValidationError("--device", "goes with --emit plan");
  });
  compile_app->add_option("--dump-after", compile.dump_after, "Print the DAG after this pass (may be repeated)");
  compile_app->add_flag("--time-passes", compile.time_passes, "Print how long every pass took");
  compile_app->footer(
      "Examples:\n  piper compile examples/moe.toml examples/dualpipe.piper --emit grid\n"
      "  piper compile analytic:DeepSeek-V3 my.piper --batch 4096 --emit plan --device 0");

  CheckCommand check{.input = usual_input()};
  CLI::App* check_app = app.add_subcommand("check", "Prove a schedule sound and show the memory of every device");
  add_input(*check_app, check.input);
  CLI::Option* checkpoint =
      check_app->add_flag("--checkpoint", check.checkpoint, "Also show the host memory that saving a checkpoint takes");
  check_app->add_option("--processes", check.processes, "Processes that save (default: one for each device)")
      ->check(whole_number(1, 1 << 20))
      ->needs(checkpoint);
  check_app
      ->add_option("--kernels", check.kernels,
                   "How chunks will run: eager, as recorded operators; inductor, compiled, saving less for backward")
      ->check(CLI::IsMember({"eager", "inductor"}))
      ->capture_default_str()
      ->excludes(check_app->get_option("--costs"));
  check_app->footer(
      "Examples:\n  piper check examples/moe.toml examples/dualpipe.piper --cluster h100\n"
      "  piper check examples/moe.toml examples/dualpipe.piper --checkpoint --processes 2");

  ExplainCommand explain{usual_input(), ""};
  CLI::App* explain_app = app.add_subcommand("explain", "Explain why a node exists, or what an error means");
  add_input(*explain_app, explain.input);
  explain_app->add_option("NODE", explain.node, "Name of a node, or a filter such as '{layer=0, pass=F}'");
  explain_app->get_option("MODEL")->description("Model file, configuration (.toml), analytic:NAME; or an error, E405");
  explain_app->parse_complete_callback([&] {
    if (is_error_code(explain.input.model) && explain.input.schedule.empty()) return;
    if (explain.input.schedule.empty() && explain.input.timeline.empty())
      throw CLI::RequiredError("SCHEDULE (or --timeline)");
  });
  explain_app->callback([&] {
    if (is_error_code(explain.input.model) && explain.input.schedule.empty()) return;
    if (explain.node.empty() && !explain.input.timeline.empty())  // without SCHEDULE the second word is the node
      std::swap(explain.node, explain.input.schedule);
    if (explain.node.empty()) throw CLI::RequiredError("NODE");
  });
  explain_app->footer(
      "Examples:\n  piper explain examples/moe.toml examples/dualpipe.piper layer.0.experts.F.mb0\n"
      "  piper explain E405");

  ScheduleCommand schedule;
  schedule.color = usual_input().color;
  schedule.columns = terminal_columns();
  CLI::App* schedule_app =
      app.add_subcommand("schedule", "Print, draw or convert a timeline of the library or of a file");
  add_timeline(*schedule_app, schedule);

  SimulateCommand simulate{.input = usual_input()};
  CLI::App* simulate_app = app.add_subcommand("simulate", "Predict the time of a step, without running it");
  add_simulate(*simulate_app, simulate);
  CompareCommand compare{usual_input(), {}, {}};
  CLI::App* compare_app = app.add_subcommand("compare", "Simulate several schedules and show them side by side");
  add_compare(*compare_app, compare);
  CalibrateCommand calibrate;
  calibrate.color = usual_input().color;
  CLI::App* calibrate_app = app.add_subcommand("calibrate", "Fit a cluster to measured steps");
  add_calibrate(*calibrate_app, calibrate);
  SearchCommand search;
  search.input = usual_input();
  CLI::App* search_app = app.add_subcommand("search", "Find the fastest schedule for a model on a cluster");
  add_search(*search_app, search);
  std::function<int()> chosen;
  add_trace(app, chosen, usual_input().color);
  add_view(app, chosen, usual_input().color);
  add_plot(app, chosen, usual_input().color);
  TrainInput train;
  train.command_line.assign(argv, argv + argc);
  train.color = usual_input().color;
  add_train(app, chosen, train);
  add_launch(app, chosen, train);
  add_doctor(app, chosen, train);
  add_diff(app, chosen, train);
  add_profile(app, chosen, train);
  add_kernels(app, chosen, train);
  add_checkpoint(app, chosen, usual_input().color);
  add_data(app, chosen, usual_input().color);

  on_choice(*app.add_subcommand("models", "List the models that `analytic:NAME` means"), chosen,
            ListCommand{Listed::Models});
  on_choice(*app.add_subcommand("clusters", "List the clusters that `--cluster NAME` means"), chosen,
            ListCommand{Listed::Clusters});
  ScheduleCommand schedules;
  schedules.list = true;
  on_choice(*app.add_subcommand("schedules", "List the timelines that `use NAME` means"), chosen, schedules);
  for (const char* name : {"models", "clusters", "schedules"})
    app.get_subcommand(name)->footer(fmt::format("Example:\n  piper {}", name));
  std::vector<std::string> helped;
  CLI::App* help_app = app.add_subcommand("help", "Print the help of a command");
  help_app->add_option("COMMAND", helped, "Such as check, or trace diff");
  help_app->footer("Example:\n  piper help check");

  std::string shell = "bash";
  CLI::App* completion_app = app.add_subcommand("completion", "Print a completion script for the shell");
  completion_app->add_option("SHELL", shell, "bash, zsh or fish")
      ->check(CLI::IsMember({"bash", "zsh", "fish"}))
      ->capture_default_str();
  completion_app->footer("Examples:\n  source <(piper completion bash)\n  piper completion fish | source");

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& problem) {
    if (const auto code = unknown_command(app)) return *code;  // also where help was asked for
    return problem.get_exit_code() == 0 ? app.exit(problem) : usage_error(app, problem);
  }
  if (chosen) return chosen();
  if (*help_app) return print_help(app, helped);
  if (*compile_app) return run(compile);
  check.command_line.assign(argv, argv + argc);
  if (*check_app) return run(check);
  if (*explain_app && explain.input.schedule.empty() && is_error_code(explain.input.model))
    return run(ErrorCommand{explain.input.model, explain.input.color});
  if (*explain_app) return run(explain);
  if (*schedule_app) return run(schedule);
  simulate.command_line.assign(argv, argv + argc);
  if (*simulate_app) return run(simulate);
  if (*compare_app) return run(compare);
  if (*calibrate_app) return run(calibrate);
  if (*search_app) return run(search);
  std::vector<CompletionWords> words;
  for (const CLI::App* sub : commands_of(app))
    words.push_back({sub->get_name(), sub->get_description(), known_words(*sub)});
  std::vector<std::string> models;
  for (const std::string& name : builtin_model_names()) models.push_back(name.substr(0, name.find(' ')));
  std::cout << (shell == "zsh"    ? zsh_completion(words, models)
                : shell == "fish" ? fish_completion(words, models)
                                  : bash_completion(words, models));
  return fine;
}

}  // namespace
}  // namespace piper

int main(int argc, char** argv) {
  try {
    const int code = piper::run_program(argc, argv);
    std::cout.flush();
    if (std::fflush(stdout) == 0 && !std::ferror(stdout) && std::cout) return code;
    std::cerr << "piper: the output could not be written: " << std::strerror(errno) << "\n";
    return piper::run_failed;
  } catch (const piper::InternalError& bug) {
    std::cerr << "piper: internal error: " << bug.what()
              << "\nhelp: this is a bug in piper; please report it with the input that caused it\n";
  } catch (const std::exception& problem) {
    std::cerr << "piper: internal error: " << problem.what() << "\n";
  }
  return piper::our_bug;
}
