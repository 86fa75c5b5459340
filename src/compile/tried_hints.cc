#include "compile/tried_hints.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/bytes.h"
#include "base/saturate.h"
#include "ir/local_size.h"
#include "plan/issue_order_memory.h"
#include "plan/memory_report.h"

namespace piper {
namespace {

constexpr int64_t most_samples = 1 << 30;

std::shared_ptr<const ModelGraph> with_batch(const ModelGraph& model, int64_t batch) {
  auto out = std::make_shared<ModelGraph>(model);
  out->step.batch = batch;
  return out;
}

int64_t multiple_of_both(int64_t a, int64_t b) {
  return a > most_samples || b > most_samples ? most_samples + 1 : std::lcm(a, b);
}

/// A batch that divides, whatever devices share its slices, if one is small enough.
std::optional<int64_t> generous_batch(const Schedule& schedule) {
  int64_t slices = 1, devices = 1;
  const auto add_group = [&](size_t size) { devices = multiple_of_both(devices, static_cast<int64_t>(size)); };
  for (const Directive& directive : schedule.directives) {
    if (const auto* split = std::get_if<Split>(&directive.body)) slices = saturating_multiply(slices, split->parts);
    if (const auto* declared = std::get_if<Devices>(&directive.body)) add_group(static_cast<size_t>(declared->count));
    if (const auto* mesh = std::get_if<Mesh>(&directive.body))
      for (const MeshAxis& axis : mesh->axes) devices = saturating_multiply(devices, axis.size);
    if (const auto* place = std::get_if<Place>(&directive.body))
      for (const DeviceList& list : place->devices.lists) add_group(std::max<size_t>(list.size(), 1));
  }
  const int64_t batch = saturating_multiply(slices, devices);
  if (batch > most_samples) return {};
  return batch;
}

/// Of what the batch must be a multiple.
std::optional<int64_t> batch_unit(const ModelGraph& model, const Schedule& schedule, const CompileOptions& options) {
  const auto generous = generous_batch(schedule);
  if (!generous) return {};
  const auto dag = communicating_dag(with_batch(model, *generous), schedule, options);
  if (!dag) return {};
  int64_t unit = dag->slices();
  for (const std::vector<Residence>& of_chunk : dag->residences)
    for (const Residence& residence : of_chunk)
      unit = multiple_of_both(unit, int64_t{dag->slices()} * sample_parts(*dag, residence.group));
  return unit;
}

/// The nearest batch from the present one on, then the nearest below it.
void add_batch(Diagnostic& problem, const ModelGraph& model, const Schedule& schedule, const CompileOptions& options) {
  const auto unit = batch_unit(model, schedule, options);
  if (!unit) return;
  const int64_t below = model.step.batch / *unit * *unit;
  for (const int64_t batch : {below + *unit, below}) {
    if (batch == 0 || !compile(with_batch(model, batch), schedule, options)) continue;
    problem.helps.push_back(
        fmt::format("a batch that is a multiple of {0} divides: batch = {1} in the model's [step], or "
                    "--batch {1}",
                    *unit, batch));
    return;
  }
}

struct Change {
  std::string what;
  Schedule schedule;
};

/// Changes every directive of a kind that `change` returns true for; none: there is nothing to change.
template <class Kind, class Edit>
std::optional<Schedule> edited(Schedule schedule, const Edit& edit) {
  bool any = false;
  for (Directive& directive : schedule.directives)
    if (auto* body = std::get_if<Kind>(&directive.body)) any |= edit(*body);
  if (!any) return {};
  return schedule;
}

std::optional<Schedule> with_recomputation(Schedule schedule) {
  if (std::ranges::any_of(schedule.directives,
                          [](const Directive& directive) { return std::holds_alternative<Recompute>(directive.body); }))
    return {};
  Recompute layers;
  TagCondition& every = layers.what.conditions.emplace_back();
  every.tag = "layer";
  every.any = true;
  const auto first_order = std::ranges::find_if(
      schedule.directives, [](const Directive& directive) { return is_time_directive(directive.body); });
  schedule.directives.insert(first_order, Directive{layers, {}});
  return schedule;
}

std::optional<Schedule> with_zero(const Schedule& schedule, int zero) {
  return edited<Replicate>(schedule, [&](Replicate& replicate) {
    if (replicate.zero >= zero) return false;
    replicate.zero = zero;
    return true;
  });
}

std::optional<Schedule> with_parts(const Schedule& schedule, int times, std::string& what) {
  return edited<Split>(schedule, [&](Split& split) {
    if (split.parts > most_parts / times) return false;
    split.parts *= times;
    what = fmt::format("parts={} in split", split.parts);
    return true;
  });
}

std::optional<Schedule> with_timeline(const Schedule& schedule, const std::string& timeline) {
  return edited<Use>(schedule, [&](Use& use) {
    if (use.timeline == timeline) return false;
    use.timeline = timeline;
    use.group.reset();
    use.memory_limit.reset();
    use.file.clear();
    return true;
  });
}

/// What needs less memory and costs little first. Of each group one is enough.
std::vector<std::vector<Change>> changes_of(const Schedule& schedule) {
  std::vector<std::vector<Change>> out(4);
  const auto add = [&](size_t group, const std::string& what, std::optional<Schedule> changed) {
    if (changed) out[group].push_back({what, *std::move(changed)});
  };
  for (const int zero : {1, 2, 3}) add(0, fmt::format("zero={} in replicate", zero), with_zero(schedule, zero));
  for (const char* timeline : {"1f1b", "v-half", "v-min"})
    add(1, fmt::format("use {}", timeline), with_timeline(schedule, timeline));
  for (const int times : {2, 4}) {
    std::string what;
    auto changed = with_parts(schedule, times, what);
    add(2, what, std::move(changed));
  }
  add(3, "recompute({layer=*})", with_recomputation(schedule));
  return out;
}

/// Where no change alone is enough.
std::optional<Change> all_at_once(const Schedule& schedule) {
  const auto sharded = with_zero(schedule, 3);
  auto both = sharded ? with_recomputation(*sharded) : std::nullopt;
  if (!both) return {};
  return Change{"recompute({layer=*}) and zero=3 in replicate", *std::move(both)};
}

int64_t highest_peak(const Plan& plan) {
  int64_t out = 0;
  for (const PlanTemplate& t : plan.templates) out = std::max(out, issue_order_use(t).peak);
  return out;
}

/// Larger steps take seconds to compile, and there are ten changes.
bool is_quick(const ModelGraph& model, const Schedule& schedule) {
  constexpr int64_t most_computations = 50'000;
  int64_t computations = 3 * static_cast<int64_t>(model.chunks.size());
  for (const Directive& directive : schedule.directives)
    if (const auto* split = std::get_if<Split>(&directive.body))
      computations = saturating_multiply(computations, split->parts);
  return computations <= most_computations;
}

void add_changes(Diagnostic& problem, const std::shared_ptr<const ModelGraph>& model, const Schedule& schedule,
                 const CompileOptions& options) {
  if (!is_quick(*model, schedule)) return;
  bool any = false;
  const auto helps = [&](const Change& change) {
    const auto compiled = compile(model, change.schedule, options);
    if (!compiled) return false;
    problem.helps.push_back(fmt::format("{} makes it fit: {} at the peak of a device", change.what,
                                        human_bytes(highest_peak(compiled->plan))));
    return any = true;
  };
  for (const std::vector<Change>& group : changes_of(schedule)) std::ranges::any_of(group, helps);
  if (any) return;
  if (const auto change = all_at_once(schedule)) helps(*change);
}

}  // namespace

Diagnostic with_tried_hints(Diagnostic problem, const std::shared_ptr<const ModelGraph>& model,
                            const Schedule& schedule, const CompileOptions& options) {
  CompileOptions trying = options;
  trying.after_pass = nullptr;
  if (problem.code == ErrorCode::E213) add_batch(problem, *model, schedule, trying);
  if (problem.code == ErrorCode::E405) add_changes(problem, model, schedule, trying);
  return problem;
}

Result<Compiled> compile_with_hints(const std::shared_ptr<const ModelGraph>& model, const Schedule& schedule,
                                    const CompileOptions& options) {
  auto compiled = compile(model, schedule, options);
  if (!compiled) return with_tried_hints(std::move(compiled.error()), model, schedule, options);
  return compiled;
}

Checked check_capacity_with_hints(const Compiled& compiled, const Schedule& schedule, const CompileOptions& options) {
  auto fits = check_capacity(compiled.plan, options.cluster);
  if (!fits) return with_tried_hints(std::move(fits.error()), compiled.linear.dag.model, schedule, options);
  return fits;
}

}  // namespace piper
