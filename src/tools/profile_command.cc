#include <fmt/format.h>

#include <filesystem>

#include "base/bytes.h"
#include "base/time_text.h"
#include "base/write_file.h"
#include "cost/cost_table.h"
#include "model/model_text.h"
#include "tools/commands.h"
#include "tools/load_training.h"
#include "train/loop/local_cluster.h"
#include "train/loop/profile.h"

namespace piper {

int run(const ProfileCommand& command) {
  const bool color = command.input.color;
  auto loaded = load(command.input);
  if (!loaded) return report_text(loaded.error(), color);
  if (loaded->config.run.on == RunOn::Cuda)
    return report_text(error(ErrorCode::E807, {}, "so far only computations on processors are measured")
                           .help("--on cpu measures those; piper train --on cuda --trace shows times of a GPU"),
                       color);
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
    report_failure(training, problem, color);
    end_if_stuck(training);
    return run_failed;
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
  // an emulated network gives every message its links alone
  put(
      fmt::format("{} computations and updates, messages: {} + {}/s\n"
                  "predict a step: piper simulate {}/model.piper {} --costs {}/costs.txt --cluster {}\n",
                  costs.seconds.size(), human_seconds(link.latency), human_bytes(static_cast<int64_t>(link.bandwidth)),
                  command.output, loaded->schedule ? loaded->schedule_path : "SCHEDULE", command.output,
                  loaded->emulate ? loaded->emulate_path + " --free-links" : command.output + "/cluster.toml"));
  return fine;
}

}  // namespace piper
