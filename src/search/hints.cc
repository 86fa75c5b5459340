#include "search/hints.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "plan/communication_kinds.h"
#include "schedule/replace_directives.h"
#include "search/layout.h"
#include "sim/bare_timeline.h"
#include "timelines/library.h"

namespace piper {
namespace {

constexpr double worth_saying = 0.01;   // of the step time
constexpr double worth_a_trial = 0.02;  // by an estimate
constexpr size_t most_trials = 3;       // of each idea
constexpr size_t large_plan = 200'000;  // operations: one trial
constexpr double idle_worth_filling = 0.03;

template <class Body>
const Directive* only(const Schedule& schedule) {
  const Directive* found = nullptr;
  for (const Directive& directive : schedule.directives)
    if (std::holds_alternative<Body>(directive.body)) {
      if (found) return nullptr;
      found = &directive;
    }
  return found;
}

/// The changes that promise most are tried, and the fastest of them is the hint.
struct Promise {
  double estimate = 0;  // seconds of the step
  std::vector<Directive> instead;
  std::string why;
};

std::optional<Hint> best_of(std::vector<Promise> promises, const HintedStep& step, const Trial& trial) {
  std::ranges::stable_sort(promises, {}, &Promise::estimate);
  std::optional<Hint> best;
  size_t tried = 0, operations = 0;
  for (const PlanTemplate& of : step.compiled.plan.templates) operations += of.ops.size();
  for (Promise& promise : promises) {
    if (tried == (operations > large_plan ? 1 : most_trials)) break;
    const auto changed = with_directives(step.schedule, promise.instead);
    const auto made = changed ? trial(*changed) : Result<TriedStep>(changed.error());
    if (!made) continue;  // not legal for this model
    ++tried;
    if ((step.fits && !made->fits) || made->seconds > step.report.seconds * (1 - worth_saying)) continue;
    if (!best || made->seconds < best->seconds)
      best = Hint{std::move(promise.instead), made->seconds, std::move(promise.why)};
  }
  return best;
}

// --- another order of the axes ---

/// A collective, or a transfer between two devices, that a device takes part in.
struct Traveller {
  std::optional<CollectiveKind> kind;  // none: a transfer
  std::string_view name;
  DeviceList devices;
  int64_t bytes = 0;
  friend auto operator<=>(const Traveller&, const Traveller&) = default;
};

/// The part of a partition with this device.
DeviceList part_of(const PlanPartition& partition, int device) {
  const auto found = std::ranges::find(partition.members, device) - partition.members.begin();
  const auto first = partition.members.begin() + found / partition.part_size * partition.part_size;
  return {first, first + partition.part_size};
}

/// What the first device of each template sends and receives, and how often.
using Travels = std::map<Traveller, int>;
std::vector<Travels> travels_of(const Plan& plan) {
  std::vector<Travels> out;
  for (const PlanTemplate& of : plan.templates) {
    std::map<CommunicationId, std::pair<OpKind, int>> counts;
    for (const PlannedOp& op : of.ops)
      if (op.communication.valid()) {
        auto& [kind, count] = counts[op.communication];
        kind = op.kind;
        ++count;
      }
    Travels& travels = out.emplace_back();
    const int device = of.devices[0];
    for (const auto& [id, counted] : counts) {
      const Communication& communication = plan.communications[id];
      if (communication.transfer) {
        const DeviceList &from = plan.groups[communication.from], &to = plan.groups[communication.to];
        const DeviceList& mine = counted.first == OpKind::Send ? from : to;
        const DeviceList& theirs = counted.first == OpKind::Send ? to : from;
        const auto at = static_cast<size_t>(std::ranges::find(mine, device) - mine.begin());
        if (at == mine.size()) continue;
        const int peer = theirs[at * theirs.size() / mine.size()];
        travels[{{}, "transfer", {device, peer}, communication.bytes}] += counted.second;
      } else {
        travels[{collective_of(counted.first), name(counted.first),
                 part_of(plan.partitions[communication.over], device), communication.bytes}] += counted.second;
      }
    }
  }
  return out;
}

/// How long they take with every device where `place` puts it, and the outermost links that each kind needs.
struct TravelTime {
  double seconds = 0;                                         // of the device with the longest
  std::map<std::string_view, std::pair<int, double>> levels;  // the outermost, and seconds, by kind
};
TravelTime travel_time(const Cluster& cluster, const std::vector<Travels>& travels, const std::vector<int>& place) {
  TravelTime out;
  for (const Travels& of_device : travels) {
    double sum = 0;
    for (const auto& [traveller, count] : of_device) {
      DeviceList moved;
      for (const int device : traveller.devices) moved.push_back(place[static_cast<size_t>(device)]);
      int level = 0;
      double seconds = 0;
      if (traveller.kind) {
        const Spread spread = spread_of(cluster, moved);
        level = spread.top;
        seconds = least_seconds(cluster, {spread}, *traveller.kind, traveller.bytes);
      } else if (moved[0] != moved[1]) {
        level = common_level(cluster, moved[0], moved[1]);
        seconds = alone_seconds(transfer_traffic(cluster, level, traveller.bytes));
      }
      auto& [outermost, together] = out.levels[traveller.name];
      outermost = std::max(outermost, level);
      together += count * seconds;
      sum += count * seconds;
    }
    out.seconds = std::max(out.seconds, sum);
  }
  return out;
}

/// Where a mesh with its axes in another order puts the device that stands elsewhere in this one.
std::vector<int> places(const std::vector<MeshAxis>& axes, const std::vector<MeshAxis>& other) {
  const int devices = std::accumulate(axes.begin(), axes.end(), 1, [](int n, const MeshAxis& a) { return n * a.size; });
  std::vector<int> out;
  for (int device = 0; device < devices; ++device) {
    std::map<std::string_view, int> coordinate;
    for (int rest = device, a = static_cast<int>(axes.size()); a-- > 0;) {
      const MeshAxis& axis = axes[static_cast<size_t>(a)];
      coordinate[axis.name] = rest % axis.size;
      rest /= axis.size;
    }
    int place = 0;
    for (const MeshAxis& axis : other) place = place * axis.size + coordinate[axis.name];
    out.push_back(place);
  }
  return out;
}

bool lists_devices(const Schedule& schedule) {
  const auto lists = []<class Body>(const Body& body) {
    if constexpr (requires { body.devices.lists; })
      return !body.devices.lists.empty();
    else
      return std::is_same_v<Body, Lose>;
  };
  return std::ranges::any_of(schedule.directives, [&](const Directive& d) { return std::visit(lists, d.body); });
}

/// What gets off slow links: of the kinds that need nearer ones, the one that takes longest now.
std::string off_slow_links(const Cluster& cluster, const TravelTime& now, const TravelTime& then) {
  std::string_view what;
  double most = 0;
  for (const auto& [name, before] : now.levels) {
    const auto& after = then.levels.at(name);
    if (after.first < before.first && before.second > most) what = name, most = before.second;
  }
  if (what.empty()) return "less over slow links";
  const auto link = [&](int level) { return cluster.levels[static_cast<size_t>(level)].name; };
  return fmt::format("{} over {} instead of {}", what, link(then.levels.at(what).first),
                     link(now.levels.at(what).first));
}

std::optional<Hint> other_order(const HintedStep& step, const Trial& trial) {
  const Directive* directive = only<Mesh>(step.schedule);
  const int devices = device_count(step.compiled.plan);
  if (!directive || lists_devices(step.schedule) || common_level(step.cluster, 0, devices - 1) == 0) return {};
  const std::vector<MeshAxis>& axes = std::get<Mesh>(directive->body).axes;
  std::vector<size_t> order, real;  // axes of one device stay where they are
  for (size_t a = 0; a < axes.size(); ++a)
    if (axes[a].size > 1) real.push_back(a);
  order = real;
  const std::vector<Travels> travels = travels_of(step.compiled.plan);
  const TravelTime now = travel_time(step.cluster, travels, places(axes, axes));
  std::vector<Promise> promises;
  while (std::next_permutation(order.begin(), order.end()) || order != real) {
    std::vector<MeshAxis> other = axes;
    for (size_t i = 0; i < real.size(); ++i) other[real[i]] = axes[order[i]];
    const TravelTime then = travel_time(step.cluster, travels, places(axes, other));
    const double saved = now.seconds - then.seconds;
    if (saved > worth_a_trial * step.report.seconds)
      promises.push_back(
          {step.report.seconds - saved, {{Mesh{other}, directive->where}}, off_slow_links(step.cluster, now, then)});
  }
  return best_of(std::move(promises), step, trial);
}

// --- another timeline ---

StageShape shape_of(StagePlacement placement) {
  if (placement == StagePlacement::V) return StageShape::V;
  return placement == StagePlacement::TwoWay ? StageShape::TwoWay : StageShape::Loop;
}

/// Of a pipeline of equal stages whose passes take equal time; nothing if the timeline has no such sizes.
std::optional<double> makespan(const TimelineInfo& info, const TimelineRequest& request) {
  const auto made = make_timeline(info.name, request, {});
  if (!made) return std::nullopt;
  // of two directions a stage has half of the microbatches
  const double pass = info.placement == StagePlacement::TwoWay ? 1.0 : 1.0 / stages_per_rank(info, request);
  return timeline_report(*made, {pass, pass, pass}, {}).makespan;
}

std::optional<Hint> other_timeline(const HintedStep& step, const Trial& trial) {
  const Directive *use = only<Use>(step.schedule), *place = only<Place>(step.schedule);
  const Directive* split = only<Split>(step.schedule);
  if (!use || !place || !split || step.report.bubble - step.report.exposed < idle_worth_filling) return {};
  const auto& now = std::get<Use>(use->body);
  const auto& stages = std::get<Place>(place->body);
  const TimelineInfo* library = find_timeline(now.timeline);
  if (!library || library->takes_placement || stages.stages == 0 || !stages.ranks.empty() ||
      stages.devices.along.size() != 1)
    return {};
  const auto axis = std::ranges::find(step.compiled.linear.dag.mesh, stages.devices.along[0], &MeshAxis::name);
  if (axis == step.compiled.linear.dag.mesh.end() || axis->size < 2) return {};
  TimelineRequest request;
  request.ranks = axis->size;
  request.microbatches = std::get<Split>(split->body).parts;
  const bool two_way = library->placement == StagePlacement::TwoWay;
  const int per_rank = two_way ? 1 : std::max(1, stages.stages / axis->size);
  const auto sized = [&](const TimelineInfo& info) {
    TimelineRequest out = request;
    if (info.takes_stages_per_rank) out.stages_per_rank = std::max(2, per_rank);
    return out;
  };
  TimelineRequest mine = sized(*library);
  mine.group = now.group;
  if (now.memory_limit) mine.memory_limit = *now.memory_limit;
  const auto before = makespan(*library, mine);
  if (!before) return {};
  std::vector<Promise> promises;
  for (const TimelineInfo& info : timeline_library()) {
    if (info.takes_placement || info.name == library->name) continue;
    const TimelineRequest theirs = sized(info);
    const auto after = makespan(info, theirs);
    if (!after || *after > *before * (1 - worth_a_trial)) continue;
    Use other = now;
    other.timeline = info.name;
    std::ranges::replace(other.timeline, '-', '_');
    other.group.reset();
    other.memory_limit.reset();
    Place placed = stages;
    placed.stages = stage_count(info.placement, axis->size, stages_per_rank(info, theirs));
    placed.shape = shape_of(info.placement);
    if (placed.stages != stages.stages) placed.at.clear();
    Promise promise{step.report.seconds * *after / *before, {}, ""};
    if (placed != stages) promise.instead.push_back({placed, place->where});
    promise.instead.push_back({other, use->where});
    promise.why = fmt::format("ranks wait less for each other ({:.1f} % of the time here)",
                              100 * (step.report.bubble - step.report.exposed));
    promises.push_back(std::move(promise));
  }
  return best_of(std::move(promises), step, trial);
}

}  // namespace

std::vector<Hint> hints(const HintedStep& step, const Trial& trial) {
  std::vector<Hint> out;
  for (auto& hint : {other_order(step, trial), other_timeline(step, trial)})
    if (hint) out.push_back(*hint);
  return out;
}

}  // namespace piper
