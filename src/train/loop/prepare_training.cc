#include "train/loop/prepare_training.h"

#include <algorithm>
#include <set>

namespace piper {
namespace {

std::vector<int64_t> sizes_of_slices(const Plan& plan) {
  std::vector<int64_t> sizes;
  for (const PlanWork& work : plan.works)
    if (work.pass) sizes.push_back(work.samples);
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

/// Among how many devices regions are divided.
std::vector<int64_t> parts_of_regions(const Plan& plan) {
  std::set<int64_t> parts;
  for (const PlanWork& work : plan.works)
    if (work.layout >= 0) parts.insert(plan.partitions[static_cast<size_t>(work.layout)].part_size);
  return {parts.begin(), parts.end()};
}

}  // namespace

Result<PreparedTraining> prepare_training(const TrainableModel& model, const Schedule& schedule,
                                          const CompileOptions& options) {
  CaptureOptions capturing;
  capturing.name = model.name;
  capturing.step = model.step;
  capturing.inputs = model.inputs;
  capturing.samples = {std::min<int64_t>(model.step.batch, 2)};
  capturing.measure_operators = false;
  PIPER_TRY(const CapturedModel sketch, capture(model.meta, capturing));
  CompileOptions sketching = options;
  sketching.after_pass = nullptr;
  PIPER_TRY(const Compiled sketched, compile(sketch.graph(), schedule, sketching));

  capturing.samples = sizes_of_slices(sketched.plan);
  capturing.parts = parts_of_regions(sketched.plan);
  capturing.measure_operators = true;
  PreparedTraining out;
  PIPER_TRY(CapturedModel captured, capture(model.meta, capturing));
  out.captured = std::make_shared<const CapturedModel>(std::move(captured));
  PIPER_TRY(out.compiled, compile(out.captured->graph(), schedule, options));
  out.plan = std::make_shared<const Plan>(out.compiled.plan);
  return out;
}

}  // namespace piper
