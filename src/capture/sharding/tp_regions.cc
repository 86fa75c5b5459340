#include "capture/sharding/tp_regions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/match_pattern.h"
#include "base/suggest.h"
#include "capture/chunk/chunk_calls.h"
#include "capture/sharding/operator_rules.h"
#include "capture/sharding/part_calls.h"
#include "capture/sharding/partial_sums.h"

namespace piper {
namespace {

class RegionMarker {
 public:
  explicit RegionMarker(OperatorGraph graph) : graph_(std::move(graph)) {
    labels_.tp = true;
    for (const GraphTensor& tensor : graph_.tensors) labels_.tensors.push_back(unknown_labels(tensor.layout.sizes));
  }

  Result<ShardedGraph> mark(const std::vector<ShardSeed>& seeds) {
    for (size_t t = 0; t < graph_.tensors.size(); ++t)
      if (graph_.tensors[t].kind == TensorKind::Parameter) parameters_.emplace_back(t);
    for (const ShardSeed& seed : seeds) PIPER_CHECK(plant(seed));
    live_ = live_calls(graph_);
    PIPER_CHECK(find_labels());
    PartedGraph parted = part_calls(std::move(graph_), std::move(labels_));
    graph_ = std::move(parted.graph);
    labels_ = std::move(parted.labels);
    parts_of_ = std::move(parted.parts_of);
    belong_inside_ = std::move(parted.inside);
    live_ = live_calls(graph_);
    PIPER_CHECK(split_segments());
    return ShardedGraph{std::move(graph_), std::move(labels_.tensors)};
  }

 private:
  Checked plant(const ShardSeed& seed) {
    bool found = false;
    for (const TensorId id : parameters_) {
      const GraphTensor& tensor = graph_[id];
      if (!matches_pattern(tensor.name, seed.pattern)) continue;
      found = true;
      if (static_cast<size_t>(seed.dim) >= tensor.layout.sizes.size())
        return error(ErrorCode::E317, {},
                     fmt::format("shard: parameter {} [{}] has no dimension {}", tensor.name,
                                 fmt::join(tensor.layout.sizes, ", "), seed.dim))
            .help("dimensions count from 0");
      for (Factor& factor : labels_.tensors[id.index()].dims[static_cast<size_t>(seed.dim)])
        factor.mark = Mark::Sharded;
    }
    if (found) return Ok{};
    std::vector<std::string> names;
    for (const TensorId id : parameters_) names.push_back(graph_[id].name);
    return error(ErrorCode::E317, {}, fmt::format("shard: no parameter has a name like \"{}\"", seed.pattern))
        .help(did_you_mean(seed.pattern, names))
        .help("* stands for any part of a name, as in *.wo");
  }

  // ---- labels

  Diagnostic refuse(const Call& call, const std::string& what) const {
    std::vector<std::string> operands;
    each_tensor(call.arguments, [&](TensorId id) { operands.push_back(print(labels_.tensors[id.index()])); });
    const Call& said = call.forward.valid() ? graph_[call.forward] : call;
    return error(ErrorCode::E317, {},
                 fmt::format("shard: {}, {}: {} on {}: {}",
                             scope_name(graph_, graph_.segments[static_cast<size_t>(said.segment)].scope),
                             call.backward ? "backward" : "forward", graph_[call.op].name, fmt::join(operands, ", "),
                             what))
        .help("T marks what lies on different devices: shard a dimension that operators keep apart, such as heads")
        .help(
            "or name only what can be sharded, the last projections of attention or feed-forward: "
            "parameters=\"*.down_proj.weight: 1\"");
  }

  Checked find_labels() {
    std::vector<const Call*> calls;
    for (const CallId id : live_) calls.push_back(&graph_[id]);
    for (bool learned = true; learned;) {
      const LabelSweep sweep = sweep_rules(graph_, graph_.tensors, calls, labels_);
      for (const auto& [call, must] : sweep.must_be_plain)
        if (has(labels_.tensors[must.tensor.index()].dims[must.dim], Mark::Sharded) &&
            !can_be_parted(graph_, labels_, *call, must))
          return refuse(*call, fmt::format("{} the sharded dimension", must.why));
      if (sweep.stopped_at) return refuse(*sweep.stopped_at, sweep.problem.what);
      learned = sweep.learned;
      for (const Contribution& contribution : graph_.gradients)
        learned |=
            unify_tensors(labels_.tensors[contribution.parameter.index()], labels_.tensors[contribution.value.index()]);
    }
    for (TensorLabels& tensor : labels_.tensors) settle(tensor);
    return check_one_dimension();
  }

  /// Of two sharded dimensions a device would have its part of one with its part of the other alone, and no device the
  /// rest.
  Checked check_one_dimension() const {
    for (const CallId id : live_) {
      const Call& call = graph_[id];
      const GraphTensor* twice = nullptr;
      each_tensor(call.results, [&](TensorId result) {
        if (!twice && count_marks(labels_.tensors[result.index()], Mark::Sharded) > 1) twice = &graph_[result];
      });
      if (twice)
        return refuse(call, fmt::format("two dimensions of its result [{}] would be sharded",
                                        fmt::join(twice->layout.sizes, ", ")));
    }
    return Ok{};
  }

  // ---- regions

  bool touches_sharded(const Call& call) const {
    bool found = false;
    const auto look = [&](TensorId id) { found = found || has(labels_.tensors[id.index()], Mark::Sharded); };
    each_tensor(call.arguments, look);
    each_tensor(call.results, look);
    return found;
  }
  bool has_partial(const Call& call) const {
    bool found = false;
    each_tensor(call.arguments, [&](TensorId id) { found = found || labels_.tensors[id.index()].sums_divided; });
    return found;
  }

  bool is_region(int segment) const {
    const ScopeId scope = graph_.segments[static_cast<size_t>(segment)].scope;
    return scope.valid() && graph_[scope].tp;
  }

  /// Parts of sums stay such through views, and where only parts are added; everything else waits for the whole. In
  /// backward of a region all that is linear keeps them, so that gradients of whole parameters are summed once.
  void follow_sums(CallId id) {
    const Call& call = graph_[id];
    const bool in_region = call.backward && call.forward.valid() && is_region(graph_[call.forward].segment);
    const bool carries = has_partial(call) && (in_region || rule_of(graph_[call.op]).anywhere) &&
                         keeps_partial_sums(graph_, graph_.tensors, labels_, call);
    carries_[id.index()] = carries;
    inside_[id.index()] = carries || touches_sharded(call) || belong_inside_.contains(id);
    each_tensor(call.results, [&](TensorId result) {
      TensorLabels& labels = labels_.tensors[result.index()];
      labels.sums_divided = carries || sums_over(graph_, labels_, call, result, Mark::Sharded);
      labels.are_maxima = labels.sums_divided && is_maximum(graph_, call);
    });
  }

  /// Segments fall into what is outside and the regions, one after the other; backward follows forward.
  Checked split_segments() {
    inside_.assign(graph_.calls.size(), 0);
    carries_.assign(graph_.calls.size(), 0);
    is_live_.assign(graph_.calls.size(), 0);
    for (const CallId id : live_) is_live_[id.index()] = 1;
    std::vector<std::vector<CallId>> forward(graph_.segments.size());
    for (size_t c = 0; c < graph_.calls.size(); ++c)
      if (!graph_.calls[c].backward) forward[static_cast<size_t>(graph_.calls[c].segment)].push_back(CallId(c));
    std::vector<Segment> old = std::move(graph_.segments);
    graph_.segments.clear();
    std::vector<int> first(old.size());  // of the new segments of an old one
    for (size_t s = 0; s < old.size(); ++s) {
      first[s] = static_cast<int>(graph_.segments.size());
      graph_.segments.push_back(old[s]);
      split(forward[s], old[s].scope);
      split_from_.resize(graph_.segments.size(), static_cast<int>(s));
    }
    place_views();
    for (Call& call : graph_.calls)
      if (call.backward)
        call.segment = call.forward.valid() ? graph_[call.forward].segment : first[static_cast<size_t>(call.segment)];
    std::set<TensorId> behind;  // what is made of sums that are complete only behind backward of a region
    std::set<TensorId> gradients;
    for (const Contribution& contribution : graph_.gradients) gradients.insert(contribution.value);
    for (const CallId id : live_) {
      Call& call = graph_.calls[id.index()];
      if (!call.backward) continue;
      const bool meet = complete_sums(call);
      follow_sums(id);
      if (inside_[id.index()]) {
        call.segment = region_near(call);
        continue;
      }
      bool waits = meet || has_partial(call);
      each_tensor(call.arguments, [&](TensorId argument) { waits = waits || behind.contains(argument); });
      if (!waits || !is_region(call.segment)) continue;
      bool is_gradient = false;  // of a parameter that only the region has
      each_tensor(call.results, [&](TensorId result) {
        behind.insert(result);
        is_gradient = is_gradient || gradients.contains(result);
      });
      if (is_gradient) return refuse(call, "it uses a sum over the sharded dimension before it is complete");
      --call.segment;  // what is outside comes before every region, so behind it in backward
    }
    return Ok{};
  }

  /// Parts of sums are complete outside of the annotated scope that made them, and where those of several regions
  /// meet. Whether they do.
  bool complete_sums(const Call& call) {
    std::set<int> makers;
    each_tensor(call.arguments, [&](TensorId id) {
      TensorLabels& labels = labels_.tensors[id.index()];
      if (!labels.sums_divided) return;
      const int maker = graph_[graph_[id].producer].segment;
      if (split_from_[static_cast<size_t>(maker)] == split_from_[static_cast<size_t>(call.segment)])
        makers.insert(maker);
      else
        labels.sums_divided = false;
    });
    if (makers.size() < 2) return false;
    each_tensor(call.arguments, [&](TensorId id) { labels_.tensors[id.index()].sums_divided = false; });
    return true;
  }

  /// Views of parameters belong to those who use them.
  void place_views() {
    std::vector<int> user(graph_.tensors.size(), -1);  // by tensor: the segment of the first
    for (size_t c = graph_.calls.size(); c-- > 0;) {
      Call& call = graph_.calls[c];
      if (call.backward) continue;
      if (is_view(graph_, call))
        each_tensor(call.results, [&](TensorId id) {
          const TensorKind kind = graph_[graph_[graph_[id].storage].base].kind;
          if (kind == TensorKind::Parameter && user[id.index()] >= 0) call.segment = user[id.index()];
        });
      each_tensor(call.arguments, [&](TensorId id) { user[id.index()] = call.segment; });
    }
  }

  void split(const std::vector<CallId>& calls, ScopeId scope) {
    bool open = false;              // the last segment is a region
    std::set<TensorId> parts;       // of sums, made in it
    std::vector<CallId> pending;    // calls behind it, which belong to it if it goes on
    std::set<TensorId> unfinished;  // what they make of sums that are complete only behind it
    const auto assign = [&](CallId id) {
      graph_.calls[id.index()].segment = static_cast<int>(graph_.segments.size()) - 1;
    };
    const auto close = [&] {  // behind it sums are complete
      for (const TensorId part : parts) labels_.tensors[part.index()].sums_divided = false;
      graph_.segments.push_back({scope});
      for (const CallId id : pending) assign(id);
      pending.clear();
      parts.clear();
      unfinished.clear();
      open = false;
    };
    for (const CallId id : calls) {
      if (is_live_[id.index()]) follow_sums(id);
      bool waits = false;
      each_tensor(graph_[id].arguments, [&](TensorId argument) {
        waits = waits || unfinished.contains(argument) || (!carries_[id.index()] && parts.contains(argument));
      });
      if (!inside_[id.index()]) {
        if (!open) {
          assign(id);
          continue;
        }
        pending.push_back(id);
        if (waits) each_tensor(graph_[id].results, [&](TensorId result) { unfinished.insert(result); });
        continue;
      }
      if (open && (waits || !unfinished.empty())) close();
      if (!open) {
        graph_.scopes.push_back({scope, "tp", regions_[scope]++, {}, true});
        graph_.segments.push_back({ScopeId(graph_.scopes.size() - 1)});
        open = true;
      }
      for (const CallId waiting : pending) assign(waiting);
      pending.clear();
      assign(id);
      each_tensor(graph_[id].results, [&](TensorId result) {
        if (labels_.tensors[result.index()].sums_divided) parts.insert(result);
      });
    }
    if (open) close();
  }

  /// The region of a backward call: that of its forward, or of what it works on.
  int region_near(const Call& call) const {
    if (is_region(call.segment)) return call.segment;
    if (const auto parts = parts_of_.find(call.forward); parts != parts_of_.end()) return graph_[parts->second].segment;
    int found = call.segment;
    each_tensor(call.arguments, [&](TensorId argument) {
      const CallId producer = graph_[argument].producer;
      const TensorLabels& labels = labels_.tensors[argument.index()];
      if (producer.valid() && (labels.sums_divided || has(labels, Mark::Sharded)) &&
          is_region(graph_[producer].segment))
        found = graph_[producer].segment;
    });
    return found;
  }

  OperatorGraph graph_;
  BodyLabels labels_;
  std::vector<TensorId> parameters_;
  std::vector<CallId> live_;
  std::vector<char> is_live_;
  std::vector<int> split_from_;         // by segment: which it was a part of
  std::vector<char> inside_, carries_;  // by call: works on divided tensors or parts of sums; on the latter alone
  std::map<CallId, CallId> parts_of_;   // by call that works on a sum of parts: what makes them
  std::set<CallId> belong_inside_;      // though nothing they work on is divided
  std::map<ScopeId, int> regions_;
};

}  // namespace

Result<ShardedGraph> mark_tp_regions(OperatorGraph graph, const std::vector<ShardSeed>& seeds) {
  return RegionMarker(name_slices(std::move(graph))).mark(seeds);
}

}  // namespace piper
