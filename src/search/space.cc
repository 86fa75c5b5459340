#include "search/space.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>

#include "directives/instances.h"
#include "schedule/builder.h"
#include "schedule/shard_target.h"
#include "timelines/library.h"

namespace piper {
namespace {

constexpr std::array<int64_t, 3> bucket_sizes = {25'000'000, 100'000'000, 400'000'000};
constexpr std::array<int Candidate::*, all_axes.size()> sizes = {&Candidate::pp, &Candidate::dp, &Candidate::ep,
                                                                 &Candidate::cp, &Candidate::tp};
constexpr int most_stages_per_rank = 8;
constexpr int64_t fewest_tokens = 1024;  // of a sample that a device has
constexpr int most_list_passes = 10'000;

std::vector<int> divisors(int64_t number) {
  std::vector<int> out;
  for (int64_t d = 1; d * d <= number; ++d)
    if (number % d == 0)
      for (const int64_t found : {d, number / d})
        if (found <= most_parts) out.push_back(static_cast<int>(found));
  std::ranges::sort(out);
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

/// What may be chosen: everything, or only what is fixed.
template <class T>
std::vector<T> allowed(std::vector<T> all, const std::optional<T>& fixed) {
  if (fixed) return {*fixed};
  return all;
}

bool allows(const SpaceLimits& limits, Axis axis, int size) {
  const auto& fixed = limits.fixed.size[axis];
  const bool divides = limits.fixed.divided[axis].has_value();
  return (!fixed || *fixed == size) && (!divides || size > 1);
}

/// Ways to divide the tokens of a sample: evenly, in two blocks each, and not into crumbs. What is fixed the compiler
/// judges.
bool divides_tokens(const SpaceLimits& limits, int cp) {
  if (cp == 1 || limits.fixed.size[Axis::Cp]) return true;
  return limits.context && limits.sequence % (2 * cp) == 0 && limits.sequence / cp >= fewest_tokens;
}

/// Orders of the axes that put something else on each level of links. Axes of one device have no place of their own.
std::vector<std::array<Axis, 3>> orders(const SpaceLimits& limits, const Candidate& candidate) {
  if (limits.fixed.order) return {*limits.fixed.order};
  std::vector<std::array<Axis, 3>> out;
  std::set<std::vector<Axis>> seen;
  const bool flat =
      std::ranges::any_of(limits.level_sizes, [&](int joins) { return joins == 0 || joins >= limits.devices; }) &&
      (limits.level_sizes[0] == 0 || limits.level_sizes[0] >= limits.devices);
  std::array<Axis, 3> order = {Axis::Pp, Axis::Dp, Axis::Ep};
  do {
    std::vector<Axis> real;
    for (const Axis axis : order)
      if (size_of(candidate, axis) > 1) real.push_back(axis);
    if (seen.insert(real).second) out.push_back(order);
  } while (!flat && std::next_permutation(order.begin(), order.end()));
  return out;
}

/// Stages that each rank may have in a timeline.
std::vector<int> stage_choices(const SpaceLimits& limits, const Candidate& candidate, const TimelineInfo& info) {
  std::vector<int> out;
  if (!info.takes_stages_per_rank) {
    out = {info.default_stages_per_rank};
    if (info.placement == StagePlacement::TwoWay) out = {1};
  } else {
    for (int v = info.takes_placement ? 1 : 2; v <= (info.takes_placement ? 2 : most_stages_per_rank); ++v) {
      const int stages = v * candidate.pp;
      if (limits.model.instances % stages == 0 || (v & (v - 1)) == 0) out.push_back(v);
    }
  }
  std::erase_if(out, [&](int v) {
    const int stages = v * candidate.pp;
    return (stages > 1 && stages > limits.model.instances) || (limits.fixed.stages && *limits.fixed.stages != stages);
  });
  return out;
}

/// With one rank there is nothing to fill: one microbatch after the other, or pairs that overlap.
bool makes_sense(const SpaceLimits& limits, const Candidate& candidate, const TimelineInfo& info) {
  if (limits.fixed.timeline) return info.name == *limits.fixed.timeline;
  if (info.takes_placement) return false;  // see by_costs
  if (candidate.pp == 1) return info.name == "1f1b" || info.name == "dualpipev";
  return limits.model.splits_backward || !info.name.starts_with("zb");
}

std::vector<int> zero_levels(const SpaceLimits& limits, const Candidate& pipeline) {
  std::vector<int> out = replicas(pipeline) > 1 ? std::vector<int>{0, 1, 2, 3} : std::vector<int>{0};
  out = allowed(out, limits.fixed.zero);
  if (limits.fixed.prefetch || limits.fixed.gather_stream.value_or(false))
    std::erase_if(out, [](int zero) { return zero != 3; });  // others gather nothing ahead
  return out;
}

/// What is fixed is there in this model.
Checked check_fixed(const Fixed& fixed, const SpaceLimits& limits) {
  const auto is_scope = [](const std::optional<std::string>& wanted, const std::string& there) -> Checked {
    if (!wanted || wanted->empty() || *wanted == there || there.empty()) return Ok{};
    return error(ErrorCode::E105, {}, fmt::format("--fix: a search does not choose to divide {{{}=*}}", *wanted))
        .help(fmt::format("write {{{}=*}}", there));
  };
  PIPER_CHECK(is_scope(fixed.divided[Axis::Ep], limits.model.experts));
  PIPER_CHECK(is_scope(fixed.divided[Axis::Tp], limits.sharded.layers));
  if (!fixed.at) return Ok{};
  std::vector<int> starts = {0};
  starts.insert(starts.end(), fixed.at->begin(), fixed.at->end());
  starts.push_back(limits.model.instances);
  if (fixed.stages != static_cast<int>(starts.size()) - 1)
    return error(ErrorCode::E105, {},
                 fmt::format("--fix: {} cuts do not make {} stages", fixed.at->size(), fixed.stages.value_or(0)))
        .help("each stage but the first begins at a cut");
  if (std::ranges::adjacent_find(starts, std::greater_equal()) != starts.end())
    return error(ErrorCode::E105, {},
                 fmt::format("--fix: cuts at {} do not lie in order between the {} layers", fmt::join(*fixed.at, ", "),
                             limits.model.instances))
        .help("name the first layer of each stage but the first");
  return Ok{};
}

/// As a name that needs no quotes.
std::string written(std::string timeline) {
  std::ranges::replace(timeline, '-', '_');
  return timeline;
}

}  // namespace

std::string_view name(Axis axis) {
  constexpr std::array<std::string_view, 5> names = {"pp", "dp", "ep", "cp", "tp"};
  return names[static_cast<size_t>(axis)];
}

int size_of(const Candidate& candidate, Axis axis) {
  return candidate.*sizes[static_cast<size_t>(axis)];
}

int stages_of(const Candidate& candidate) {
  return candidate.pp * candidate.stages_per_rank;
}

StageShape shape_of(const Candidate& candidate) {
  const StagePlacement placement = placement_of(candidate);
  if (stages_of(candidate) == 1) return StageShape::Loop;
  if (placement == StagePlacement::V) return StageShape::V;
  return placement == StagePlacement::TwoWay ? StageShape::TwoWay : StageShape::Loop;
}

StagePlacement placement_of(const Candidate& candidate) {
  return placement_of(*find_timeline(candidate.timeline), request_of(candidate));
}

TimelineRequest request_of(const Candidate& candidate) {
  const TimelineInfo& info = *find_timeline(candidate.timeline);
  TimelineRequest out;
  out.ranks = candidate.pp;
  out.microbatches = candidate.microbatches;
  if (info.takes_stages_per_rank) out.stages_per_rank = candidate.stages_per_rank;
  return out;
}

int replicas(const Candidate& candidate) {
  return candidate.dp * candidate.ep * candidate.cp;
}

int64_t samples_of(const Candidate& candidate, int64_t batch) {
  return batch / candidate.microbatches / candidate.dp / candidate.ep;
}

Candidate without_recomputation(Candidate candidate) {
  candidate.recompute.clear();
  candidate.recomputed_stages = every_stage;
  return candidate;
}

Candidate recomputed_everywhere(Candidate candidate) {
  candidate.recomputed_stages = every_stage;
  return candidate;
}

bool divides_layers(const Candidate& candidate) {
  return candidate.tp > 1 || candidate.cp > 1;
}

ModelFacts facts_of(const ModelGraph& model) {
  ModelFacts out;
  std::vector<ChunkId> chunks;
  for (size_t c = 0; c < model.chunks.size(); ++c) chunks.emplace_back(c);
  const Instances instances = find_instances(model, chunks);
  out.layers = instances.scope;
  out.instances = instances.count;
  for (const ChunkId id : chunks) {
    const Chunk& chunk = model[id];
    out.splits_backward = out.splits_backward && (!chunk.find(Pass::B) || backward_parts(chunk));
    if (!chunk.scopes.empty() && chunk.scopes[0].scope == out.layers)
      for (const ScopeTag& tag : chunk.scopes)
        if (std::ranges::find(out.recomputable, tag.scope) == out.recomputable.end())
          out.recomputable.push_back(tag.scope);
    if (!chunk.scopes.empty() && is_made_of_experts(model, chunk)) out.experts = chunk.scopes.back().scope;
  }
  for (const Parameter& parameter : model.parameters)
    if (const Dim* dim = labelled(parameter.shape, expert_label)) out.expert_count = dim->size;
  if (out.expert_count == 0) out.experts.clear();
  return out;
}

bool allows(const Fixed& fixed, const Candidate& candidate) {
  const auto agrees = [](const auto& wanted, const auto& found) { return !wanted || *wanted == found; };
  for (const Axis axis : all_axes)
    if (!agrees(fixed.size[axis], size_of(candidate, axis)) || (fixed.divided[axis] && size_of(candidate, axis) == 1))
      return false;
  return agrees(fixed.order, candidate.order) && agrees(fixed.microbatches, candidate.microbatches) &&
         agrees(fixed.stages, stages_of(candidate)) && agrees(fixed.zero, candidate.zero) &&
         agrees(fixed.prefetch, candidate.prefetch) && agrees(fixed.bucket, candidate.bucket) &&
         agrees(fixed.timeline, candidate.timeline) && agrees(fixed.recompute, candidate.recompute) &&
         agrees(fixed.recomputed_stages, candidate.recomputed_stages) && agrees(fixed.sequence, candidate.sequence) &&
         agrees(fixed.vocabulary, candidate.vocabulary) && agrees(fixed.heads, candidate.heads) &&
         agrees(fixed.regather, candidate.regather) && agrees(fixed.gather_stream, candidate.gather_stream) &&
         agrees(fixed.at, candidate.at) && agrees(fixed.shape, shape_of(candidate));
}

namespace {

/// The axis may have this size beside those that the candidate has already.
bool allows(const SpaceLimits& limits, const Candidate& candidate, Axis axis, int size) {
  if (!allows(limits, axis, size)) return false;
  if (size == 1) return true;
  if (axis == Axis::Pp) return size <= limits.model.instances;
  if (axis == Axis::Ep) return !limits.model.experts.empty() && limits.model.expert_count % size == 0;
  return axis != Axis::Cp || (candidate.ep == 1 && divides_tokens(limits, size));
}

}  // namespace

std::vector<Candidate> meshes(const SpaceLimits& limits) {
  std::vector<Candidate> all = {Candidate()};  // dp: what is left of the devices
  all[0].dp = limits.devices;
  for (const Axis axis : {Axis::Pp, Axis::Tp, Axis::Ep, Axis::Cp}) {
    std::vector<Candidate> more;
    for (Candidate made : all)
      for (const int left = made.dp; const int size : divisors(left))
        if (allows(limits, made, axis, size)) {
          made.*sizes[static_cast<size_t>(axis)] = size;
          made.dp = left / size;
          more.push_back(made);
        }
    all = std::move(more);
  }
  std::vector<Candidate> out;
  for (Candidate& made : all) {
    const int64_t parts = int64_t{made.dp} * made.ep;
    if (!allows(limits, Axis::Dp, made.dp) || limits.batch % parts != 0) continue;
    for (const int m : divisors(limits.batch / parts)) {
      if (limits.fixed.microbatches && *limits.fixed.microbatches != m) continue;
      made.microbatches = m;
      out.push_back(made);
    }
  }
  return out;
}

namespace {

/// Scopes that may be recomputed, each in all stages; layers also in the first stages only.
std::vector<std::pair<std::string, int>> recomputations(const SpaceLimits& limits, const Candidate& mesh) {
  const ModelFacts& model = divides_layers(mesh) ? limits.sharded : limits.model;
  std::vector<std::string> scopes = {""};
  scopes.insert(scopes.end(), model.recomputable.begin(), model.recomputable.end());
  const int fixed = limits.fixed.recomputed_stages.value_or(every_stage);
  std::vector<std::pair<std::string, int>> out;
  for (const std::string& scope : allowed(scopes, limits.fixed.recompute)) {
    if (fixed == every_stage) out.emplace_back(scope, every_stage);
    const bool free = !limits.fixed.recomputed_stages && scope == model.layers && !scope.empty() && mesh.pp > 1;
    if (fixed != every_stage || free) out.emplace_back(scope, first_stages);
  }
  return out;
}

/// A search for an order takes about a second for the largest.
bool is_small_enough(const Candidate& candidate) {
  return 3 * int64_t{candidate.microbatches} * stages_of(candidate) <= most_list_passes;
}

/// How many of the first stages recompute: not none, and not all.
std::vector<int> recomputed_stages(const SpaceLimits& limits, const Candidate& candidate) {
  if (candidate.recomputed_stages == every_stage) return {every_stage};
  const int stages = stages_of(candidate);
  std::vector<int> out;
  for (const int k : limits.fixed.recomputed_stages ? std::vector<int>{*limits.fixed.recomputed_stages}
                                                    : std::vector<int>{stages / 4, stages / 2, stages - stages / 4})
    if (k > 0 && k < stages && (out.empty() || out.back() != k)) out.push_back(k);
  return out;
}

}  // namespace

std::vector<Candidate> forms(const SpaceLimits& limits, const Candidate& mesh) {
  const std::vector<bool> no = {false}, either = {true, false};
  std::vector<Candidate> out;
  for (const auto& [scope, stages] : recomputations(limits, mesh))
    for (const bool heads : allowed(mesh.cp > 1 ? either : no, limits.fixed.heads))
      for (const bool sequence : allowed(mesh.tp > 1 ? either : no, limits.fixed.sequence)) {
        const bool gathers = sequence || (mesh.cp > 1 && !heads);
        for (const bool regather : allowed(gathers && scope.empty() ? either : no, limits.fixed.regather))
          for (const bool vocabulary : allowed(mesh.tp > 1 ? either : no, limits.fixed.vocabulary)) {
            Candidate made = mesh;
            made.recompute = scope;
            made.recomputed_stages = stages;
            made.heads = heads;
            made.sequence = sequence;
            made.regather = regather;
            made.vocabulary = vocabulary;
            out.push_back(std::move(made));
          }
      }
  return out;
}

std::vector<Candidate> pipelines(const SpaceLimits& limits, const Candidate& form) {
  std::vector<Candidate> out;
  for (const TimelineInfo& info : timeline_library()) {
    if (!makes_sense(limits, form, info)) continue;
    for (const int v : stage_choices(limits, form, info)) {
      Candidate made = form;
      made.timeline = info.name;
      made.stages_per_rank = v;
      if (limits.fixed.at) made.at = *limits.fixed.at;
      if (limits.fixed.shape && *limits.fixed.shape != shape_of(made)) continue;
      if (info.takes_placement && !is_small_enough(made)) continue;
      for (const int stages : recomputed_stages(limits, made))
        for (const auto& order : orders(limits, form)) {
          made.recomputed_stages = stages;
          made.order = order;
          out.push_back(made);
        }
    }
  }
  return out;
}

std::vector<Candidate> by_costs(const SpaceLimits& limits, const Candidate& found) {
  std::vector<Candidate> out;
  if (limits.fixed.timeline || found.pp == 1) return out;
  const TimelineInfo& info = *find_timeline("list");
  for (const int v : stage_choices(limits, found, info)) {
    Candidate made = found;
    made.timeline = info.name;
    made.stages_per_rank = v;
    if (stages_of(made) != stages_of(found)) made.at.clear(), made.recomputed_stages = every_stage;
    if (is_small_enough(made) && allows(limits.fixed, made)) out.push_back(std::move(made));
  }
  return out;
}

std::vector<Candidate> replications(const SpaceLimits& limits, const Candidate& pipeline) {
  std::vector<Candidate> out;
  for (const int zero : zero_levels(limits, pipeline)) {
    std::vector<int64_t> buckets(bucket_sizes.begin(), bucket_sizes.end());
    if (replicas(pipeline) == 1) buckets.resize(1);
    for (const int64_t bucket : allowed(buckets, limits.fixed.bucket))
      for (const int prefetch :
           allowed(zero == 3 ? std::vector<int>{1, 2} : std::vector<int>{1}, limits.fixed.prefetch))
        for (const bool stream : allowed(zero == 3 ? std::vector<bool>{false, true} : std::vector<bool>{false},
                                         limits.fixed.gather_stream)) {
          Candidate made = pipeline;
          made.zero = zero;
          made.bucket = bucket;
          made.prefetch = prefetch;
          made.gather_stream = stream;
          out.push_back(std::move(made));
        }
  }
  return out;
}

std::vector<Candidate> cheapest_replications(const SpaceLimits& limits, const Candidate& pipeline) {
  std::vector<Candidate> out;
  for (const int zero : zero_levels(limits, pipeline)) {
    out.push_back(pipeline);
    out.back().zero = zero;
    out.back().bucket = limits.fixed.bucket.value_or(bucket_sizes.back());
  }
  return out;
}

Diagnostic no_layout(const SpaceLimits& limits) {
  return error(ErrorCode::E213, {},
               fmt::format("no way to lay out {} devices divides a batch of {} evenly", limits.devices, limits.batch))
      .help(fmt::format("use a batch that is a multiple of {}, or a number of devices that divides {}", limits.devices,
                        limits.batch));
}

Checked check_space(const SpaceLimits& limits) {
  PIPER_CHECK(check_fixed(limits.fixed, limits));
  if (!meshes(limits).empty()) return Ok{};
  const auto& [pp, dp, ep, cp, tp] = limits.fixed.size.of;
  const bool experts = limits.fixed.divided[Axis::Ep] || ep.value_or(1) > 1;
  const bool context = limits.fixed.divided[Axis::Cp] || cp.value_or(1) > 1;
  if (experts && limits.model.experts.empty())
    return error(ErrorCode::E105, {},
                 fmt::format("--fix: ep={} divides experts, and the model has none that can be divided",
                             ep ? fmt::to_string(*ep) : "n"))
        .help("leave ep out");
  if (ep && *ep > 1 && limits.model.expert_count % *ep != 0)
    return error(ErrorCode::E105, {},
                 fmt::format("--fix: {} experts do not divide among ep={}", limits.model.expert_count, *ep))
        .help("use a number of devices that divides them");
  if (pp && *pp > 1 && *pp > limits.model.instances)
    return error(
               ErrorCode::E105, {},
               fmt::format("--fix: pp={} needs at least as many layers; the model has {}", *pp, limits.model.instances))
        .help("use fewer pipeline ranks");
  if (experts && context)
    return error(ErrorCode::E105, {}, "--fix: tokens and experts are not divided together")
        .help("fix ep or cp, not both");
  if (context && !cp && !limits.context)
    return error(ErrorCode::E105, {}, "--fix: the model's tokens cannot be divided").help("leave cp out");
  int64_t fixed = 1;
  for (const auto& size : limits.fixed.size.of) fixed *= size.value_or(1);
  if (limits.devices % fixed != 0 ||
      (pp && dp && tp && (ep || limits.model.experts.empty()) && (cp || !limits.context) && fixed != limits.devices))
    return error(ErrorCode::E105, {},
                 fmt::format("--fix: axes of {} devices do not make up {} devices", fixed, limits.devices))
        .help("fix fewer axes, or other sizes");
  return no_layout(limits);
}

Schedule schedule_of(const Candidate& candidate, const ModelFacts& model) {
  ScheduleBuilder build;
  std::vector<MeshAxis> axes;
  for (const Axis axis : candidate.order)
    if (axis == Axis::Pp || size_of(candidate, axis) > 1)
      axes.push_back({std::string(name(axis)), size_of(candidate, axis)});
  for (const Axis axis : {Axis::Cp, Axis::Tp})
    if (size_of(candidate, axis) > 1) axes.push_back({std::string(name(axis)), size_of(candidate, axis)});
  build.mesh(axes).split({.parts = candidate.microbatches});
  if (model.instances > 0)
    build.place(
        {.devices = along("pp"), .stages = stages_of(candidate), .at = candidate.at, .shape = shape_of(candidate)});
  else
    build.place({.devices = at(everything())});
  DeviceChoice equal;
  for (const Axis axis : {Axis::Dp, Axis::Ep, Axis::Cp})
    if (size_of(candidate, axis) > 1) equal.along.emplace_back(name(axis));
  if (replicas(candidate) > 1)
    build.replicate({.devices = std::move(equal),
                     .zero = candidate.zero,
                     .bucket = candidate.bucket,
                     .gather_stream = candidate.gather_stream ? "gather" : Replicate().gather_stream});
  if (candidate.ep > 1) build.shard({.what = where(model.experts), .devices = along("ep")});
  if (candidate.cp > 1)
    build.shard({.devices = along("cp"),
                 .sequence = candidate.heads ? Sequence::Heads : Sequence::Gather,
                 .regather = candidate.regather && !candidate.heads});
  if (candidate.tp > 1)
    build.shard({.what = candidate.vocabulary ? everything() : where(model.layers),
                 .devices = along("tp"),
                 .vocabulary = candidate.vocabulary,
                 .sequence = candidate.sequence ? Sequence::On : Sequence::Off,
                 .regather = candidate.regather && candidate.sequence});
  if (!candidate.recompute.empty()) {
    const Selection scope = where(candidate.recompute);
    const int stages = candidate.recomputed_stages;
    build.recompute({.what = stages == every_stage ? scope : scope.and_("stage", 0, stages - 1)});
  }
  if (candidate.zero == 3 && replicas(candidate) > 1 && candidate.prefetch != 1)
    build.prefetch({.what = everything().comm("gather"), .distance = candidate.prefetch});
  if (model.instances > 0) build.use({.timeline = written(candidate.timeline)});
  return build.build();
}

}  // namespace piper
