#include "tools/training/load_training.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "base/read_file.h"
#include "base/usual_python.h"
#include "cost/load_cluster.h"
#include "schedule/load_schedule.h"
#include "tools/commands.h"
#include "train/devices/use_gpu.h"
#include "train/loop/check_training.h"
#include "train/run_problems.h"

namespace piper {

Result<LoadedTraining> load(const TrainInput& input) {
  LoadedTraining out;
  PIPER_TRY(out.file, read_file(input.config, "the configuration"));
  PIPER_TRY(out.config, parse_train_config(out.file));
  RunConfig& run = out.config.run;
  if (input.steps) run.steps = *input.steps;
  if (run.steps % out.config.accumulate != 0)
    return error(ErrorCode::E105, {},
                 fmt::format("--steps {}, but {} steps make an update", run.steps, out.config.accumulate))
        .help("take a multiple: accumulate in [step] says how many make one");
  if (input.seed) run.seed = *input.seed;
  if (input.devices) run.devices = *input.devices;
  if (!input.on.empty()) run.on = input.on == "cuda" ? RunOn::Cuda : RunOn::Cpu;
  run.deterministic |= input.deterministic;
  if (run.on == RunOn::Cpu && input.graphs != "none")
    return error(ErrorCode::E105, {}, fmt::format("--graphs {} is for GPUs", input.graphs))
        .help("leave it out, or train with --on cuda");
  out.schedule_path = !input.schedule.empty() ? input.schedule : run.schedule ? run.schedule->path : "";
  if (!out.schedule_path.empty()) {
    PIPER_TRY(out.schedule, load_schedule(out.schedule_path));
  }
  out.emulate_path = !input.emulate.empty() ? input.emulate : run.emulate ? run.emulate->path : "";
  if (!out.emulate_path.empty()) {
    PIPER_TRY(out.emulate, load_cluster(out.emulate_path));
  }
  if (run.on == RunOn::Cuda && out.emulate)
    return error(ErrorCode::E805, {}, "no network is emulated between devices on GPUs")
        .help("leave --emulate out, or train with --on cpu");
  return out;
}

std::shared_ptr<KernelStore> kernels_of(const TrainInput& input, const std::string& speaker) {
  if (input.kernels != "inductor") return nullptr;
  KernelOptions options;
  if (!input.kernel_cache.empty()) options.cache = input.kernel_cache;
  options.compiler = {usual_python(), static_cast<int>(std::max(1u, std::thread::hardware_concurrency()))};
  options.gpu = gpu_architecture();
  options.say = [speaker](const std::string& line) { fmt::print(stderr, "{}{}\n", speaker, line); };
  return std::make_shared<KernelStore>(std::move(options));
}

Result<TrainingAnswer> ask_training(const CheckCommand& command, const LoadedInput& loaded) {
  const CompileInput& input = command.input;
  if (!is_configuration(input)) return TrainingAnswer{};
  PIPER_TRY(const SourceFilePtr file, read_file(input.model, "the configuration"));
  CompileOptions options;
  options.cluster = without_limits(loaded.cluster);
  TrainingAnswer out;
  const auto kernels = compiles_kernels(command) ? std::make_shared<KernelStore>(KernelOptions()) : nullptr;
  PIPER_TRY(auto checked, check_training(file, input.step, loaded.schedule, options, kernels));
  if (!checked) return out;
  out.compiled = std::move(checked->step);
  out.evaluation = std::move(checked->evaluation);
  return out;
}

void ask_with_libtorch(const CheckCommand&) {}  // here it is

double seconds_now() {
  return static_cast<double>(now()) * 1e-9;
}

int report_unwritable(const Diagnostic& problem, bool color) {
  report_text(problem, color);
  return run_failed;
}

int report_failure(Training& training, const RunError& problem, bool color) {
  report_text(as_diagnostic(problem), color);
  fmt::print(stderr, "the last operations of every device:\n{}",
             describe_flight(training.plan(), flights_of(training.job().devices()), 3));
  return run_failed;
}

void end_if_stuck(Training& training) {
  std::fflush(stdout);
  std::fflush(stderr);
  if (training.job().stuck()) std::_Exit(run_failed);
}

}  // namespace piper
