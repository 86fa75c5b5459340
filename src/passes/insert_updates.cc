// insert_updates: how gradients become new weights (design rules 1, 6 and 7).
//   inside a group   zero 0: all-reduce; 1: reduce-scatter; 2, 3: reduce-scatter after every backward of every slice
//   devices of a tensor-parallel group that have terms of the sums add them up as well
//   between groups   that hold the same parameters: one all-reduce of the pieces, each group contributing its sum once
//   then             the step's scalars over all devices, the update, and with zero 1, 2 a gather of the new weights
//   whole parameters of which devices hold pieces: the update in two, and a gather of directions between them
//   zero 3           a gather before every computation that needs the weights; place_gathers keeps the needed ones
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "passes/form_buckets.h"
#include "passes/passes.h"
#include "passes/step_scalars.h"

namespace piper {
namespace {

/// The buckets that a pass of a chunk contributes to, and those it reads.
struct Touched {
  std::vector<BucketId> gradients, weights;
};

class Updates {
 public:
  explicit Updates(TrainingDag& dag) : dag_(dag), bucket_of_(bucket_of_parameter(dag)) {}

  void run() {
    collect_contributions();
    for (size_t b = 0; b < dag_.buckets.size(); ++b) reduce(BucketId(b));
    add_scalars();
    for (size_t b = 0; b < dag_.buckets.size(); ++b) update(BucketId(b));
  }

 private:
  /// Computations that add to a bucket on one holder, in slices of the batch; and what is final there in the end.
  struct Gradients {
    std::vector<NodeId> contributions;
    std::vector<NodeId> final;
  };

  int members(const Holder& holder) const { return dag_.groups[holder.copies].part_size; }

  std::vector<BucketId> buckets_of(const std::vector<ParameterId>& parameters) const {
    std::set<BucketId> buckets;
    for (const ParameterId p : parameters) buckets.insert(bucket_of_[p]);
    return {buckets.begin(), buckets.end()};
  }

  const Touched& touched(const Node& node) {
    const size_t key =
        2 * (node.tags.chunk.index() * all_passes.size() + static_cast<size_t>(*node.tags.pass)) + is_rounds(node);
    if (touched_.size() <= key) touched_.resize(2 * dag_.model->chunks.size() * all_passes.size());
    if (!touched_[key]) {
      std::vector<ParameterId> gradients, weights;
      for (const PassWork* work : works_of(dag_, node)) {
        gradients.insert(gradients.end(), work->gradients.begin(), work->gradients.end());
        weights.insert(weights.end(), work->parameters.begin(), work->parameters.end());
      }
      touched_[key] = Touched{buckets_of(gradients), buckets_of(weights)};
    }
    return *touched_[key];
  }

  Gradients& gradients(BucketId bucket, GroupId group) {
    const auto& holders = dag_.buckets[bucket.index()].holders;
    const auto found = std::find_if(holders.begin(), holders.end(), [&](const Holder& h) { return h.group == group; });
    return gradients_[bucket.index()][static_cast<size_t>(found - holders.begin())];
  }

  void collect_contributions() {
    for (const Bucket& bucket : dag_.buckets) gradients_.emplace_back(bucket.holders.size());
    const size_t nodes = dag_.nodes.size();
    for (size_t n = 0; n < nodes; ++n) {
      const Node node = dag_.nodes[n];
      if (!is_compute(node) && !is_rounds(node)) continue;
      for (const BucketId bucket : touched(node).gradients)
        gradients(bucket, node.group).contributions.push_back(NodeId(n));
      for (const BucketId bucket : touched(node).weights) gather_before(NodeId(n), node, bucket);
      if (is_rounds(node)) continue;
      for (const ValueId value : work_of(dag_, node).writes)
        if ((*dag_.model)[value].kind == ValueKind::Loss && node.tags.pass == Pass::F)
          losses_.push_back({NodeId(n), {}, Item::value(value), {}});
    }
  }

  void gather_before(NodeId user, const Node& node, BucketId bucket) {
    for (const Holder& holder : dag_.buckets[bucket.index()].holders) {
      if (holder.group != node.group || holder.zero < 3) continue;
      // further rounds use the copy of the first one, whose computation comes before them
      NodeId& gather = gathers_[{is_rounds(node) ? dag_[node.made_from].made_from : user, bucket}];
      const Collective op{CollectiveKind::AllGather, Item::weights(bucket), holder.copies};
      if (!gather.valid())
        gather = dag_.add({op, node.tags, node.group, holder.gather_stream, holder.by, holder.by, user});
      dag_.edges.push_back({gather, user, Item::weights(bucket), {}});
    }
  }

  /// The chunk whose backward completes the bucket: the first that uses one of its parameters.
  ChunkId chunk_of(const Gradients& gradients) const {
    ChunkId first;
    for (const NodeId id : gradients.contributions)
      if (!first.valid() || dag_[id].tags.chunk < first) first = dag_[id].tags.chunk;
    return first;
  }

  NodeId collective(CollectiveKind kind, Item item, const Holder& holder, NodeTags tags, StreamId stream,
                    const std::vector<NodeId>& after) {
    const NodeId id =
        dag_.add({Collective{kind, item, holder.copies}, tags, holder.group, stream, holder.by, holder.by, {}});
    for (const NodeId before : after) dag_.edges.push_back({before, id, item, {}});
    return id;
  }

  void reduce(BucketId id) {
    const Bucket bucket = dag_.buckets[id.index()];
    if (!bucket.trainable) return;
    for (size_t h = 0; h < bucket.holders.size(); ++h) {
      const Holder& holder = bucket.holders[h];
      Gradients& gradients = gradients_[id.index()][h];
      if (holder.sums && holder.zero < 2) {
        gradients.contributions = {sum_parts(id, holder, gradients, gradients.contributions)};
      }
      if (members(holder) == 1) {
        gradients.final = gradients.contributions;
      } else if (holder.zero >= 2) {
        reduce_slices(id, holder, gradients);
      } else {
        const bool whole = holder.zero == 0 && bucket.holders.size() == 1;
        const auto kind = whole ? CollectiveKind::AllReduce : CollectiveKind::ReduceScatter;
        gradients.final = {collective(kind, Item::gradients(id), holder, {chunk_of(gradients), std::nullopt, -1},
                                      holder.reduce_stream, gradients.contributions)};
      }
      if (holder.sums && holder.zero >= 2) gradients.final = {sum_parts(id, holder, gradients, gradients.final)};
    }
    if (bucket.holders.size() > 1) reduce_between(id, bucket);
  }

  /// These gradients are Partial(sum) along the tensor-parallel group.
  NodeId sum_parts(BucketId id, const Holder& holder, const Gradients& gradients, const std::vector<NodeId>& after) {
    const ChunkId chunk = chunk_of(gradients);
    const Sharding& tensors = *dag_.residence(chunk, holder.group).find(SampleAxis::Tp);
    Holder among = holder;
    among.copies = *holder.sums;
    among.by = tensors.by;
    return collective(CollectiveKind::AllReduce, Item::gradients(id), among, {chunk, std::nullopt, -1},
                      dag_.stream(tensors.stream), after);
  }

  void reduce_slices(BucketId id, const Holder& holder, Gradients& gradients) {
    std::vector<std::vector<NodeId>> by_slice(static_cast<size_t>(dag_.slices()));
    for (const NodeId node : gradients.contributions)
      by_slice[static_cast<size_t>(dag_[node].tags.slice)].push_back(node);
    for (size_t slice = 0; slice < by_slice.size(); ++slice) {
      if (by_slice[slice].empty()) continue;
      const NodeTags tags{chunk_of({by_slice[slice], {}}), Pass::B, static_cast<int>(slice)};
      gradients.final.push_back(collective(CollectiveKind::ReduceScatter, Item::gradients(id), holder, tags,
                                           holder.reduce_stream, by_slice[slice]));
    }
  }

  /// The owners of every piece, one per group, add up what the groups have; afterwards each piece is complete
  /// everywhere.
  void reduce_between(BucketId id, const Bucket& bucket) {
    DeviceGroup all;
    for (const Holder& holder : bucket.holders) {
      const DeviceList& devices = dag_.groups[holder.group].devices;
      all.devices.insert(all.devices.end(), devices.begin(), devices.end());
    }
    all.axes = {{"", all.size()}};
    Holder together = bucket.holders[0];
    together.group = dag_.groups.intern(std::move(all));
    together.copies = dag_.groups.whole(together.group);
    std::vector<NodeId> after;
    for (const Gradients& gradients : gradients_[id.index()])
      after.insert(after.end(), gradients.final.begin(), gradients.final.end());
    const NodeTags tags{chunk_of(gradients_[id.index()][0]), std::nullopt, -1};
    // devices of one group hold pieces of the bucket or different experts: only single devices add up all they have
    const bool divided = std::any_of(bucket.holders.begin(), bucket.holders.end(),
                                     [&](const Holder& h) { return dag_.groups[h.group].size() > 1; });
    const auto kind = divided ? CollectiveKind::ReducePieces : CollectiveKind::AllReduce;
    const NodeId between = collective(kind, Item::gradients(id), together, tags, together.reduce_stream, after);
    for (size_t h = 0; h < bucket.holders.size(); ++h) {
      const Holder& holder = bucket.holders[h];
      const bool spread = holder.zero == 0 && members(holder) > 1;  // everyone updates everything
      gradients_[id.index()][h].final = {spread ? collective(CollectiveKind::AllGather, Item::gradients(id), holder,
                                                             tags, holder.reduce_stream, {between})
                                                : between};
    }
  }

  void add_scalars() {
    std::vector<Edge> inputs = losses_;
    std::set<std::pair<NodeId, int>> seen;
    for (size_t b = 0; b < dag_.buckets.size(); ++b)
      for (const Gradients& gradients : gradients_[b])
        for (const NodeId final : gradients.final)
          if (seen.insert({final, static_cast<int>(b)}).second)
            inputs.push_back({final, {}, Item::gradients(BucketId(b)), {}});
    if (dag_.devices == 1) {  // one device has its scalars at hand: every update waits for all gradients itself
      before_update_ = std::move(inputs);
      return;
    }
    const NodeId scalars = piper::add_scalars(dag_);
    for (Edge& input : inputs) {
      input.to = scalars;
      dag_.edges.push_back(input);
    }
    before_update_ = {{scalars, {}, Item::scalars(), {}}};
  }

  NodeId add_update(Update update, const Holder& holder, NodeTags tags) {
    return dag_.add({update, tags, holder.group, dag_.stream("compute"), holder.by, holder.by, {}});
  }

  /// Devices that together hold all of a bucket whose parameters are updated whole; none: every one does.
  std::optional<PartitionId> gathered_over(const Bucket& bucket, const Holder& holder) {
    const bool divided = holder.shards.all() > 1;
    if (!bucket.matrices || (holder.zero == 0 && !divided)) return std::nullopt;
    if (!divided) return holder.copies;
    return holder.zero == 0 ? dag_.groups.across(holder.copies) : dag_.groups.whole(holder.group);
  }

  void update(BucketId id) {
    const Bucket bucket = dag_.buckets[id.index()];
    if (!bucket.trainable) return;
    for (size_t h = 0; h < bucket.holders.size(); ++h) {
      const Holder& holder = bucket.holders[h];
      const NodeTags tags{chunk_of(gradients_[id.index()][h]), std::nullopt, -1};
      const auto pieces = gathered_over(bucket, holder);
      NodeId update = add_update({id, pieces ? UpdatePhase::Directions : UpdatePhase::All}, holder, tags);
      for (Edge before : before_update_) {
        before.to = update;
        dag_.edges.push_back(before);
      }
      if (pieces) {
        Holder among = holder;
        among.copies = *pieces;
        const NodeId gather =
            collective(CollectiveKind::AllGather, Item::directions(id), among, tags, holder.gather_stream, {update});
        update = add_update({id, UpdatePhase::Matrices}, holder, tags);
        dag_.edges.push_back({gather, update, Item::directions(id), {}});
      }
      if (holder.zero == 1 || holder.zero == 2)
        collective(CollectiveKind::AllGather, Item::weights(id), holder, tags, holder.gather_stream, {update});
    }
  }

  TrainingDag& dag_;
  Table<ParameterId, BucketId> bucket_of_;
  std::vector<std::optional<Touched>> touched_;
  std::map<std::pair<NodeId, BucketId>, NodeId> gathers_;  // before computations
  std::vector<std::vector<Gradients>> gradients_;          // by bucket, by holder
  std::vector<Edge> losses_;
  std::vector<Edge> before_update_;
};

}  // namespace

Result<TrainingDag> insert_updates(TrainingDag dag) {
  PIPER_CHECK(form_buckets(dag));
  Updates(dag).run();
  return dag;
}

}  // namespace piper
