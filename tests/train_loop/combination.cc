#include "train_loop/combination.h"
#include "must.h"

#include <fmt/format.h>

#include <algorithm>

#include "schedule/schedule_text.h"
#include "timelines/as_schedule.h"
#include "timelines/validate.h"

namespace piper {
namespace {

bool is_backward(const TimelineOp& op) {
  return op.pass == Pass::B || op.pass == Pass::BI;
}

/// One order without pairs: as many cells as passes.
std::vector<TimelineCell> one_by_one(const std::vector<TimelineCell>& row) {
  std::vector<TimelineCell> out;
  for (const TimelineCell& cell : row) {
    out.push_back({cell.first, {}});
    if (cell.second) out.push_back({*cell.second, {}});
  }
  return out;
}

/// B becomes I and W, one after another; a paired B stays in its pair as I.
std::vector<TimelineCell> split_backwards(const std::vector<TimelineCell>& row) {
  std::vector<TimelineCell> out;
  for (TimelineCell cell : row) {
    std::vector<TimelineCell> weights;
    const auto split = [&](TimelineOp& op) {
      if (op.pass != Pass::B) return;
      op.pass = Pass::BI;
      weights.push_back({{op.stage, Pass::BW, op.microbatch}, {}});
    };
    split(cell.first);
    if (cell.second) split(*cell.second);
    out.push_back(cell);
    out.insert(out.end(), weights.begin(), weights.end());
  }
  return out;
}

/// I becomes B where it stands, W goes.
std::vector<TimelineCell> join_backwards(const std::vector<TimelineCell>& row) {
  std::vector<TimelineCell> out;
  for (TimelineCell cell : row) {
    const auto join = [](TimelineOp& op) { op.pass = op.pass == Pass::BI ? Pass::B : op.pass; };
    join(cell.first);
    if (cell.second) join(*cell.second);
    const bool first = cell.first.pass != Pass::BW, second = cell.second && cell.second->pass != Pass::BW;
    if (first && second)
      out.push_back(cell);
    else if (first)
      out.push_back({cell.first, {}});
    else if (second)
      out.push_back({*cell.second, {}});
  }
  return out;
}

/// Pairs every forward with a backward next to it, as long as no rank then waits for ever.
void pair_neighbours(Timeline& timeline) {
  for (auto& row : timeline.ranks)
    for (size_t i = 0; i + 1 < row.size(); ++i) {
      const TimelineOp a = row[i].first, b = row[i + 1].first;
      if (row[i].second || row[i + 1].second || a.pass == Pass::BW || b.pass == Pass::BW) continue;
      if (is_backward(a) == is_backward(b) || (a.stage == b.stage && a.microbatch == b.microbatch)) continue;
      const std::vector<TimelineCell> before = row;
      row[i].second = b;
      row.erase(row.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      if (!validate(timeline, {})) row = before;
    }
}

Timeline changed(Timeline timeline, Halves halves, Pairs pairs) {
  for (auto& row : timeline.ranks) {
    if (pairs == Pairs::None) row = one_by_one(row);
    if (halves == Halves::Split) row = split_backwards(row);
    if (halves == Halves::Whole) row = join_backwards(row);
  }
  if (pairs == Pairs::All) pair_neighbours(timeline);
  must(validate(timeline, {}));
  return timeline;
}

/// Every microbatch forward and backward before the next.
Timeline in_turn_timeline(int microbatches) {
  Timeline out;
  out.ranks.resize(1);
  for (int m = 0; m < microbatches; ++m)
    for (const Pass pass : {Pass::F, Pass::B}) out.ranks[0].push_back({{0, pass, m}, {}});
  return out;
}

StagePlacement placement(const Combination& c) {
  return c.timeline.empty() ? StagePlacement::Line : find_timeline(c.timeline)->placement;
}

/// What orders the passes: nothing, a library timeline, or the orders of a changed one.
std::string ordering(const Combination& c) {
  const bool refused = c.grid.ranks == 1 && placement(c) == StagePlacement::TwoWay;  // there is no timeline to change
  const bool as_published = refused || (c.halves == Halves::AsPublished && c.pairs == Pairs::AsPublished);
  if (as_published) return c.timeline.empty() ? "" : fmt::format("use {}(stages=stage, microbatches=mb)\n", c.timeline);
  // without a timeline, ranks of a pipeline get the simplest one
  const Timeline published = c.timeline.empty() && c.grid.ranks == 1
                                 ? in_turn_timeline(c.microbatches())
                                 : must(make_timeline(c.timeline.empty() ? "gpipe" : c.timeline,
                                                      {.ranks = c.grid.ranks, .microbatches = c.microbatches()}, {}));
  std::string out;
  for (Order& order : orders_of(changed(published, c.halves, c.pairs), "stage", "mb"))
    if (order.elements.size() > 1) out += print(DirectiveBody{std::move(order)}) + "\n";
  return out;
}

std::string_view name(Release release) {
  return release == Release::Use ? "use" : release == Release::Pass ? "pass" : "step";
}

}  // namespace

int Combination::stages() const {
  if (timeline.empty()) return grid.ranks;
  return stage_count(placement(*this), grid.ranks, find_timeline(timeline)->default_stages_per_rank);
}

int Combination::layers() const {
  return std::max(timeline.empty() ? 4 : 2, stages());
}

/// Few, so that few references serve all: 4, 8 or 16 slices together with replicas.
int Combination::microbatches() const {
  const int least = timeline.starts_with("dualpipe") ? 2 * grid.ranks : grid.ranks;
  return std::max(least, grid.replicas * grid.experts <= 2 ? 4 : 2);
}

std::string Combination::describe() const {
  static const char *const halves_names[] = {"", " split", " whole"}, *const pairs_names[] = {"", " unpaired",
                                                                                              " paired"};
  return fmt::format(
      "{} {} ranks={} replicas={} experts={} zero={}{}{}{}{}{}{} {}", kind, timeline.empty() ? "unordered" : timeline,
      grid.ranks, grid.replicas, grid.experts, dividing.zero,
      dividing.zero == 3 ? fmt::format(" release={}", name(dividing.release)) : "",
      dividing.prefetch.empty() ? "" : " prefetch=" + dividing.prefetch, small_buckets ? " small buckets" : "",
      recompute ? " recompute" : "", halves_names[static_cast<int>(halves)], pairs_names[static_cast<int>(pairs)],
      legs == Legs::AdamWInFloat64 ? "adamw/float64+momentum/float32" : "adamw/float32+momentum/float64");
}

std::string Combination::schedule() const {
  const StagePlacement shape = placement(*this);
  std::string out =
      fmt::format("mesh(pp={}, dp={}, ep={})\nsplit(batch, parts={}, as=mb)\nplace({{}}, along=pp, stages={}{})\n",
                  grid.ranks, grid.replicas, grid.experts, microbatches(), stages(),
                  shape == StagePlacement::V        ? ", shape=v"
                  : shape == StagePlacement::TwoWay ? ", shape=two_way"
                                                    : "");
  if (grid.replicas * grid.experts > 1 || dividing.zero > 0)
    out += fmt::format("replicate({{}}, along=[dp, ep], zero={}{}{})\n", dividing.zero,
                       dividing.release == Release::Use ? "" : fmt::format(", release={}", name(dividing.release)),
                       small_buckets ? ", bucket=1KB" : "");
  if (grid.experts > 1) out += "shard({experts=*}, along=ep)\n";
  if (recompute) out += "recompute({layer=*})\n";
  out += ordering(*this);
  if (!dividing.prefetch.empty()) out += fmt::format("prefetch({{comm=gather}}, distance={})\n", dividing.prefetch);
  return out;
}

bool Combination::must_be_ordered() const {
  static const std::vector<std::string> in_order = {
      "gpipe", "1f1b", "interleaved-1f1b", "interleaved-zb", "zb-h1", "zb-h2", "zb-1p", "zb-2p"};
  return grid.replicas * grid.experts == 1 && !has_tied_weights(kind) &&
         std::find(in_order.begin(), in_order.end(), timeline) != in_order.end();
}

std::optional<Exclusion> exclusion(const Combination& c) {
  if (!c.timeline.empty() && c.grid.ranks == 1) {
    if (placement(c) == StagePlacement::TwoWay) return Exclusion{ErrorCode::E209, "one rank has no two directions"};
    return Exclusion{{}, "on one rank the timelines do not differ from what the unordered combinations do"};
  }
  if (c.grid.experts > 1 && !has_experts(c.kind)) return Exclusion{ErrorCode::E202, "the model has no experts"};
  if (c.grid.experts > subject_experts) return Exclusion{ErrorCode::E308, "fewer experts than devices"};
  if (!c.dividing.prefetch.empty() && c.grid.replicas * c.grid.experts == 1)
    return Exclusion{ErrorCode::E203, "nothing is gathered on one device"};
  return {};
}

const std::vector<std::string>& timeline_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out = {""};
    for (const TimelineInfo& info : timeline_library()) out.push_back(info.name);
    return out;
  }();
  return names;
}

const std::vector<DeviceGrid>& device_grids() {
  static const std::vector<DeviceGrid> all = [] {
    std::vector<DeviceGrid> out;
    for (const int devices : {1, 2, 4, 8})
      for (const int ranks : {1, 2, 4, 8})
        for (const int experts : {1, 2, 4, 8})
          if (const int replicas = devices / ranks / experts; replicas * ranks * experts == devices)
            out.push_back({ranks, replicas, experts});
    return out;
  }();
  return all;
}

const std::vector<Dividing>& dividings() {
  static const std::vector<Dividing> all = {
      {0, Release::Use, ""}, {1, Release::Use, ""},   {2, Release::Use, ""},
      {3, Release::Use, ""}, {3, Release::Pass, "2"}, {3, Release::Step, "all"},
  };
  return all;
}

}  // namespace piper
