#include "search/bound.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "directives/instances.h"
#include "ir/local_size.h"
#include "search/pipeline_clock.h"
#include "timelines/library.h"

namespace piper {
namespace {

/// Finds what a key stands for, or makes it. Made outside of the lock: two threads may make the same once each.
template <class Key, class Value, class Make>
Value remembered(std::mutex& mutex, Remembered<Key, Value>& all, const Key& key, Make make) {
  const auto keep = [&](Value value) {
    if (all.now.size() >= all.most) all.before = std::exchange(all.now, {});
    return all.now.emplace(key, std::move(value)).first->second;
  };
  {
    const std::lock_guard lock(mutex);
    if (const auto found = all.now.find(key); found != all.now.end()) return found->second;
    if (const auto found = all.before.find(key); found != all.before.end()) return keep(found->second);
  }
  Value made = make();
  const std::lock_guard lock(mutex);
  return keep(std::move(made));
}

auto rank_key(const Candidate& c) {
  return std::tuple(std::array{c.ep, c.cp, c.tp}, c.recompute,
                    std::array{c.sequence, c.vocabulary, c.heads, c.regather});
}

auto layout_key(const Candidate& c) {
  return std::tuple(std::array{c.pp, c.dp, c.ep, c.cp, c.tp}, c.order);
}

auto timeline_key(const Candidate& c) {
  return std::tuple(c.timeline, c.pp, c.microbatches, c.stages_per_rank);
}

bool is_two_way(const Candidate& candidate) {
  return placement_of(candidate) == StagePlacement::TwoWay;
}

/// Its order is known when it is compiled.
bool is_made_by_costs(const Candidate& candidate) {
  return find_timeline(candidate.timeline)->takes_placement;
}

/// Forwards and backwards of one chunk beside those of another: their communication may take no time of its own.
bool overlaps(const Candidate& candidate) {
  return candidate.timeline.starts_with("dualpipe");
}

/// No backward is split: what a rank does last is a backward of one of its stages.
bool has_whole_backwards(const Candidate& candidate) {
  constexpr std::array<std::string_view, 5> names = {"gpipe", "1f1b", "interleaved-1f1b", "looped-bfs", "1f1b-v"};
  return std::ranges::find(names, candidate.timeline) != names.end();
}

std::vector<int> starts_of(const Candidate& candidate, int instances) {
  const int stages = stages_of(candidate);
  if (candidate.at.empty()) return even_starts(std::max(instances, 1), stages);
  std::vector<int> out = {0};
  out.insert(out.end(), candidate.at.begin(), candidate.at.end());
  return out;
}

int rank_of_stage(const Candidate& candidate, int stage, int direction = 0) {
  return rank_of(placement_of(candidate), stage, candidate.pp, direction);
}

/// The kind of device that sets the pace of a stage: the slowest of its rank; if two ranks run it, of the faster one.
size_t kind_of_stage(const Candidate& candidate, const Layout& layout, const Microbatch& microbatch, int stage) {
  const auto forward = [&](size_t kind) {
    double seconds = 0;
    for (const MicrobatchNode& node : microbatch.forward)
      if (!node.axis) seconds += node.seconds[kind];
    return seconds;
  };
  const auto slowest = [&](int direction) {
    const auto rank = static_cast<size_t>(rank_of_stage(candidate, stage, direction));
    return *std::ranges::max_element(layout.kinds[rank], {}, forward);
  };
  const size_t there = slowest(0), back = slowest(1);
  return forward(there) <= forward(back) ? there : back;
}

/// Forward and backward of a stage, whichever way backward runs.
double least_backward(const StageSeconds& stage) {
  return std::min(stage.backward.alone(), stage.input.alone() + stage.weights);
}

/// The kind of each stage.
std::vector<size_t> kinds_of_stages(const Candidate& candidate, const Layout& layout, const Microbatch& microbatch,
                                    const Cluster& cluster) {
  std::vector<size_t> out(static_cast<size_t>(stages_of(candidate)), 0);
  for (size_t s = 0; s < out.size() && cluster.kinds.size() > 1; ++s)
    out[s] = kind_of_stage(candidate, layout, microbatch, static_cast<int>(s));
  return out;
}

/// Seconds of every instance, by kind of device.
using InstanceSeconds = std::vector<std::vector<double>>;

/// First instances of all stages but the first, if no stage takes longer than this; nothing if that cannot be.
std::optional<std::vector<int>> cut_below(const InstanceSeconds& seconds, const std::vector<size_t>& kinds,
                                          double limit) {
  std::vector<int> starts;
  double filled = 0;
  const int instances = static_cast<int>(seconds[0].size());
  for (int i = 0; i < instances; ++i) {
    const auto next = [&] { return seconds[kinds[starts.size()]][static_cast<size_t>(i)]; };
    const int missing = static_cast<int>(kinds.size() - 1 - starts.size());  // stages that still have to begin
    if (i > 0 && missing > 0 && (filled + next() > limit || instances - i == missing)) {
      starts.push_back(i);
      filled = 0;
    }
    filled += next();
    if (filled > limit) return std::nullopt;
  }
  if (starts.size() != kinds.size() - 1) return std::nullopt;
  return starts;
}

/// Cuts a row of instances so that the longest stage is as short as possible, each on its kind of device.
std::vector<int> cut_evenly(const InstanceSeconds& seconds, const std::vector<size_t>& kinds) {
  double low = 0, high = 0;
  for (const std::vector<double>& of_kind : seconds)
    high = std::max(high, std::accumulate(of_kind.begin(), of_kind.end(), 0.0) * (1 + 1e-9));
  std::vector<int> best = cut_below(seconds, kinds, high).value_or(std::vector<int>{});
  for (int round = 0; round < 40; ++round) {
    const double middle = (low + high) / 2;
    if (auto cuts = cut_below(seconds, kinds, middle)) {
      best = std::move(*cuts);
      high = middle;
    } else {
      low = middle;
    }
  }
  return best;
}

InstanceMemory sum(const std::vector<InstanceMemory>& instances, int first, int past) {
  InstanceMemory out;
  for (int i = first; i < past; ++i) {
    const InstanceMemory& one = instances[static_cast<size_t>(i)];
    out.kept += one.kept;
    out.kept_for_weights += one.kept_for_weights;
    out.handed += one.handed;
    out.dense += one.dense;
    out.experts += one.experts;
    out.undivided += one.undivided;
    out.forward = std::max(out.forward, one.forward);
    for (size_t w = 0; w < out.both.size(); ++w) {
      out.read[w] = std::max(out.read[w], one.read[w]);
      out.made[w] = std::max(out.made[w], one.made[w]);
      out.both[w] = std::max(out.both[w], one.both[w]);
    }
  }
  return out;
}

}  // namespace

namespace {

/// Microseconds of a core: about, for models of any size.
constexpr double of_rank = 30, of_microbatch = 30, of_form = 10;    // of a chunk
constexpr double of_stage = 2.5, of_cell = 0.25, of_pipeline = 10;  // of a pass of the timeline

double passes(const Candidate& candidate, int microbatches) {
  return 3.0 * microbatches * stages_of(candidate);
}

}  // namespace

Bounds::Bounds(const Problem& problem) : problem_(problem) {
  if (const auto model = problem.models->get(LayerForm::Blocks, {})) chunks_ = std::ssize((*model)->chunks);
  const auto parts = problem.models->get(LayerForm::Sharded, {});
  parts_ = parts ? std::ssize((*parts)->chunks) : chunks_;
}

void Bounds::count(double microseconds, double count) const {
  microseconds_ += static_cast<int64_t>(microseconds * count) + 1;
}

template <class Key>
bool Bounds::is_new(std::set<Key>& seen, const Key& key) {
  const std::lock_guard lock(mutex_);
  return seen.insert(key).second;
}

Bounds::RankResult Bounds::rank(const Candidate& candidate) {
  if (is_new(seen_ranks_, RankKey(rank_key(candidate)))) count(of_rank, chunks_of(candidate));
  return remembered(mutex_, ranks_, RankKey(rank_key(candidate)), [&]() -> RankResult {
    if (candidate.ep > 1 && candidate.tp > 1) {  // what tensor parallelism cannot divide needs no larger groups
      Candidate without = candidate;
      without.ep = 1;
      if (const RankResult found = rank(without); !*found) return found;
    }
    const auto model = model_for(problem_, candidate);
    return std::make_shared<const Result<std::shared_ptr<RankDag>>>(
        model ? RankDag::make(**model, facts_for(problem_, candidate), candidate, problem_.cluster, problem_.costs)
              : Result<std::shared_ptr<RankDag>>(model.error()));
  });
}

Bounds::MicrobatchResult Bounds::microbatch(const Candidate& candidate) {
  const int64_t samples = samples_of(candidate, problem_.limits.batch);
  if (is_new(seen_microbatches_, MicrobatchKey(rank_key(candidate), samples)))
    count(of_microbatch, chunks_of(candidate));
  return remembered(mutex_, microbatches_, MicrobatchKey(rank_key(candidate), samples), [&]() -> MicrobatchResult {
    const RankResult rank = this->rank(candidate);
    return std::make_shared<const Result<Microbatch>>(*rank ? (**rank)->microbatch(samples)
                                                            : Result<Microbatch>(rank->error()));
  });
}

std::shared_ptr<const Layout> Bounds::layout(const Candidate& candidate) {
  return remembered(mutex_, layouts_, LayoutKey(layout_key(candidate)), [&] {
    Layout made = layout_of(problem_.cluster, candidate);
    const std::lock_guard lock(mutex_);
    const auto number = [&](const Spreads& spreads) {
      const auto found = std::ranges::find(spreads_, spreads);
      if (found == spreads_.end()) spreads_.push_back(spreads);
      return static_cast<int>(std::ranges::find(spreads_, spreads) - spreads_.begin());
    };
    for (const Axis axis : communicating_axes) made.number[axis] = number(made.along[axis]);
    return std::make_shared<const Layout>(std::move(made));
  });
}

std::shared_ptr<const CommunicationSeconds> Bounds::communication(const MicrobatchResult& found, const Layout& layout) {
  const Microbatch& microbatch = **found;
  return remembered(mutex_, communications_, CommunicationKey(found, layout.number), [&] {
    CommunicationSeconds out;
    std::map<std::tuple<Axis, CollectiveKind, int64_t>, double> known;
    const auto seconds = [&](const MicrobatchNode& node) {
      if (!node.axis) return 0.0;
      const auto [found, fresh] = known.emplace(std::tuple(*node.axis, node.kind, node.bytes), 0);
      if (fresh) found->second = least_seconds(problem_.cluster, layout.along[*node.axis], node.kind, node.bytes);
      return found->second;
    };
    for (const MicrobatchNode& node : microbatch.forward) out.forward.push_back(seconds(node));
    for (const MicrobatchNode& node : microbatch.backward) out.backward.push_back(seconds(node));
    return std::make_shared<const CommunicationSeconds>(std::move(out));
  });
}

Result<Bounds::Made> Bounds::made(const Candidate& candidate) {
  Made out;
  out.first = microbatch(candidate);
  const bool everywhere = candidate.recomputed_stages == every_stage;
  out.rest = everywhere ? out.first : microbatch(without_recomputation(candidate));
  for (const MicrobatchResult& found : {out.first, out.rest})
    if (!*found) return found->error();
  const auto layout = this->layout(candidate);
  out.of_first = communication(out.first, *layout);
  out.of_rest = communication(out.rest, *layout);
  out.recomputed = everywhere ? stages_of(candidate) : candidate.recomputed_stages;
  out.kinds = kinds_of_stages(candidate, *layout, **out.first, problem_.cluster);
  return out;
}

Bounds::MadeKey Bounds::key_of(const Made& made, const Candidate& candidate) {
  return {made.first, made.rest, made.recomputed, layout(candidate)->number, made.kinds};
}

Result<Bounds::StagesPtr> Bounds::stages(const Candidate& candidate) {
  PIPER_TRY(const Made made, this->made(candidate));
  const std::vector<int> starts = starts_of(candidate, facts_for(problem_, candidate).instances);
  return remembered(mutex_, stages_, StagesKey(key_of(made, candidate), starts), [&]() -> StagesPtr {
    Stages out;
    for (size_t s = 0; s < starts.size(); ++s) {
      const Microbatch& microbatch = made.microbatch(s);
      const int past = s + 1 < starts.size() ? starts[s + 1] : static_cast<int>(microbatch.memory.size());
      out.seconds.push_back(stage_seconds(microbatch, starts[s], past, made.kinds[s], made.communication(s)));
      const InstanceMemory& last = microbatch.memory[static_cast<size_t>(past - 1)];
      out.memory.push_back({sum(microbatch.memory, starts[s], past), last});
      if (s + 1 < starts.size()) out.sent = s == 0 ? last.sent : std::min(out.sent, last.sent);
    }
    return std::make_shared<const Stages>(std::move(out));
  });
}

Result<std::shared_ptr<const Timeline>> Bounds::timeline(const Candidate& candidate) {
  const auto found = remembered(mutex_, timelines_, timeline_key(candidate), [&] {
    return std::make_shared<const Result<Timeline>>(make_timeline(candidate.timeline, request_of(candidate), {}));
  });
  if (!*found) return found->error();
  return std::shared_ptr<const Timeline>(found, &**found);
}

Result<std::vector<int>> Bounds::balanced_cuts(const Candidate& candidate) {
  PIPER_TRY(const Made made, this->made(candidate));
  return *remembered(mutex_, cuts_, key_of(made, candidate), [&] {
    const int instances = static_cast<int>((**made.first).memory.size());
    InstanceSeconds seconds;       // of each different stage
    std::vector<size_t> of_stage;  // which of them it is
    std::map<std::pair<bool, size_t>, size_t> known;
    for (size_t s = 0; s < made.kinds.size(); ++s) {
      const auto [found, fresh] = known.emplace(std::pair(made.is_first(s), made.kinds[s]), seconds.size());
      of_stage.push_back(found->second);
      if (!fresh) continue;
      auto& times = seconds.emplace_back();
      for (int i = 0; i < instances; ++i) {
        const StageSeconds stage = stage_seconds(made.microbatch(s), i, i + 1, made.kinds[s], made.communication(s));
        times.push_back(stage.forward.alone() + least_backward(stage));
      }
    }
    std::vector<int> cuts = cut_evenly(seconds, of_stage);
    std::vector<int> even = even_starts(instances, stages_of(candidate));
    even.erase(even.begin());
    if (cuts == even) cuts.clear();
    return std::make_shared<const std::vector<int>>(std::move(cuts));
  });
}

Result<double> Bounds::mesh(const Candidate& candidate) {
  const std::vector<bool> no = {false}, either = {false, true};
  Candidate made = without_recomputation(candidate);
  Result<double> least = form(made);
  // sequence parallelism divides more; more of the vocabulary, or heads, may also be more computations
  for (const bool sequence : candidate.tp > 1 ? std::vector<bool>{true, false} : no) {
    made.sequence = sequence;
    for (const bool heads : candidate.cp > 1 ? either : no)
      for (const bool vocabulary : candidate.tp > 1 ? either : no) {
        made.heads = heads, made.vocabulary = vocabulary;
        const Result<double> seconds = form(made);
        if (seconds && (!least || *seconds < *least)) least = seconds;
      }
    if (sequence && least) break;
  }
  return least;
}

Result<double> Bounds::form(const Candidate& candidate) {
  if (candidate.recomputed_stages != every_stage) return form(without_recomputation(candidate));
  count(of_form, chunks_of(candidate));
  const RankResult found = rank(candidate);
  if (!*found) return found->error();
  PIPER_TRY(const double seconds, (**found)->least_seconds(samples_of(candidate, problem_.limits.batch)));
  return candidate.microbatches * seconds / candidate.pp;
}

bool Bounds::may_fit(const Candidate& candidate) {
  const MicrobatchResult found = microbatch(candidate);
  if (!*found) return false;
  // when the last stage has run forward, all ranks keep what they have of the microbatch: one of them at least the mean
  int64_t kept = 0, most = 0;
  for (const InstanceMemory& memory : (**found).memory) kept += memory.kept;
  for (const DeviceKind& kind : problem_.cluster.kinds) {
    if (!kind.memory) return true;
    most = std::max(most, *kind.memory);
  }
  return kept / candidate.pp <= most;
}

void RankBound::add(const InstanceMemory& stage, double start) {
  stages.push_back({start, stage.dense, stage.experts});
  dense += stage.dense;
  experts += stage.experts;
  undivided += stage.undivided;
}

namespace {

/// What any timeline keeps on a rank: one microbatch of each of its stages at a time, whichever way backward runs.
ActivationPeak least_activations(const Candidate& candidate, int rank, const std::vector<StageMemory>& stages) {
  std::vector<TimelineCell> whole, split;
  for (int c = 0; c < candidate.stages_per_rank; ++c) {
    const int stage = stage_of(placement_of(candidate), rank, c, candidate.pp);
    for (const Pass pass : {Pass::F, Pass::B}) whole.push_back({{stage, pass, 0}, {}});
    for (const Pass pass : {Pass::F, Pass::BI, Pass::BW}) split.push_back({{stage, pass, 0}, {}});
  }
  ActivationPeak out = peak_activations(whole, stages);
  const ActivationPeak other = peak_activations(split, stages);
  out.any = std::min(out.any, other.any);
  for (size_t w = 0; w < out.with_whole.size(); ++w)
    out.with_whole[w] = std::min(out.with_whole[w], other.with_whole[w]);
  return out;
}

}  // namespace

/// With more microbatches a timeline keeps no less. One that begins with all forwards keeps as much more as they make.
Result<std::vector<ActivationPeak>> Bounds::activations(const Candidate& candidate, const Stages& stages) {
  std::vector<ActivationPeak> out;
  if (is_made_by_costs(candidate)) {
    for (int r = 0; r < candidate.pp; ++r) out.push_back(least_activations(candidate, r, stages.memory));
    return out;
  }
  Candidate few = candidate;
  few.microbatches = std::min(candidate.microbatches, 3 * candidate.pp);
  PIPER_TRY(const auto timeline, this->timeline(few));
  const bool forwards_first = candidate.timeline == "gpipe" || candidate.timeline == "looped-bfs";
  const int64_t more = forwards_first ? candidate.microbatches - few.microbatches : 0;
  for (const auto& row : timeline->ranks) {
    ActivationPeak& peak = out.emplace_back(peak_activations(row, stages.memory));
    for (int c = 0; more > 0 && c < candidate.stages_per_rank; ++c) {
      const int stage = stage_of(placement_of(candidate), static_cast<int>(out.size()) - 1, c, candidate.pp);
      const int64_t kept = more * stages.memory[static_cast<size_t>(stage)].all.kept;
      peak.any += kept;
      for (int64_t& bytes : peak.with_whole) bytes += kept;
    }
  }
  return out;
}

/// Each rank is busy from the first microbatch that reaches it; behind its last whole backward come those of the stages
/// before.
Result<PipelineBound> Bounds::sums(const Candidate& candidate) {
  count(of_stage, stages_of(candidate));
  count(of_cell, passes(candidate, std::min(candidate.microbatches, 3 * candidate.pp)));
  PIPER_TRY(const auto stages, this->stages(candidate));
  PIPER_TRY(const std::vector<ActivationPeak> activations, this->activations(candidate, *stages));
  const bool overlapped = overlaps(candidate), two_way = is_two_way(candidate);
  const bool whole = has_whole_backwards(candidate);
  const double m = candidate.microbatches;
  PipelineBound out;
  out.ranks.resize(static_cast<size_t>(candidate.pp));
  std::vector<bool> seen(out.ranks.size(), false);
  double before = 0, behind = 0;  // until the first microbatch reaches the stage; when its last backward has run
  for (size_t s = 0; s < stages->seconds.size(); ++s) {
    const StageSeconds& stage = stages->seconds[s];
    const InstanceMemory& memory = stages->memory[s].all;
    const double computed =
        overlapped ? stage.forward.compute + std::min(stage.backward.compute, stage.input.compute + stage.weights)
                   : stage.forward.alone() + (whole ? stage.backward.alone() : least_backward(stage));
    const double both = std::max(computed, std::ranges::max(stage.communicated.of));
    const auto r = static_cast<size_t>(rank_of_stage(candidate, static_cast<int>(s)));
    RankBound& rank = out.ranks[r];
    rank.end += (two_way ? m / 2 : m) * both;
    rank.add(memory, 0);
    if (two_way) {
      RankBound& other = out.ranks[out.ranks.size() - 1 - r];
      other.end += m / 2 * both;
      other.add(memory, 0);
    } else if (!seen[r]) {
      rank.end += before + (whole ? behind : 0);
      seen[r] = true;
    }
    before += stage.forward.alone();
    behind += stage.after_gradient;
  }
  for (size_t r = 0; r < out.ranks.size(); ++r) {
    out.ranks[r].activations = activations[r];
    out.seconds = std::max(out.seconds, out.ranks[r].end);
  }
  out.layout = *layout(candidate);
  out.largest_parameter = (**microbatch(candidate)).largest_parameter;
  return out;
}

Result<Bound> Bounds::pipeline(const Candidate& candidate) {
  PIPER_TRY(const PipelineBound sums, this->sums(candidate));
  count(of_pipeline, candidate.pp);
  Bound out;
  out.fits = false;
  for (Candidate& made : cheapest_replications(problem_.limits, candidate)) {
    const Bound bound = replication(made, sums);
    out.bytes = out.bytes == 0 ? bound.bytes : std::min(out.bytes, bound.bytes);
    if (!bound.fits) continue;
    out.seconds = out.fits ? std::min(out.seconds, bound.seconds) : bound.seconds;
    out.fits = true;
  }
  if (!out.fits) out.seconds = sums.seconds;
  return out;
}

Result<std::shared_ptr<const PipelineBound>> Bounds::clock(const Candidate& candidate) {
  if (is_made_by_costs(candidate)) {
    PIPER_TRY(PipelineBound out, sums(candidate));
    return std::make_shared<const PipelineBound>(std::move(out));
  }
  count(of_cell, passes(candidate, candidate.microbatches));
  PIPER_TRY(const auto stages, this->stages(candidate));
  PIPER_TRY(const auto timeline, this->timeline(candidate));
  const auto layout = this->layout(candidate);
  const double transfer =
      candidate.pp > 1 ? alone_seconds(transfer_traffic(problem_.cluster, layout->level, stages->sent)) : 0;
  const auto times = remembered(mutex_, times_, TimesKey(stages, timeline_key(candidate), transfer), [&] {
    return std::make_shared<const PipelineTimes>(run_pipeline(*timeline, stages->seconds, transfer));
  });
  auto out = std::make_shared<PipelineBound>();
  for (size_t r = 0; r < timeline->ranks.size(); ++r) {
    RankBound rank;
    rank.end = times->end[r];
    rank.activations = peak_activations(timeline->ranks[r], stages->memory);
    for (const auto& [stage, start] : times->last_backward[r])
      rank.add(stages->memory[static_cast<size_t>(stage)].all, start);
    out->seconds = std::max(out->seconds, rank.end);
    out->ranks.push_back(std::move(rank));
  }
  out->layout = *layout;
  out->largest_parameter = (**microbatch(candidate)).largest_parameter;
  return std::shared_ptr<const PipelineBound>(std::move(out));
}

}  // namespace piper
