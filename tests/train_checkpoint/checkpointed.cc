#include "train_checkpoint/checkpointed.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>
#include <filesystem>

#include "checkpoint/folder_names.h"
#include "must.h"
#include "train/loop/checkpoint/checkpoints.h"
#include "train/loop/checkpoint/restore.h"
#include "train_loop/apparatus.h"

namespace piper {
namespace {

RunState state_after(int64_t steps) {
  RunState out;
  out.step = out.updates = steps;
  return out;
}

}  // namespace

RunPart part_of(const Subject& subject, const std::string& schedule, int64_t samples, int64_t steps) {
  const CapturedModel& model = captured(subject, {samples});
  return {&model, std::make_shared<const Plan>(must(compile_for(model, schedule)).plan), steps};
}
RunPart part_of(const Subject& subject, const Combination& c, int64_t steps) {
  return part_of(subject, c.schedule(), subject_batch / c.slices(), steps);
}

std::unique_ptr<TrainingRun> begin(const TrainableModel& model, const RunPart& part, const TrainSettings& settings,
                                   World* world) {
  const std::shared_ptr<const CapturedModel> captured(part.captured, [](const CapturedModel*) {});
  TrainingRunOptions options;
  options.job = settings.job;
  options.world = world;
  auto run = std::make_unique<TrainingRun>(PreparedTraining{captured, part.plan}, model.step, model.initialize,
                                           std::move(options));
  run->job().set_parameters(model.initialize);
  run->begin();
  return run;
}

SavedModel small_files(const TrainableModel& model, TrainingRun& run) {
  return must(saved_model(run, {.names = model.saved, .shard_size = 2000}));
}

Ended train_part(const TrainableModel& model, const RunPart& part, const TrainSettings& settings, int64_t first,
                 const std::string& from, const std::string& to) {
  const std::unique_ptr<TrainingRun> begun = begin(model, part, settings);
  TrainingRun& run = *begun;
  const SavedModel saved = small_files(model, run);
  if (!from.empty()) must(restore(*must(FolderReader::open(from)), saved, run));
  Ended out;
  for (int64_t step = first; step < first + part.steps; ++step)
    out.losses.push_back(must(run.step(step_settings(model, settings, step))).loss);
  if (!to.empty()) {
    const std::unique_ptr<Checkpoints> checkpoints = must(Checkpoints::make(run, saved, {.folder = to}));
    checkpoints->save(state_after(first + part.steps));
    checkpoints->wait();
    for (const SaveReport& report : checkpoints->take_reports()) must(report.result);
  }
  for (const NamedTensor& name : model.meta.parameters)
    for (const Kept kept : {Kept::Weight, Kept::Moment1, Kept::Moment2, Kept::Master})
      if (const at::Tensor tensor = run.job().parameter(name.name, kept); tensor.defined())
        out.state[fmt::format("{} {}", name.name, static_cast<int>(kept))] = tensor.clone();
  return out;
}

Ended train_in_parts(const TrainableModel& model, const std::vector<RunPart>& parts, const TrainSettings& settings,
                     const std::string& folder) {
  Ended out;
  int64_t step = 0;
  std::string from;
  for (const RunPart& part : parts) {
    const bool last = &part == &parts.back();
    const Ended ended = train_part(model, part, settings, step, from, last ? "" : folder);
    out.losses.insert(out.losses.end(), ended.losses.begin(), ended.losses.end());
    out.state = ended.state;
    step += part.steps;
    from = (std::filesystem::path(folder) / checkpoint_name(step)).string();
  }
  return out;
}

Difference compare(const Ended& run, const Ended& reference) {
  Difference worst;
  const auto note = [&](double error, const std::string& where) {
    if (!(error <= worst.error)) worst = {error, where};  // NaN too
  };
  if (run.losses.size() != reference.losses.size() || run.state.size() != reference.state.size())
    note(INFINITY, "number of losses or tensors");
  for (size_t s = 0; s < run.losses.size() && s < reference.losses.size(); ++s)
    note(std::abs(run.losses[s] - reference.losses[s]) / std::abs(reference.losses[s]), fmt::format("loss {}", s));
  for (const auto& [name, expected] : reference.state) {
    const auto found = run.state.find(name);
    if (found == run.state.end()) {
      note(INFINITY, name);
      continue;
    }
    const double scale = expected.abs().max().item<double>();
    const double error = (found->second - expected).abs().max().item<double>();
    note(scale > 0 ? error / scale : error, name);
  }
  return worst;
}

}  // namespace piper
