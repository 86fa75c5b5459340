#include <fmt/format.h>

#include <filesystem>

#include "base/bytes.h"
#include "base/machine.h"
#include "base/time_text.h"
#include "base/write_file.h"
#include "cost/cost_table.h"
#include "model/model_text.h"
#include "tools/commands.h"
#include "tools/training/load_training.h"
#include "train/devices/use_gpu.h"
#include "train/loop/local_cluster.h"
#include "train/loop/profile.h"

namespace piper {

namespace {

struct Profile {
  CostTable costs;
  LocalLink link;
  std::string cluster;  // a file
};

void take_steps(Training& training, int64_t steps) {
  for (int64_t s = 0; s < steps; ++s) training.step();
}

Profile profile_threads(Training& training, const LocalDevices& devices, int64_t steps) {
  Profile out;
  take_steps(training, 1);  // the first is slower
  training.run().timed()->forget();
  take_steps(training, steps);
  out.costs = training.run().timed()->costs();
  add_update_costs(out.costs, training.plan(), training.job().devices());
  out.link = measure_local_link();
  out.cluster = local_cluster_text(out.link, devices);
  return out;
}

/// Computations in turns give the costs; then side by side: what the GPU makes of several at once.
Profile profile_gpu(Training& training, Processor& gpu, Turns& turns, int64_t steps) {
  constexpr int64_t until_all_is_usual = 5;  // memory has its places, graphs are made
  const std::vector<DeviceRun*>& devices = training.job().devices();
  Profile out;
  take_steps(training, until_all_is_usual);
  turns.held = true;
  take_steps(training, steps);
  out.costs = recorded_costs(training.plan(), devices);
  turns.taken = turns.held = false;
  take_steps(training, 1 + steps);
  out.link = measure_link_on(gpu);
  out.cluster = shared_cluster_text(out.link, measure_together(training.plan(), devices, out.costs));
  return out;
}

constexpr const char *model_file = "model.piper", *costs_file = "costs.txt", *cluster_file = "cluster.toml";

/// What was measured is not lost because of a name.
Checked prepare(const std::filesystem::path& folder) {
  std::error_code problem;
  std::filesystem::create_directories(folder, problem);
  for (const char* name : {model_file, costs_file, cluster_file}) PIPER_CHECK(check_writable((folder / name).string()));
  return Ok{};
}

}  // namespace

int run(const ProfileCommand& command) {
  const bool color = command.input.color;
  auto loaded = load(command.input);
  if (!loaded) return report_text(loaded.error(), color);
  const int64_t steps = command.input.steps.value_or(5);
  TrainingOptions options;
  Turns turns;
  std::unique_ptr<Processor> gpu;
  if (loaded->config.run.on == RunOn::Cuda) {
    auto found = use_gpu({.deterministic = loaded->config.run.deterministic,
                          .graphs = graphs_named(command.input.graphs),
                          .turns = &turns});
    if (!found) return report_text(found.error(), color);
    gpu = std::move(*found);
    options.processor = gpu.get();
    options.job.run.turns = &turns;
  }
  options.timed = !gpu;
  options.threads = command.input.threads;
  options.kernels = kernels_of(command.input);
  options.job.run.recorded_steps = static_cast<size_t>(steps);
  auto made = Training::make(loaded->file, loaded->config, loaded->schedule, options);
  if (!made) return report_text(made.error(), color);
  Training& training = **made;
  const std::filesystem::path folder = command.output;
  if (auto made_folder = prepare(folder); !made_folder) return report_unwritable(made_folder.error(), color);
  const LocalDevices devices{device_count(training.plan()), command.input.threads, usable_cores()};
  Profile profile;
  try {
    profile = gpu ? profile_gpu(training, *gpu, turns, steps) : profile_threads(training, devices, steps);
  } catch (const RunError& problem) {
    report_failure(training, problem, color);
    end_if_stuck(training);
    return run_failed;
  }

  for (const auto& [name, text] : {std::pair<std::string, std::string>{model_file, print(training.graph())},
                                   {costs_file, print(profile.costs)},
                                   {cluster_file, profile.cluster}})
    if (auto written = write_file((folder / name).string(), text); !written)
      return report_unwritable(written.error(), color);
  if (!gpu && share_cores(devices))
    put(fmt::format(
        "{} device{} of {} thread{} share {:.4g} core{}; {}/{} records this, and predictions account for it\n",
        devices.count, devices.count == 1 ? "" : "s", devices.threads, devices.threads == 1 ? "" : "s", devices.cores,
        devices.cores == 1 ? "" : "s", command.output, cluster_file));
  // an emulated network gives every message its links alone
  put(
      fmt::format("{} computations and updates, messages: {} + {}/s\n"
                  "predict a step: piper simulate {}/model.piper {} --costs {}/costs.txt --cluster {}\n",
                  profile.costs.seconds.size(), human_seconds(profile.link.latency),
                  human_bytes(static_cast<int64_t>(profile.link.bandwidth)), command.output,
                  loaded->schedule ? loaded->schedule_path : "SCHEDULE", command.output,
                  loaded->emulate ? loaded->emulate_path + " --free-links" : command.output + "/cluster.toml"));
  return fine;
}

}  // namespace piper
