#include "timelines/library.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/saturate.h"
#include "base/suggest.h"
#include "timelines/generator.h"
#include "timelines/list.h"

namespace piper {
namespace {

using timelines::Generator;
using timelines::generators;

const Generator* find_generator(std::string_view name) {
  std::string wanted(name);
  std::ranges::replace(wanted, '_', '-');
  for (const Generator& generator : generators())
    if (generator.info.name == wanted) return &generator;
  return nullptr;
}

Diagnostic unknown_timeline(std::string_view name, const SourceRange& where) {
  std::vector<std::string> names;
  for (const Generator& generator : generators()) names.push_back(generator.info.name);
  return error(ErrorCode::E315, where, fmt::format("unknown timeline \"{}\"", name)).help(did_you_mean(name, names));
}

Checked check_positive(const std::string& name, const TimelineRequest& request, const SourceRange& where) {
  const auto at_least_one = [&](int value, std::string_view what) -> Checked {
    if (value >= 1) return Ok{};
    return error(ErrorCode::E314, where, fmt::format("{} needs at least 1 {}, not {}", name, what, value))
        .help(fmt::format("use 1 {} or more", what));
  };
  PIPER_CHECK(at_least_one(request.ranks, "rank"));
  PIPER_CHECK(at_least_one(request.microbatches, "microbatch"));
  PIPER_CHECK(at_least_one(request.stages_per_rank, "stage per rank"));
  PIPER_CHECK(at_least_one(request.group.value_or(1), "microbatch per group"));
  return Ok{};
}

Checked check_options(const TimelineInfo& info, const TimelineRequest& request, const SourceRange& where) {
  if (!info.takes_stages_per_rank && request.stages_per_rank != info.default_stages_per_rank)
    return error(ErrorCode::E314, where,
                 fmt::format("{} has {} stage{} per rank, not {}", info.name, info.default_stages_per_rank,
                             info.default_stages_per_rank == 1 ? "" : "s", request.stages_per_rank))
        .help(fmt::format("use {} stage{} per rank, or a timeline such as interleaved-1f1b",
                          info.default_stages_per_rank, info.default_stages_per_rank == 1 ? "" : "s"));
  if (!info.takes_group && request.group)
    return error(ErrorCode::E314, where, fmt::format("{} has no groups of microbatches", info.name))
        .help("leave the group out, or use interleaved-1f1b or interleaved-zb");
  if (!info.takes_memory && (request.memory_limit || request.memory))
    return error(ErrorCode::E314, where, fmt::format("{} does not follow a memory limit", info.name))
        .help("leave the limit out, or use zb-1p, zb-2p or list");
  if (!info.takes_placement && request.placement)
    return error(ErrorCode::E314, where, fmt::format("{} has its own placement, {}", info.name, name(info.placement)))
        .help("leave the placement out, or use list");
  if (!info.takes_placement && request.backward == Backward::Whole)
    return error(ErrorCode::E314, where, fmt::format("{} says itself which backwards are split", info.name))
        .help("leave backward out, or use list");
  return Ok{};
}

Checked check_values(const TimelineInfo& info, const TimelineRequest& request, const SourceRange& where) {
  const auto refuse = [&](std::string_view what, std::string_view way_out) {
    return error(ErrorCode::E314, where, fmt::format("{}: {}", info.name, what)).help(std::string(way_out));
  };
  if (request.memory_limit && !(*request.memory_limit >= 1))
    return refuse(fmt::format("a memory limit of {} forwards leaves no room for one", *request.memory_limit),
                  "use a limit of 1 or more");
  const auto usable = [](double value) { return std::isfinite(value) && value >= 0; };
  if (const auto& memory = request.memory)
    if (!usable(memory->kept_by_F) || !usable(memory->freed_by_I) || memory->freed_by_I > memory->kept_by_F)
      return refuse(fmt::format("F keeps {} and I frees {} of it", memory->kept_by_F, memory->freed_by_I),
                    "use sizes that are 0 or more, I at most as large as F");
  if (const auto& costs = request.costs) {
    std::vector<StageCosts> all = costs->stages;
    all.push_back({costs->F, costs->I, costs->W});
    for (const StageCosts& stage : all)
      if (!usable(stage.F) || !usable(stage.I) || !usable(stage.W) || !usable(costs->comm))
        return refuse(fmt::format("costs F {}, I {}, W {}, transfer {}", stage.F, stage.I, stage.W, costs->comm),
                      "use costs that are finite and 0 or more");
    const size_t stages = stage_count(placement_of(info, request), request.ranks, request.stages_per_rank);
    if (!costs->stages.empty() && costs->stages.size() != stages)
      return refuse(fmt::format("costs of {} stages are given; there are {}", costs->stages.size(), stages),
                    fmt::format("give {} values, one for every stage", stages));
  }
  return Ok{};
}

Checked check_total(const std::string& name, const TimelineRequest& request, const SourceRange& where) {
  constexpr int64_t most = int64_t{1} << 26;  // a few gigabytes of cells
  const int64_t stages = saturating_multiply(request.ranks, request.stages_per_rank);
  if (saturating_multiply(saturating_multiply(stages, request.microbatches), 3) <= most) return Ok{};
  return error(ErrorCode::E113, where,
               fmt::format("{} of {} stages and {} microbatches has more than {} passes", name, stages,
                           request.microbatches, most))
      .help("use fewer ranks, stages or microbatches");
}

}  // namespace

namespace timelines {

/// Simple first, then zero bubble, two-way, low memory, and the one for stages that differ.
const std::vector<Generator>& generators() {
  static const std::vector<Generator> all = {
      gpipe(), one_f_one_b(), interleaved_1f1b(), looped_bfs(), zb_h1(),         interleaved_zb(), zb_h2(), zb_1p(),
      zb_2p(), zb_v(),        dualpipe(),         dualpipev(),  one_f_one_b_v(), v_half(),         v_min(), list(),
  };
  return all;
}

Checked any_size(const TimelineRequest&, const SourceRange&) {
  return Ok{};
}

}  // namespace timelines

const std::vector<TimelineInfo>& timeline_library() {
  static const std::vector<TimelineInfo> infos = [] {
    std::vector<TimelineInfo> all;
    for (const Generator& generator : generators()) all.push_back(generator.info);
    return all;
  }();
  return infos;
}

const TimelineInfo* find_timeline(std::string_view name) {
  const Generator* generator = find_generator(name);
  return generator ? &generator->info : nullptr;
}

StagePlacement placement_of(const TimelineInfo& info, const TimelineRequest& request) {
  if (!info.takes_placement) return info.placement;
  return request.placement.value_or(timelines::usual_placement(stages_per_rank(info, request)));
}

int stages_per_rank(const TimelineInfo& info, const TimelineRequest& request) {
  if (request.stages_per_rank != 0) return request.stages_per_rank;
  if (info.takes_placement && request.placement) return timelines::usual_stages_per_rank(*request.placement);
  return info.default_stages_per_rank;
}

Result<Timeline> make_timeline(std::string_view name, const TimelineRequest& request, const SourceRange& where) {
  const Generator* generator = find_generator(name);
  if (!generator) return unknown_timeline(name, where);
  const TimelineInfo& info = generator->info;
  TimelineRequest filled = request;
  filled.stages_per_rank = stages_per_rank(info, request);
  PIPER_CHECK(check_positive(info.name, filled, where));
  PIPER_CHECK(check_options(info, filled, where));
  PIPER_CHECK(check_total(info.name, filled, where));
  PIPER_CHECK(check_values(info, filled, where));
  PIPER_CHECK(generator->check(filled, where));
  return generator->generate(filled);
}

}  // namespace piper
