#include "search/microbatch.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "directives/instances.h"
#include "ir/compute_costs.h"
#include "ir/local_size.h"
#include "schedule/builder.h"

namespace piper {
namespace {

/// One microbatch of one rank: the devices along dp do the same, so one stands for all.
Schedule schedule_of_rank(const Candidate& candidate, const ModelFacts& facts) {
  Candidate alone = recomputed_everywhere(candidate);
  alone.pp = alone.dp = alone.microbatches = alone.stages_per_rank = 1;
  alone.at.clear();
  alone.order = {Axis::Pp, Axis::Dp, Axis::Ep};
  alone.timeline = "1f1b";
  alone.zero = 0;
  alone.gather_stream = false;
  Schedule schedule = schedule_of(alone, facts);
  std::erase_if(schedule.directives, [](const Directive& directive) { return is_time_directive(directive.body); });
  return schedule;
}

/// The cluster as if all devices were of one kind, and with all the memory that is asked for.
Cluster only(const Cluster& cluster, size_t kind) {
  Cluster out = cluster;
  out.kinds = {cluster.kinds[kind]};
  out.kinds[0].memory.reset();
  out.nodes.clear();
  return out;
}

bool is_backward(const Node& node) {
  return node.tags.pass && *node.tags.pass != Pass::F;
}

class Writer {
 public:
  Writer(const TrainingDag& dag, const ModelFacts& facts, bool whole_instances, Axis other_axis, const Cluster& cluster,
         const CostTable* measured)
      : dag_(dag),
        model_(*dag.model),
        cluster_(cluster),
        measured_(measured),
        whole_instances_(whole_instances),
        other_axis_(other_axis) {
    std::vector<ChunkId> chunks;
    for (size_t c = 0; c < model_.chunks.size(); ++c) chunks.emplace_back(c);
    instance_ = find_instances(model_, chunks).of_chunk;
    out_.memory.resize(static_cast<size_t>(std::max(facts.instances, 1)));
    out_.forward_of.resize(out_.memory.size());
    out_.backward_of.resize(out_.memory.size());
  }

  Result<Microbatch> write() && {
    PIPER_CHECK(add_nodes());
    PIPER_CHECK(add_seconds());
    by_chunk_.resize(model_.chunks.size());
    add_memory();
    add_parameters();
    add_backward_peaks();
    return std::move(out_);
  }

 private:
  struct ChunkMemory {
    int64_t kept = 0, kept_again = 0;         // by forward, for its backward and for recomputation
    int64_t recomputed = 0, temporaries = 0;  // for backward, and in it
    int64_t dense = 0, experts = 0;           // elements of its parameters
  };

  int instance_of(const Node& node) const { return node.tags.chunk.valid() ? instance_[node.tags.chunk.index()] : 0; }

  /// Nodes of both passes in topological order, each with those it waits for in its own pass.
  Checked add_nodes() {
    place_.assign(dag_.nodes.size(), -1);
    for (const NodeId id : topological_order()) {
      const Node& node = dag_[id];
      MicrobatchNode made;
      made.instance = instance_of(node);
      made.recomputes = is_compute(node) && node.tags.pass == Pass::R;
      if (const auto* collective = std::get_if<Collective>(&node.op)) {
        made.axis = axis_of(collective->over);
        made.kind = collective->kind;
        made.bytes = moved_bytes(dag_, node);
      }
      auto& nodes = is_backward(node) ? out_.backward : out_.forward;
      auto [edge, last] = predecessors_.of(id);
      for (; edge != last; ++edge) {
        const auto& [before, to, item, by] = dag_.edges[static_cast<size_t>(*edge)];
        if (is_backward(dag_[before]) != is_backward(node)) continue;
        made.after.push_back(place_[before.index()]);
        if (reads_for_input(node, item)) made.input_after.push_back(place_[before.index()]);
      }
      place_[id.index()] = static_cast<int>(nodes.size());
      (is_backward(node) ? backward_ids_ : forward_ids_).push_back(id);
      (is_backward(node) ? out_.backward_of : out_.forward_of)[static_cast<size_t>(made.instance)].push_back(
          place_[id.index()]);
      nodes.push_back(std::move(made));
    }
    return Ok{};
  }

  std::vector<NodeId> topological_order() const {
    std::vector<int> waits(dag_.nodes.size(), 0);
    for (const Edge& edge : dag_.edges) ++waits[edge.to.index()];
    std::vector<NodeId> order;
    for (size_t n = 0; n < dag_.nodes.size(); ++n)
      if (waits[n] == 0) order.emplace_back(n);
    const Adjacency successors = adjacency(dag_, Direction::Successors);
    for (size_t i = 0; i < order.size(); ++i) {
      auto [edge, last] = successors.of(order[i]);
      for (; edge != last; ++edge)
        if (const NodeId to = dag_.edges[static_cast<size_t>(*edge)].to; --waits[to.index()] == 0) order.push_back(to);
    }
    return order;
  }

  /// The probe has two axes: neighbours divide layers, the others experts or tokens.
  Axis axis_of(PartitionId over) const {
    const Partition& partition = dag_.groups[over];
    const bool neighbours = dag_.tp().size > 1 && partition.part_size == dag_.tp().size &&
                            (partition.part_size < 2 || partition.members[1] == partition.members[0] + 1);
    return neighbours ? Axis::Tp : other_axis_;
  }

  Checked add_seconds() {
    for (size_t kind = 0; kind < cluster_.kinds.size(); ++kind) {
      const Cluster cluster = only(cluster_, kind);
      ComputeCosts costs(dag_, {cluster, measured_});
      out_.input.emplace_back(out_.backward.size(), -1.0);
      out_.weights.emplace_back(out_.memory.size(), 0.0);
      for (size_t n = 0; n < forward_ids_.size(); ++n) PIPER_CHECK(add_pass(costs, forward_ids_[n], out_.forward[n]));
      for (size_t n = 0; n < backward_ids_.size(); ++n) {
        PIPER_CHECK(add_pass(costs, backward_ids_[n], out_.backward[n]));
        PIPER_CHECK(add_halves(costs, n, kind));
      }
    }
    return Ok{};
  }

  Checked add_pass(ComputeCosts& costs, NodeId id, MicrobatchNode& made) {
    const Node& node = dag_[id];
    if (!is_compute(node)) return Ok{};
    PIPER_TRY(const double seconds, costs.pass(node.tags.chunk, *node.tags.pass, work_of(dag_, node), node.group));
    made.seconds.push_back(seconds);
    return Ok{};
  }

  /// Recomputation belongs to the first half.
  Checked add_halves(ComputeCosts& costs, size_t n, size_t kind) {
    const Node& node = dag_[backward_ids_[n]];
    if (!is_compute(node)) return Ok{};
    double& input = out_.input[kind][n];
    if (*node.tags.pass == Pass::R) {
      input = out_.backward[n].seconds.back();
      return Ok{};
    }
    const auto parts = backward_parts(model_[node.tags.chunk]);
    if (!parts) return Ok{};
    if (parts->input) {
      PIPER_TRY(input, costs.pass(node.tags.chunk, Pass::BI, *parts->input, node.group));
    }
    if (parts->weight) {
      PIPER_TRY(const double seconds, costs.pass(node.tags.chunk, Pass::BW, *parts->weight, node.group));
      out_.weights[kind][static_cast<size_t>(instance_of(node))] += seconds;
    }
    return Ok{};
  }

  /// Values that go from forward to backward, each counted once, where it is read.
  void add_memory() {
    std::set<std::pair<NodeId, Item>> kept;
    for (const Edge& edge : dag_.edges) {
      const Node &from = dag_[edge.from], &to = dag_[edge.to];
      if (!edge.item.is_value()) continue;
      InstanceMemory& memory = out_.memory[static_cast<size_t>(instance_of(to))];
      const int64_t bytes = written_bytes(dag_, from, edge.item.value_id());
      const bool again = from.tags.pass == Pass::R;
      if ((!is_backward(from) || again) && is_backward(to) && is_compute(to) && (!again || to.tags.pass == Pass::B) &&
          kept.emplace(edge.from, edge.item).second) {
        ChunkMemory& chunk = by_chunk_[to.tags.chunk.index()];
        (again ? chunk.recomputed : to.tags.pass == Pass::R ? chunk.kept_again : chunk.kept) += bytes;
        if (!again) memory.kept += bytes;
        if (reads_for_weights(to, edge.item.value_id()))  // what is recomputed stays until the gradients of weights
          (again ? memory.handed : memory.kept_for_weights) += bytes;
      }
      if (!is_backward(from) && !is_backward(to) && instance_of(from) < instance_of(to)) {
        // a communication that makes it smaller comes before it is sent
        const int64_t sent = is_compute(to) ? bytes : std::min(bytes, written_bytes(dag_, to, edge.item.value_id()));
        int64_t& least = out_.memory[static_cast<size_t>(instance_of(from))].sent;
        least = least == 0 ? sent : std::min(least, sent);
      }
    }
    for (const Node& node : dag_.nodes)
      if (is_compute(node)) add_temporaries(node);
  }

  /// Chunks run backward last to first; what a chunk has read is freed when it has run. An instance is recomputed
  /// before the last of its chunks that are; what only recomputation reads may be gone then.
  void add_backward_peaks() {
    std::vector<int64_t> again(out_.memory.size(), 0), for_again(out_.memory.size(), 0), freed(out_.memory.size(), 0);
    for (size_t c = 0; c < by_chunk_.size(); ++c) {
      again[static_cast<size_t>(instance_[c])] += by_chunk_[c].recomputed;
      for_again[static_cast<size_t>(instance_[c])] += by_chunk_[c].kept_again;
    }
    for (size_t c = by_chunk_.size(); c-- > 0;) {
      const auto i = static_cast<size_t>(instance_[c]);
      const ChunkMemory& chunk = by_chunk_[c];
      InstanceMemory& memory = out_.memory[i];
      int64_t besides = -freed[i];
      if (chunk.recomputed > 0) {
        besides += (whole_instances_ ? again[i] : chunk.recomputed) - for_again[i];
        again[i] = 0;
        memory.recomputed = std::max(memory.recomputed, besides);
      }
      for (const int zero : {1, 2, 3})
        for (const bool experts : {false, true}) {
          const size_t w = whole_index(zero, experts);
          const int64_t read = whole_weights(chunk, zero, experts), made = whole_gradients(chunk, zero, experts);
          memory.backward[w] = std::max(memory.backward[w], besides + chunk.temporaries + read + made);
          memory.read[w] = std::max(memory.read[w], read);
          memory.made[w] = std::max(memory.made[w], made);
          memory.both[w] = std::max(memory.both[w], read + made);
        }
      freed[i] += chunk.kept + chunk.kept_again;
    }
  }

  int64_t whole_weights(const ChunkMemory& chunk, int zero, bool experts) const {
    return zero == 3 ? bytes_of(model_.step.weights) * (chunk.dense + (experts ? chunk.experts : 0)) : 0;
  }
  int64_t whole_gradients(const ChunkMemory& chunk, int zero, bool experts) const {
    return zero >= 2 ? bytes_of(model_.step.gradients) * (chunk.dense + (experts ? chunk.experts : 0)) : 0;
  }

  bool reads_for_input(const Node& node, Item item) const {
    if (node.tags.pass != Pass::B || !is_compute(node) || !item.is_value()) return true;
    const auto parts = backward_parts(model_[node.tags.chunk]);
    if (!parts) return true;
    return parts->input && std::ranges::find(parts->input->reads, item.value_id()) != parts->input->reads.end();
  }

  bool reads_for_weights(const Node& node, ValueId value) const {
    const auto parts = backward_parts(model_[node.tags.chunk]);
    if (!parts || !parts->weight || *node.tags.pass == Pass::R) return false;
    return std::ranges::find(parts->weight->reads, value) != parts->weight->reads.end();
  }

  void add_temporaries(const Node& node) {
    InstanceMemory& memory = out_.memory[static_cast<size_t>(instance_of(node))];
    const auto bytes = [&](const PassWork& work) { return local_temporaries(dag_, node.tags.chunk, work, node.group); };
    const auto raise = [](int64_t& highest, int64_t value) { highest = std::max(highest, value); };
    if (!is_backward(node)) raise(memory.forward, bytes(work_of(dag_, node)));
    if (*node.tags.pass != Pass::B) return;
    by_chunk_[node.tags.chunk.index()].temporaries = bytes(work_of(dag_, node));
    const auto parts = backward_parts(model_[node.tags.chunk]);
    if (!parts || !parts->input || !parts->weight) return;
    for (const ValueId value : parts->input->writes)
      if (std::ranges::find(parts->weight->reads, value) != parts->weight->reads.end())
        memory.handed += written_bytes(dag_, node, value);
  }

  /// A parameter that several chunks share counts where it is used first.
  void add_parameters() {
    std::set<ParameterId> seen;
    for (size_t c = 0; c < model_.chunks.size(); ++c) {
      const ChunkId id(c);
      const Residence& residence = dag_.residences[c][0];
      const ShardCounts shards = shard_counts(dag_, residence);
      InstanceMemory& memory = out_.memory[static_cast<size_t>(instance_[c])];
      for (const Pass pass : {Pass::F, Pass::B})
        if (const PassWork* work = model_[id].find(pass))
          for (const ParameterId parameter : work->parameters)
            if (!model_[parameter].frozen && seen.insert(parameter).second)
              add_parameter(parameter, shards, memory, by_chunk_[c]);
    }
  }

  void add_parameter(ParameterId id, const ShardCounts& shards, InstanceMemory& memory, ChunkMemory& chunk) {
    int64_t elements = 1;
    for (const Dim& dim : model_[id].shape) elements *= local_extent(dim, 1, shards);
    const bool divided = shards[ShardKind::Expert] > 1 && labelled(model_[id].shape, expert_label);
    (divided ? memory.experts : memory.dense) += elements;
    (divided ? chunk.experts : chunk.dense) += elements;
    if (!divided && elements == piper::elements(model_[id].shape, 1)) memory.undivided += elements;
    out_.largest_parameter = std::max(out_.largest_parameter, elements);
  }

  const TrainingDag& dag_;
  const ModelGraph& model_;
  const Cluster& cluster_;
  const CostTable* measured_;
  bool whole_instances_;  // are recomputed at once
  Axis other_axis_;
  Adjacency predecessors_ = adjacency(dag_, Direction::Predecessors);
  std::vector<int> instance_;  // by chunk
  std::vector<int> place_;     // by node: in its pass
  std::vector<NodeId> forward_ids_, backward_ids_;
  std::vector<ChunkMemory> by_chunk_;
  Microbatch out_;
};

enum class Towards { Last, First };  // the instance that a pass comes to in the end

template <class SecondsOf>
PassSeconds pass_seconds(const std::vector<MicrobatchNode>& nodes, const std::vector<std::vector<int>>& of_instance,
                         int first, int past, Towards towards, const std::vector<double>& communication,
                         std::vector<int> MicrobatchNode::*after, const SecondsOf& seconds_of) {
  PassSeconds out;
  std::vector<double> end(nodes.size(), -1);  // -1: no computation of this stage comes before
  for (int i = 0; i < past - first; ++i)
    for (const int n : of_instance[static_cast<size_t>(towards == Towards::Last ? first + i : past - 1 - i)]) {
      const MicrobatchNode& node = nodes[static_cast<size_t>(n)];
      double start = -1;
      for (const int before : node.*after) start = std::max(start, end[static_cast<size_t>(before)]);
      if (node.axis) {
        if (start >= 0) end[static_cast<size_t>(n)] = start + communication[static_cast<size_t>(n)];
        continue;
      }
      const double seconds = seconds_of(static_cast<size_t>(n));
      if (seconds < 0) continue;  // not part of it
      end[static_cast<size_t>(n)] = std::max(start, 0.0) + seconds;
      out.compute += seconds;
      out.chain = std::max(out.chain, end[static_cast<size_t>(n)]);
    }
  return out;
}

}  // namespace

size_t whole_index(int zero, bool experts) {
  return static_cast<size_t>(std::max(zero - 1, 0)) * 2 + (experts ? 1 : 0);
}

Result<std::shared_ptr<RankDag>> RankDag::make(const ModelGraph& model, const ModelFacts& facts,
                                               const Candidate& candidate, const Cluster& cluster,
                                               const std::optional<CostTable>& costs) {
  auto alone = std::make_shared<ModelGraph>(model);
  alone->step.batch = candidate.ep;
  CompileOptions options;
  options.cluster = only(cluster, 0);
  options.cluster.levels.back().joins = 0;
  PIPER_TRY(TrainingDag dag, communicating_dag(alone, schedule_of_rank(candidate, facts), options));
  return std::shared_ptr<RankDag>(new RankDag(std::move(alone), std::move(dag), facts, candidate, cluster, costs));
}

RankDag::RankDag(std::shared_ptr<ModelGraph> model, TrainingDag dag, const ModelFacts& facts,
                 const Candidate& candidate, const Cluster& cluster, const std::optional<CostTable>& costs)
    : model_(std::move(model)),
      dag_(std::move(dag)),
      facts_(facts),
      whole_instances_(candidate.recompute == facts.layers),
      ep_(candidate.ep),
      other_axis_(candidate.cp > 1 ? Axis::Cp : Axis::Ep),
      cluster_(cluster),
      measured_(costs ? &*costs : nullptr),
      alike_(alike()) {}

/// Layers repeat: few computations are unlike all others.
std::vector<RankDag::Alike> RankDag::alike() const {
  std::vector<Alike> out;
  const auto equal = [&](const Node& a, const Node& b) {
    if (measured_ && a.tags.chunk != b.tags.chunk) return false;  // each is measured by itself
    const PassWork &left = work_of(dag_, a), &right = work_of(dag_, b);
    const auto work = [](const PassWork& w) { return std::tie(w.flops, w.bytes_moved, w.operators); };
    const auto parts = [&](const Node& n) { return backward_parts((*model_)[n.tags.chunk]); };
    const auto equal_parts = [&](const PassWork* x, const PassWork* y) {
      return (x == nullptr) == (y == nullptr) && (!x || work(*x) == work(*y));
    };
    if (a.tags.pass != b.tags.pass || a.group != b.group || work(left) != work(right)) return false;
    if (dag_.residence(a.tags.chunk, a.group).shardings != dag_.residence(b.tags.chunk, b.group).shardings)
      return false;
    if (a.tags.pass != Pass::B) return true;
    const auto x = parts(a), y = parts(b);
    return x.has_value() == y.has_value() &&
           (!x || (equal_parts(x->input, y->input) && equal_parts(x->weight, y->weight)));
  };
  for (size_t n = 0; n < dag_.nodes.size(); ++n) {
    const Node& node = dag_.nodes[n];
    if (!is_compute(node)) continue;
    const auto found = std::ranges::find_if(out, [&](const Alike& one) { return equal(dag_[one.node], node); });
    if (found == out.end())
      out.push_back({NodeId(n), 1});
    else
      ++found->count;
  }
  return out;
}

Result<double> RankDag::computing(size_t kind) {
  const Cluster cluster = only(cluster_, kind);
  ComputeCosts costs(dag_, {cluster, measured_});
  double before = 0, whole = 0, halves = 0;  // forward; backward as one pass, and as two
  for (const auto& [id, count] : alike_) {
    const Node& node = dag_[id];
    PIPER_TRY(const double seconds, costs.pass(node.tags.chunk, *node.tags.pass, work_of(dag_, node), node.group));
    (is_backward(node) ? whole : before) += count * seconds;
    if (node.tags.pass == Pass::R) halves += count * seconds;
    if (node.tags.pass != Pass::B) continue;
    const auto parts = backward_parts((*model_)[node.tags.chunk]);
    for (const auto& [pass, work] :
         {std::pair(Pass::BI, parts ? parts->input : nullptr), std::pair(Pass::BW, parts ? parts->weight : nullptr)})
      if (work) {
        PIPER_TRY(const double half, costs.pass(node.tags.chunk, pass, *work, node.group));
        halves += count * half;
      }
  }
  return before + std::min(whole, halves);
}

Result<double> RankDag::least_seconds(int64_t samples) {
  const std::lock_guard lock(mutex_);
  model_->step.batch = samples * ep_;
  double fastest = std::numeric_limits<double>::infinity();
  for (size_t kind = 0; kind < cluster_.kinds.size(); ++kind) {
    PIPER_TRY(const double seconds, computing(kind));
    fastest = std::min(fastest, seconds);
  }
  return fastest;
}

Result<Microbatch> RankDag::microbatch(int64_t samples) {
  const std::lock_guard lock(mutex_);
  model_->step.batch = samples * ep_;
  return Writer(dag_, facts_, whole_instances_, other_axis_, cluster_, measured_).write();
}

StageSeconds stage_seconds(const Microbatch& microbatch, int first, int past, size_t kind,
                           const CommunicationSeconds& communication) {
  StageSeconds out;
  const auto own = [&](const std::vector<MicrobatchNode>& nodes) {
    return [&nodes, kind](size_t n) { return nodes[n].seconds[kind]; };
  };
  out.forward = pass_seconds(microbatch.forward, microbatch.forward_of, first, past, Towards::Last,
                             communication.forward, &MicrobatchNode::after, own(microbatch.forward));
  out.backward = pass_seconds(microbatch.backward, microbatch.backward_of, first, past, Towards::First,
                              communication.backward, &MicrobatchNode::after, own(microbatch.backward));
  out.input =
      pass_seconds(microbatch.backward, microbatch.backward_of, first, past, Towards::First, communication.backward,
                   &MicrobatchNode::input_after, [&](size_t n) { return microbatch.input[kind][n]; });
  const auto again = [&](size_t n) { return microbatch.backward[n].recomputes; };
  out.after_gradient = pass_seconds(microbatch.backward, microbatch.backward_of, first, past, Towards::First,
                                    communication.backward, &MicrobatchNode::after,
                                    [&](size_t n) { return again(n) ? -1 : microbatch.backward[n].seconds[kind]; })
                           .alone();
  out.input_after =
      pass_seconds(microbatch.backward, microbatch.backward_of, first, past, Towards::First, communication.backward,
                   &MicrobatchNode::input_after, [&](size_t n) { return again(n) ? -1 : microbatch.input[kind][n]; })
          .alone();
  const auto add = [&](const MicrobatchNode& node, double seconds) {
    if (node.axis) out.communicated[*node.axis] += seconds;
  };
  for (auto i = static_cast<size_t>(first); i < static_cast<size_t>(past); ++i) {
    out.weights += microbatch.weights[kind][i];
    for (const int n : microbatch.forward_of[i])
      add(microbatch.forward[static_cast<size_t>(n)], communication.forward[static_cast<size_t>(n)]);
    for (const int n : microbatch.backward_of[i])
      add(microbatch.backward[static_cast<size_t>(n)], communication.backward[static_cast<size_t>(n)]);
  }
  return out;
}

}  // namespace piper
