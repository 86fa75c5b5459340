#include "search/answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/text_table.h"
#include "base/time_text.h"
#include "schedule/schedule_text.h"
#include "search/layout.h"
#include "timelines/library.h"

namespace piper {
namespace {

using nlohmann::ordered_json;

std::string percent(double share) {
  return fmt::format("{:.1f} %", 100 * share);
}

/// The links that join the devices of an axis, where they lie worst.
std::string links_of(const Problem& problem, const Spreads& spreads) {
  int top = 0;
  for (const Spread& spread : spreads) top = std::max(top, spread.top);
  return problem.cluster.levels[static_cast<size_t>(top)].name;
}

/// One line for each kind of directive that a candidate has.
class Reasons {
 public:
  Reasons(const Problem& problem, const Evaluated& evaluated)
      : problem_(problem),
        evaluated_(evaluated),
        candidate_(*evaluated.candidate),
        layout_(layout_of(problem.cluster, candidate_)) {}

  std::string of(const Mesh&) const {
    std::string out = fmt::format("{} devices", problem_.limits.devices);
    if (candidate_.pp > 1)
      out += fmt::format(", {} pipeline ranks joined by {}", candidate_.pp,
                         problem_.cluster.levels[static_cast<size_t>(layout_.level)].name);
    if (replicas(candidate_) > 1)
      out += fmt::format(", {} replicas over {}", replicas(candidate_), links_of(problem_, layout_.dense));
    return out;
  }
  std::string of(const Split&) const {
    const int64_t samples = samples_of(candidate_, problem_.limits.batch);
    return fmt::format("{} sample{} of a microbatch on each device", samples, samples == 1 ? "" : "s");
  }
  std::string of(const Place& place) const {
    if (place.stages < 2) return "all layers on every device";
    if (!place.at.empty()) return "cut where stages take equal time, with the head and the embedding counted";
    return fmt::format("about {:.3g} of {} {}s to a stage",
                       static_cast<double>(problem_.limits.model.instances) / place.stages,
                       problem_.limits.model.instances, problem_.limits.model.layers);
  }
  std::string of(const Replicate& replicate) const {
    constexpr std::array<std::string_view, 4> divided = {"nothing", "optimizer state", "gradients too", "all"};
    return fmt::format("divided: {}; a device holds {} weights, {} gradients, {} optimizer state",
                       divided[static_cast<size_t>(replicate.zero)], held(Category::Weights), held(Category::Gradients),
                       held(Category::Optimizer));
  }
  std::string of(const Shard& shard) const {
    if (candidate_.cp > 1 && shard.devices.along[0] == "cp")
      return fmt::format("{} of {} tokens on a device, {} over {}", problem_.limits.sequence / candidate_.cp,
                         problem_.limits.sequence,
                         candidate_.heads ? "heads are exchanged" : "keys and values are gathered",
                         links_of(problem_, layout_.along[Axis::Cp]));
    if (!shard.devices.along.empty() && shard.devices.along[0] == "ep")
      return fmt::format("{} of {} experts on a device, exchanges over {}",
                         problem_.limits.model.expert_count / candidate_.ep, problem_.limits.model.expert_count,
                         links_of(problem_, layout_.along[Axis::Ep]));
    return fmt::format("every layer divided among {} devices, sums over {}", candidate_.tp,
                       links_of(problem_, layout_.along[Axis::Tp]));
  }
  std::string of(const Recompute&) const {
    return fmt::format("computes more to keep less{}: {} of activations at the peak",
                       candidate_.recomputed_stages == every_stage ? "" : ", where most microbatches are kept",
                       held(Category::Activations));
  }
  std::string of(const Prefetch& prefetch) const {
    return fmt::format("parameters are gathered {} computations ahead", prefetch.distance.value_or(0));
  }
  std::string of(const Use&) const {
    return fmt::format("{} of the devices' time is without computation", percent(evaluated_.report.bubble));
  }
  std::string of(const Precision&) const { return ""; }
  std::string of(const Devices&) const { return ""; }
  std::string of(const Lose&) const { return ""; }
  std::string of(const Order&) const { return ""; }

 private:
  std::string held(Category category) const {
    return human_bytes(evaluated_.memory.by_category[static_cast<size_t>(category)]);
  }

  const Problem& problem_;
  const Evaluated& evaluated_;
  const Candidate& candidate_;
  Layout layout_;
};

/// Seconds of the critical path by kind; all computations are one.
std::map<std::string, double> path_by_kind(const StepReport& report) {
  std::map<std::string, double> out;
  for (const PathShare& share : report.path) {
    const bool computes =
        share.what == "F" || share.what == "B" || share.what == "BI" || share.what == "BW" || share.what == "R";
    out[computes ? "" : share.what] += share.seconds;
  }
  return out;
}

/// Links of this name join nodes, not the devices of one.
bool is_between_nodes(const Cluster& cluster, std::string_view link) {
  const auto level = std::ranges::find(cluster.levels, link, &LinkLevel::name);
  return level != cluster.levels.end() && level != cluster.levels.begin();
}

/// Mean seconds of computing on a device.
double computing(const StepReport& report) {
  return report.seconds * (1 - report.bubble);
}

std::string memory_text(const Evaluated& evaluated) {
  if (!evaluated.capacity) return human_bytes(evaluated.memory.total);
  const int64_t left = *evaluated.capacity - evaluated.memory.total;
  return fmt::format("{} of {}{}", human_bytes(evaluated.memory.total), human_bytes(*evaluated.capacity),
                     left >= 0 ? fmt::format(", {} left", human_bytes(left)) : "");
}

std::string numbers(const Evaluated& evaluated) {
  const StepReport& r = evaluated.report;
  return fmt::format(
      "step               {}\ntokens per second  {:.0f}\nMFU                {}\npeak memory        {}\n"
      "time               {} computing, {} waiting for communication, {} idle\n",
      human_seconds(r.seconds), r.tokens_per_second, percent(r.mfu), memory_text(evaluated), percent(1 - r.bubble),
      percent(r.exposed), percent(r.bubble - r.exposed));
}

std::string how_it_ended(const SearchResult& result) {
  const std::string looked =
      fmt::format("{} candidates, {} of them simulated", result.considered, result.evaluated.size());
  if (result.end == SearchEnd::Proved)
    return fmt::format("{}; no other can be faster by more than 0.3 %{}", looked,
                       result.hurried ? "; time was over before all other ideas were looked at" : "");
  const std::string why = result.end == SearchEnd::Budget ? "the budget was over"
                          : result.end == SearchEnd::Time
                              ? fmt::format("time was over after {:.0f} s of the budget", result.work)
                              : "it was stopped";
  const double best = result.best() ? result.best()->report.seconds : 0;
  const std::string otherwise = result.end == SearchEnd::Budget ? "" : "; another run may answer otherwise";
  if (best <= 0) return fmt::format("{}; {} before all were looked at{}", looked, why, otherwise);
  return fmt::format("{}; {} before all were looked at: those left may be faster by up to {:.1f} %{}", looked, why,
                     100 * std::max(0.0, 1 - result.bound / best), otherwise);
}

std::string price(const Evaluated& other, const Evaluated& best) {
  return fmt::format("{:+.1f} %", 100 * (other.report.seconds / best.report.seconds - 1));
}

const Evaluated* fastest_that_does_not_fit(const SearchResult& result) {
  const Evaluated* found = nullptr;
  for (const Evaluated& made : result.evaluated)
    if (!made.fits && (!found || made.report.seconds < found->report.seconds)) found = &made;
  return found;
}

ordered_json as_json(const Evaluated& evaluated) {
  ordered_json out;
  out["schedule"] = print(evaluated.schedule);
  if (!evaluated.name.empty()) out["file"] = evaluated.name;
  out["seconds"] = evaluated.report.seconds;
  out["tokens_per_second"] = evaluated.report.tokens_per_second;
  out["mfu"] = evaluated.report.mfu;
  out["bubble"] = evaluated.report.bubble;
  out["exposed_communication"] = evaluated.report.exposed;
  out["peak_bytes"] = evaluated.memory.total;
  if (evaluated.capacity) out["capacity_bytes"] = *evaluated.capacity;
  out["fits"] = evaluated.fits;
  return out;
}

}  // namespace

std::string explained(const Problem& problem, const Evaluated& evaluated) {
  if (!evaluated.candidate) return print(evaluated.schedule);
  const Reasons reasons(problem, evaluated);
  std::vector<std::pair<std::string, std::string>> lines;
  size_t width = 0;
  for (const Directive& directive : evaluated.schedule.directives) {
    lines.emplace_back(print(directive.body),
                       std::visit([&](const auto& body) { return reasons.of(body); }, directive.body));
    width = std::max(width, lines.back().first.size());
  }
  std::string out;
  for (const auto& [line, why] : lines) out += fmt::format("{:<{}}  # {}\n", line, width, why);
  return out;
}

std::string in_short(const Evaluated& evaluated) {
  if (!evaluated.candidate) return evaluated.name;
  const Candidate& c = *evaluated.candidate;
  std::string out = fmt::format("pp={}", c.pp);
  for (const Axis axis : {Axis::Dp, Axis::Ep, Axis::Cp, Axis::Tp})
    if (size_of(c, axis) > 1) out += fmt::format(" {}={}", name(axis), size_of(c, axis));
  out += fmt::format(", {} microbatch{}, {}, ZeRO {}", c.microbatches, c.microbatches == 1 ? "" : "es", c.timeline,
                     c.zero);
  if (!c.recompute.empty()) out += fmt::format(", recompute {}", c.recompute);
  if (c.recomputed_stages != every_stage) out += fmt::format(" in {} of {} stages", c.recomputed_stages, stages_of(c));
  return out;
}

std::string why_not(const Cluster& cluster, const Evaluated& other, const Evaluated& best) {
  if (!other.fits && other.capacity) {
    size_t most = 0;
    for (size_t c = 0; c < other.memory.by_category.size(); ++c)
      if (other.memory.by_category[c] > other.memory.by_category[most]) most = c;
    return fmt::format("does not fit: {} of {}, {} of them {}", human_bytes(other.memory.total),
                       human_bytes(*other.capacity), human_bytes(other.memory.by_category[most]),
                       name(static_cast<Category>(most)));
  }
  const auto before = path_by_kind(best.report);
  std::string what;
  double most = 0;
  for (const auto& [kind, seconds] : path_by_kind(other.report)) {
    const auto found = before.find(kind);
    const double more = seconds - (found == before.end() ? 0 : found->second);
    if (more > most) most = more, what = kind;
  }
  if (most < 1e-3 * best.report.seconds) return "takes as long";
  if (const size_t comma = what.find(", "); comma != std::string::npos) {
    const std::string collective = what.substr(0, comma), link = what.substr(comma + 2);
    // what the best does inside of nodes, or not at all
    if (before.find(what) == before.end() && is_between_nodes(cluster, link))
      return fmt::format("{} crosses nodes: {} over {}", collective, human_seconds(most), link);
    what = collective + " over " + link;
  }
  if (!what.empty()) return fmt::format("more {}: {}", what, human_seconds(most));
  if (const double more = computing(other.report) - computing(best.report); more > most / 2)
    return fmt::format("more to compute: {}", human_seconds(more));
  const auto idle = [](const StepReport& report) { return report.bubble - report.exposed; };
  const double waiting = other.report.exposed * other.report.seconds - best.report.exposed * best.report.seconds;
  if (idle(other.report) * other.report.seconds - idle(best.report) * best.report.seconds > waiting)
    return fmt::format("ranks wait for each other: {} idle, not {}", percent(idle(other.report)),
                       percent(idle(best.report)));
  return fmt::format("more waiting for communication: {}", human_seconds(waiting));
}

std::vector<const Evaluated*> pareto_front(const SearchResult& result) {
  std::vector<const Evaluated*> all;
  for (const Evaluated& made : result.evaluated) all.push_back(&made);
  std::ranges::stable_sort(all, [](const Evaluated* a, const Evaluated* b) {
    return std::pair(a->report.seconds, a->memory.total) < std::pair(b->report.seconds, b->memory.total);
  });
  std::vector<const Evaluated*> front;
  for (const Evaluated* made : all)
    if (front.empty() || made->memory.total < front.back()->memory.total) front.push_back(made);
  return front;
}

std::string print(const Problem& problem, const SearchResult& result, const std::vector<WayOut>& ways_out) {
  const Evaluated* best = result.best();
  std::string out;
  if (!best) {
    out += fmt::format("nothing fits: {}\n", how_it_ended(result));
    if (ways_out.empty()) out += "nor with more devices, a smaller batch or more memory, as far as was looked\n";
    for (const WayOut& way : ways_out)
      out += fmt::format("\nfits with {}: {} a step, {}\n{}", way.what, human_seconds(way.evaluated.report.seconds),
                         memory_text(way.evaluated), way.schedule);
    return out;
  }
  if (!best->name.empty()) out += fmt::format("# the fastest is {}\n", best->name);
  out += explained(problem, *best) + "\n" + numbers(*best) + "\n";
  TextTable others({"instead", "step", "", "memory", "schedule", "why not"});
  const auto add = [&](const std::string& idea, const Evaluated& other) {
    others.add({idea, human_seconds(other.report.seconds), price(other, *best), human_bytes(other.memory.total),
                in_short(other), why_not(problem.cluster, other, *best)});
  };
  for (const RunnerUp& runner : result.runners_up) add(fmt::format("other {}", name(runner.idea)), runner.evaluated);
  if (const Evaluated* large = fastest_that_does_not_fit(result); large && large->report.seconds < best->report.seconds)
    add("more memory", *large);
  for (const Evaluated& made : result.evaluated)
    if (!made.name.empty() && &made != best) add("yours", made);
  out += others.print() + "\n";
  return out + fmt::format("{}\n", how_it_ended(result));
}

std::string print_json(const Problem& problem, const SearchResult& result, const std::vector<WayOut>& ways_out) {
  ordered_json out;
  constexpr std::array<std::string_view, 4> ends = {"proved", "budget", "time", "stopped"};
  out["version"] = 1;
  out["model"] = problem.model;
  out["cluster"] = problem.cluster.name;
  out["devices"] = problem.limits.devices;
  out["batch"] = problem.limits.batch;
  out["end"] = ends[static_cast<size_t>(result.end)];
  out["work"] = result.work;
  out["candidates"] = result.considered;
  out["simulated"] = result.evaluated.size();
  if (std::isfinite(result.bound)) out["bound_of_the_rest"] = result.bound;
  if (const Evaluated* best = result.best()) {
    out["best"] = as_json(*best);
    for (const RunnerUp& runner : result.runners_up) {
      ordered_json entry = as_json(runner.evaluated);
      entry["idea"] = name(runner.idea);
      entry["why_not"] = why_not(problem.cluster, runner.evaluated, *best);
      out["runners_up"].push_back(std::move(entry));
    }
  }
  for (const WayOut& way : ways_out) {
    ordered_json entry = as_json(way.evaluated);
    entry["fits_with"] = way.what;
    out["ways_out"].push_back(std::move(entry));
  }
  for (const Evaluated* made : pareto_front(result))
    out["front"].push_back(
        {{"seconds", made->report.seconds}, {"peak_bytes", made->memory.total}, {"fits", made->fits}});
  return out.dump(2) + "\n";
}

}  // namespace piper
