#include "train/loop/prepare_training.h"

#include <algorithm>
#include <set>

#include "capture/known_cuts.h"
#include "plan/plan_text.h"
#include "schedule/schedule_text.h"

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
std::vector<Division> parts_of_regions(const Plan& plan) {
  std::set<Division> parts;
  const auto size = [&](int partition) {
    return partition < 0 ? 1 : plan.partitions[static_cast<size_t>(partition)].part_size;
  };
  for (const PlanWork& work : plan.works) parts.insert({size(work.layout), size(work.cut)});
  parts.erase(Division{});
  return {parts.begin(), parts.end()};
}

/// What the schedule cuts: a capture of the model depends on it.
struct Cuts {
  std::vector<CutSeed> seeds;
  bool sequence = false;
};
Cuts cuts_of(const TrainableModel& model, const Schedule& schedule) {
  Cuts out;
  for (const Directive& directive : schedule.directives)
    if (const auto* cut = std::get_if<Cut>(&directive.body)) {
      const std::vector<CutSeed> named = cut->seeds.empty() ? known_cuts(model.meta.parameters) : cut->seeds;
      out.seeds.insert(out.seeds.end(), named.begin(), named.end());
      if (cut->vocabulary) {
        const std::vector<CutSeed> tables = known_vocabulary(model.meta.parameters);
        out.seeds.insert(out.seeds.end(), tables.begin(), tables.end());
      }
      out.sequence = out.sequence || cut->sequence;
    }
  return out;
}

/// The same from the directives that a plan remembers.
Cuts cuts_of(const TrainableModel& model, const Plan& plan) {
  Schedule schedule;
  for (const PlanOrigin& origin : plan.origins)
    if (auto parsed = parse_schedule(make_source(origin.place, origin.text)))
      for (Directive& directive : parsed->directives) schedule.directives.push_back(std::move(directive));
  return cuts_of(model, schedule);
}

CaptureOptions capture_options(const TrainableModel& model, Cuts cuts) {
  CaptureOptions out;
  out.cuts = std::move(cuts.seeds);
  out.sequence = cuts.sequence;
  out.name = model.name;
  out.step = model.step;
  out.inputs = model.inputs;
  out.target = model.target;
  return out;
}

/// For the sizes of slices and the divided regions of the plan.
Result<CapturedModel> capture_for(const TrainableModel& model, const Plan& plan, bool measure) {
  CaptureOptions capturing = capture_options(model, cuts_of(model, plan));
  capturing.samples = sizes_of_slices(plan);
  capturing.parts = parts_of_regions(plan);
  capturing.measure_operators = measure;
  return capture(model.meta, capturing);
}

/// Compiles the schedule for a graph that was captured for any sizes, and captures the model for those it needs.
Result<CapturedModel> capture_for(const TrainableModel& model, std::shared_ptr<const ModelGraph> sketched,
                                  const Schedule& schedule, CompileOptions options, bool measure) {
  options.after_pass = nullptr;
  PIPER_TRY(const Compiled compiled, compile(std::move(sketched), schedule, options));
  return capture_for(model, compiled.plan, measure);
}

}  // namespace

Result<CapturedModel> sketch(const TrainableModel& model, const Schedule& schedule) {
  CaptureOptions capturing = capture_options(model, cuts_of(model, schedule));
  capturing.samples = {std::min<int64_t>(model.step.batch, 2)};
  capturing.measure_operators = false;
  return capture(model.meta, capturing);
}

Result<CapturedModel> capture_for(const TrainableModel& model, const CapturedModel& whole, const Schedule& schedule,
                                  const CompileOptions& options, bool measure) {
  if (cuts_of(model, schedule).seeds.empty()) return capture_for(model, whole.graph(), schedule, options, measure);
  PIPER_TRY(const CapturedModel cut, sketch(model, schedule));
  return capture_for(model, cut.graph(), schedule, options, measure);
}

Result<PreparedTraining> prepare_training(const TrainableModel& model, const Schedule& schedule,
                                          const CompileOptions& options) {
  PIPER_TRY(const CapturedModel sketched, sketch(model, schedule));
  PIPER_TRY(CapturedModel captured, capture_for(model, sketched.graph(), schedule, options, true));
  PreparedTraining out;
  out.captured = std::make_shared<const CapturedModel>(std::move(captured));
  PIPER_TRY(Compiled compiled, compile(out.captured->graph(), schedule, options));
  out.plan = std::make_shared<const Plan>(std::move(compiled.plan));
  return out;
}

Result<PreparedTraining> prepare_for_plan(const TrainableModel& model, const SourceFilePtr& plan) {
  PreparedTraining out;
  PIPER_TRY(Plan parsed, parse_plan(plan));
  out.plan = std::make_shared<const Plan>(std::move(parsed));
  PIPER_TRY(CapturedModel captured, capture_for(model, *out.plan, true));
  out.captured = std::make_shared<const CapturedModel>(std::move(captured));
  return out;
}

}  // namespace piper
