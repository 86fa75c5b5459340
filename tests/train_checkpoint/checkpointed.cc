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

Ended train_part(const TrainableModel& model, const RunPart& part, const TrainSettings& settings, int64_t first,
                 const std::string& from, const std::string& to) {
  const std::shared_ptr<const CapturedModel> captured(part.captured, [](const CapturedModel*) {});
  TrainingRunOptions options;
  options.job = settings.job;
  TrainingRun run({captured, part.plan}, model.step, model.initialize, std::move(options));
  run.job().set_parameters(model.initialize);
  run.begin();
  const SavedModel saved = must(saved_model(run, {.names = model.saved, .shard_size = 2000}));  // several files
  if (!from.empty()) must(restore(*must(FolderReader::open(from)), saved, run));
  Ended out;
  for (int64_t step = first; step < first + part.steps; ++step)
    out.losses.push_back(run.step(step_settings(model, settings, step)).loss);
  if (!to.empty()) {
    Checkpoints checkpoints(run, saved, {.folder = to});
    checkpoints.save(state_after(first + part.steps));
    checkpoints.wait();
    for (const SaveReport& report : checkpoints.take_reports()) must(report.result);
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
