#include "tools/train_command.h"

#include <fmt/format.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/read_file.h"
#include "base/time_text.h"
#include "base/write_file.h"
#include "cost/cost_table.h"
#include "cost/load_cluster.h"
#include "model/model_text.h"
#include "schedule/load_schedule.h"
#include "tools/commands.h"
#include "tools/join_mpi.h"
#include "trace/chrome.h"
#include "train/loop/local_cluster.h"
#include "train/loop/measured.h"
#include "train/loop/profile.h"
#include "train/loop/training.h"
#include "train/progress.h"
#include "train/run_problems.h"

namespace piper {
namespace {

volatile std::sig_atomic_t interrupted = 0;

/// While it lives, the first Ctrl-C only asks for the end; the second ends the program at once.
class WatchInterrupts {
 public:
  WatchInterrupts() { before_ = std::signal(SIGINT, note); }
  ~WatchInterrupts() { std::signal(SIGINT, before_); }

 private:
  static void note(int) {
    interrupted = 1;
    std::signal(SIGINT, SIG_DFL);
  }
  void (*before_)(int);
};

struct Loaded {
  SourceFilePtr file;
  TrainConfig config;
  std::optional<Schedule> schedule;
  std::optional<Cluster> emulate;
};

/// The configuration, with what the command line says instead.
Result<Loaded> load(const TrainInput& input) {
  Loaded out;
  PIPER_TRY(out.file, read_file(input.config, "the configuration"));
  PIPER_TRY(out.config, parse_train_config(out.file));
  RunConfig& run = out.config.run;
  if (input.steps) run.steps = *input.steps;
  if (input.seed) run.seed = *input.seed;
  if (input.devices) run.devices = *input.devices;
  const std::string schedule = !input.schedule.empty() ? input.schedule : run.schedule ? run.schedule->path : "";
  if (!schedule.empty()) {
    PIPER_TRY(out.schedule, load_schedule(schedule));
  }
  const std::string emulate = !input.emulate.empty() ? input.emulate : run.emulate ? run.emulate->path : "";
  if (!emulate.empty()) {
    PIPER_TRY(out.emulate, load_cluster(emulate));
  }
  return out;
}

/// What the plan is compiled for, so that it is the plan of a simulation with the same options.
Checked read_costs(const TrainCommand& command, TrainingOptions& options) {
  if (!command.cluster.empty()) {
    PIPER_TRY(options.cluster, load_cluster(command.cluster));
  }
  if (!command.costs.empty()) {
    PIPER_TRY(const SourceFilePtr file, read_file(command.costs, "cost table"));
    PIPER_TRY(options.costs, parse_cost_table(file));
  }
  return Ok{};
}

/// What cannot be written is a failure of the run, not of its input.
int report_unwritable(const Diagnostic& problem, bool color) {
  report_text(problem, color);
  return run_failed;
}

/// The processes of the job, or none if this one is all.
Result<std::unique_ptr<World>> join(const TrainInput& input, const Loaded& loaded) {
  if (input.backend == "local") return std::unique_ptr<World>();
  if (loaded.emulate)
    return error(ErrorCode::E805, {}, "a network is emulated between threads of one process only")
        .help("leave --emulate out, or --backend mpi");
  return join_mpi();
}

/// What the processes of a job must have in common.
Identity identity_of(const TrainInput& input, const Loaded& loaded, const World& world) {
  StableHash text;
  text.add(loaded.file->text);
  return {{"piper", PIPER_VERSION},
          {"libtorch", libtorch_version()},
          {"MPI", world.library()},
          {"the configuration", fmt::format("{} ({:016x})", input.config, text.value())},
          {"the seed", fmt::format("{}", loaded.config.run.seed)},
          {"the number of steps", fmt::format("{}", loaded.config.run.steps)},
          {"the number of threads", fmt::format("{}", input.threads)}};
}

/// In a job of several processes: the one that knows what went wrong has said so and ends them all; the others wait for
/// that.
[[noreturn]] void end_together(World& world, const RunError& problem) {
  std::fflush(stdout);
  std::fflush(stderr);
  if (problem.problem == RunProblem::Elsewhere) {
    std::this_thread::sleep_for(std::chrono::seconds(10));
  } else {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));  // others write what they have
    world.end_everywhere(run_failed);
  }
  std::_Exit(run_failed);
}

/// Says what went wrong and what the devices did last. Threads that never come back are left behind.
int report_failure(Training& training, const RunError& problem, bool color) {
  report_text(as_diagnostic(problem), color);
  fmt::print(stderr, "the last operations of every device:\n{}",
             describe_flight(training.plan(), flights_of(training.job().devices()), 3));
  std::fflush(stdout);
  std::fflush(stderr);
  if (training.job().stuck()) std::_Exit(run_failed);
  return run_failed;
}

RunDescription describe(const Training& training, const TrainCommand& command, const TrainConfig& config) {
  RunDescription out;
  out.model = training.model().name;
  out.schedule = !command.input.schedule.empty() ? command.input.schedule
                 : config.run.schedule           ? config.run.schedule->path
                                                 : "";
  out.plan_hash = fmt::format("{:016x}", hash(training.plan()));
  out.parameters = parameter_count(training.graph());
  out.devices = static_cast<int64_t>(template_of_device(training.plan()).size());
  out.batch = training.model().step.batch;
  out.sequence = training.model().step.sequence;
  out.steps = config.run.steps;
  out.seed = config.run.seed;
  return out;
}

double seconds_now() {
  return static_cast<double>(now()) * 1e-9;
}

}  // namespace

int run(const TrainCommand& command) {
  const bool color = command.input.color;
  auto loaded = load(command.input);
  if (!loaded) return report_text(loaded.error(), color);
  TrainConfig& config = loaded->config;
  const std::string trace = !command.trace.empty() ? command.trace : config.run.trace ? config.run.trace->path : "";
  TrainingOptions options;
  options.job.patience_seconds = command.patience;
  options.job.run.recorded_steps = 3;
  options.emulate = loaded->emulate;
  options.threads = command.input.threads;
  if (auto read = read_costs(command, options); !read) return report_text(read.error(), color);
  auto joined = join(command.input, *loaded);
  if (!joined) return report_text(joined.error(), color);
  World* const world = joined->get();
  const bool speaks = !world || world->rank() == 0;
  if (world) {
    options.world = world;
    options.identity = identity_of(command.input, *loaded, *world);
  }
  auto made = Training::make(loaded->file, config, loaded->schedule, options);
  if (!made) return speaks ? report_text(made.error(), color) : refused;
  Training& training = **made;
  std::optional<Together> together;
  if (world) together.emplace(*world);
  const RunDescription description = describe(training, command, config);
  std::optional<MetricsFile> metrics;
  if (!command.metrics.empty()) config.run.metrics = NamedFile{command.metrics, {}};
  if (config.run.metrics && speaks) {
    auto file = MetricsFile::create(*config.run.metrics, description);
    if (!file) return report_unwritable(file.error(), color);
    metrics = std::move(*file);
  }
  if (!trace.empty() && speaks)  // a long run is not lost because of a name
    if (auto writable = check_writable(trace); !writable) return report_unwritable(writable.error(), color);
  if (speaks)
    put(fmt::format("{}: {} parameters, {} device{}{}, batch {} x {} tokens; data: {}\n", description.model,
                    description.parameters, description.devices, description.devices == 1 ? "" : "s",
                    world ? fmt::format(" in {} processes", world->ranks()) : "", description.batch,
                    description.sequence, training.data().describe()));
  std::fflush(stdout);

  const WatchInterrupts watching;
  ProgressLine progress(stderr, progress_style(stderr), config.run.steps);
  std::vector<StepMetrics> seen;
  try {
    bool stop = false;
    while (static_cast<int64_t>(seen.size()) < config.run.steps && !stop) {
      const StepMetrics step = training.step();
      seen.push_back(step);
      stop = together ? together->anywhere(interrupted != 0) : interrupted != 0;
      if (!speaks) continue;
      progress.show(step, seconds_now());
      if (metrics)
        if (auto written = metrics->add(step); !written) {
          progress.finish();
          return report_unwritable(written.error(), color);
        }
    }
  } catch (const RunError& problem) {
    progress.finish();
    const int code = problem.problem == RunProblem::Elsewhere ? run_failed : report_failure(training, problem, color);
    if (world) end_together(*world, problem);
    return code;
  }
  progress.finish();
  std::vector<DeviceFlight> flights = flights_of(training.job().devices());
  if (together) flights = together->gather(flights);
  if (!speaks) return fine;
  if (static_cast<int64_t>(seen.size()) < config.run.steps)
    put(fmt::format("stopped after {} of {} steps\n", seen.size(), config.run.steps));
  if (seen.empty()) return fine;
  put(fmt::format("loss {:.6f} -> {:.6f}\n", seen.front().loss, seen.back().loss));
  put(device_table(training.plan(), flights, seen.back().step));
  if (!trace.empty()) {
    const Cluster cluster = options.cluster.value_or(options.emulate.value_or(Cluster{}));
    const Trace measured = measured_trace(training.plan(), flights, cluster, training.tokens_per_step());
    if (auto written = write_file(trace, print_chrome(measured)); !written)
      return report_unwritable(written.error(), color);
    put(fmt::format("trace of the last steps: {}\n", trace));
    if (together)
      put(fmt::format("clocks of other processes are known to {}\n", human_seconds(together->clock_error())));
  }
  return fine;
}

int run(const ProfileCommand& command) {
  const bool color = command.input.color;
  auto loaded = load(command.input);
  if (!loaded) return report_text(loaded.error(), color);
  const int64_t steps = command.input.steps.value_or(5);
  TrainingOptions options;
  options.timed = true;
  options.threads = command.input.threads;
  options.job.run.recorded_steps = static_cast<size_t>(steps);
  auto made = Training::make(loaded->file, loaded->config, loaded->schedule, options);
  if (!made) return report_text(made.error(), color);
  Training& training = **made;
  try {
    training.step();  // the first is slower
    training.timed()->forget();
    for (int64_t s = 0; s < steps; ++s) training.step();
  } catch (const RunError& problem) {
    return report_failure(training, problem, color);
  }
  CostTable costs = training.timed()->costs();
  add_update_costs(costs, training.plan(), training.job().devices());
  const LocalLink link = measure_local_link();

  const std::filesystem::path folder = command.output;
  std::error_code problem;
  std::filesystem::create_directories(folder, problem);
  for (const auto& [name, text] : {std::pair<std::string, std::string>{"model.piper", print(training.graph())},
                                   {"costs.txt", print(costs)},
                                   {"cluster.toml", local_cluster_text(link)}})
    if (auto written = write_file((folder / name).string(), text); !written)
      return report_unwritable(written.error(), color);
  const std::string schedule = !command.input.schedule.empty() ? command.input.schedule
                               : loaded->config.run.schedule   ? loaded->config.run.schedule->path
                                                               : "SCHEDULE";
  const std::string emulated = !command.input.emulate.empty() ? command.input.emulate
                               : loaded->config.run.emulate   ? loaded->config.run.emulate->path
                                                              : "";
  // an emulated network gives every message its links alone
  put(
      fmt::format("{} computations and updates, messages: {} + {}/s\n"
                  "predict a step: piper simulate {}/model.piper {} --costs {}/costs.txt --cluster {}\n",
                  costs.seconds.size(), human_seconds(link.latency), human_bytes(static_cast<int64_t>(link.bandwidth)),
                  command.output, schedule, command.output,
                  emulated.empty() ? command.output + "/cluster.toml" : emulated + " --free-links"));
  return fine;
}

}  // namespace piper
