// The training DAG: every computation and every communication of one step on the whole cluster.
//
// A node is one piece of work. It runs on a device group, each device on its own part of the data, in one in-order
// stream of each device. Its tags say which chunk, pass and slice of the batch it belongs to; communication has the
// tags of the computation it serves. An edge says that the second node starts after the first has ended; if an item
// flows along it (a value, gradients or weights of a bucket, the step's scalars) the item lives from the first node to
// the last reader. Devices that run a chunk hold its parameters; buckets say who holds, reduces and updates what.
// Structure directives decide which nodes exist and where; time directives only add order edges.
#pragma once

#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/id.h"
#include "base/shared_ids.h"
#include "base/table.h"
#include "cost/collective.h"
#include "ir/device_group.h"
#include "model/model_graph.h"
#include "schedule/schedule.h"

namespace piper {

using NodeId = Id<struct NodeTag>;
using StreamId = Id<struct StreamTag>;

/// What flows along an edge or through a collective.
struct Item {
  enum class Kind : uint8_t { None, Value, Gradients, Directions, Weights, Scalars };
  Kind kind = Kind::None;
  int32_t index = -1;  // a ValueId or a BucketId

  static Item value(ValueId id) { return {Kind::Value, id.value}; }
  static Item gradients(BucketId id) { return {Kind::Gradients, id.value}; }
  static Item directions(BucketId id) { return {Kind::Directions, id.value}; }
  static Item weights(BucketId id) { return {Kind::Weights, id.value}; }
  static Item scalars() { return {Kind::Scalars, 0}; }
  bool is_value() const { return kind == Kind::Value; }
  ValueId value_id() const { return ValueId(index); }
  BucketId bucket_id() const { return BucketId(index); }
  friend auto operator<=>(const Item&, const Item&) = default;
};

/// Runs the pass of the chunk that the node's tags name.
struct Compute {
  friend bool operator==(const Compute&, const Compute&) = default;
};
/// Moves a value to the node's group, redistributing its samples if the groups differ in size.
struct Transfer {
  ValueId value;
  GroupId from;
  friend bool operator==(const Transfer&, const Transfer&) = default;
};
/// One collective inside each part of the partition.
struct Collective {
  CollectiveKind kind = CollectiveKind::AllReduce;
  Item item;
  PartitionId over;
  int by = 0;  // of a shift: each device sends this many ranks further in its part, modulo its size
  friend bool operator==(const Collective&, const Collective&) = default;
};
/// What an update does. Where devices hold shards of matrices that are updated whole (Muon, Adafactor), the input to
/// that step is computed first, in place of the gradients, and gathered.
enum class UpdatePhase { All, Directions, Matrices };
std::string_view name(UpdatePhase phase);
/// Applies the optimizer to a bucket on one of its holders.
struct Update {
  BucketId bucket;
  UpdatePhase phase = UpdatePhase::All;
  friend bool operator==(const Update&, const Update&) = default;
};
using NodeOp = std::variant<Compute, Transfer, Collective, Update>;

/// What filters select on. Absent fields match no condition.
struct NodeTags {
  ChunkId chunk;
  std::optional<Pass> pass;
  int slice = -1;
  friend bool operator==(const NodeTags&, const NodeTags&) = default;
};

struct Node {
  NodeOp op;
  NodeTags tags;
  GroupId group;  // not valid until placed
  StreamId stream;
  DirectiveId made_by;  // absent: the model itself
  DirectiveId placed_by;
  NodeId made_from;
  StreamId transfers = {};  // of a computation until residences have it; not valid: p2p
  friend bool operator==(const Node&, const Node&) = default;
};

struct Edge {
  NodeId from;
  NodeId to;
  Item item;            // none: order only
  DirectiveId made_by;  // of an order edge
  friend bool operator==(const Edge&, const Edge&) = default;
};

/// A name for the parts of the batch, made by split. Several dims nest: slice = index of dim 0 * parts of dim 1 + …
struct SliceDim {
  std::string name;
  int parts = 1;
  DirectiveId made_by;
  friend bool operator==(const SliceDim&, const SliceDim&) = default;
};

/// Tags given to chunks by place(stages=…): the stage of each chunk, or -1.
struct StageTags {
  std::string tag;
  std::vector<int> of_chunk;
  friend bool operator==(const StageTags&, const StageTags&) = default;
};

/// A group that does work of a placed group that has lost devices.
struct Remainder {
  GroupId group, of;
  DirectiveId by;
  friend bool operator==(const Remainder&, const Remainder&) = default;
};

/// Devices with equal parameters, and how those are divided, reduced and gathered.
struct Replication {
  PartitionId over;
  int zero = 0;
  int64_t bucket = 0;  // bytes of gradients reduced together, at most
  Release release = Release::Use;
  std::string gather_stream, reduce_stream;
  DirectiveId by;
  friend bool operator==(const Replication&, const Replication&) = default;
};

/// The devices along an axis divide what a chunk works on: the dimensions with the kind's label. Placements of values
/// follow from it, see ir/placement.h.
struct Sharding {
  ShardKind kind = ShardKind::Expert;
  std::optional<PartitionId> along;  // none: an axis of one device
  std::string stream;                // of the collectives at the chunk's border
  bool regather = false;             // what backward needs is gathered again
  DirectiveId by;
  int64_t buffer = 0;  // of rows sorted by expert, as in ShardCounts
  friend bool operator==(const Sharding&, const Sharding&) = default;
};

/// A chunk on one of the groups that run it.
struct Residence {
  GroupId group;
  StreamId transfer_stream;
  std::optional<Replication> replication;
  std::vector<Sharding> shardings = {};  // in the order of kinds

  const Sharding* find(ShardKind kind) const;
  /// Among the devices along this axis, which work on the same samples.
  const Sharding* find(SampleAxis axis) const;
  /// Who divides, if several devices do.
  std::optional<PartitionId> expert_group() const { return along(find(ShardKind::Expert)); }
  std::optional<PartitionId> group_along(SampleAxis axis) const { return along(find(axis)); }
  friend bool operator==(const Residence&, const Residence&) = default;

 private:
  static std::optional<PartitionId> along(const Sharding* sharding) {
    return sharding ? sharding->along : std::nullopt;
  }
};

/// One of the groups that hold the parameters of a bucket.
struct Holder {
  GroupId group;
  PartitionId copies;  // devices with equal copies (or ZeRO's shards of one copy)
  /// Of every parameter. With more parts than shards, parts / shards consecutive ones hold the same shard and work on
  /// the same samples.
  ShardCounts shards = {};
  std::optional<PartitionId> sums;  // devices that hold partial sums of its gradients
  int zero = 0;
  Release release = Release::Use;
  StreamId gather_stream, reduce_stream;
  DirectiveId by;
  friend bool operator==(const Holder&, const Holder&) = default;
};

/// Parameters with the same holders, reduced, gathered and updated together.
struct Bucket {
  std::vector<ParameterId> parameters;
  DType dtype = DType::Float32;
  bool trainable = true;
  int64_t elements = 0;  // on one device, before ZeRO divides them
  std::vector<Holder> holders;
  bool matrices = false;  // each parameter is updated as a whole
  friend bool operator==(const Bucket&, const Bucket&) = default;
};

/// The directive behind a node or edge: for messages only, nothing is decided by it.
struct Origin {
  std::string text;   // as printed
  std::string place;  // file:line
  std::string verb;   // `replicate` of `replicate({}, along=dp)`
  SourceRange where;
  ArgumentPlaces arguments = {};
  std::vector<OrderElement> elements = {};  // of an order: which of them a message is about
  friend bool operator==(const Origin& a, const Origin& b) { return a.text == b.text && a.place == b.place; }
};

/// Parts of an order element that may run interleaved.
struct Bracket {
  std::vector<std::vector<NodeId>> parts;
  DirectiveId made_by;
  friend bool operator==(const Bracket&, const Bracket&) = default;
};

/// How far ahead a gather may start, as a directive said; no distance: at once.
struct Prefetched {
  NodeId gather;
  std::optional<int> distance;
  DirectiveId made_by;
  friend bool operator==(const Prefetched&, const Prefetched&) = default;
};

struct TrainingDag {
  std::shared_ptr<const ModelGraph> model;
  int devices = 0;
  std::vector<MeshAxis> mesh;
  DeviceList lost;                              // devices of the mesh that are lost, ascending
  BySampleAxis<MeshAxis> shared = {};           // the last axes of every group, where something is sharded along them
  TokenOrder token_order = TokenOrder::Zigzag;  // along cp
  std::vector<SliceDim> dims;
  std::vector<StageTags> stages;
  std::vector<std::string> streams;
  GroupTable groups;
  std::vector<Remainder> remainders;
  std::vector<std::vector<Residence>> residences;  // by chunk
  std::map<ChunkId, DirectiveId> float8;           // chunks whose linear products are computed so, and who said it
  std::vector<Bucket> buckets;
  std::vector<Bracket> brackets;
  std::vector<Prefetched> prefetches;
  std::vector<Origin> origins;  // by DirectiveId
  std::vector<Node> nodes;
  std::vector<Edge> edges;

  Node& operator[](NodeId id) { return nodes[id.index()]; }
  const Node& operator[](NodeId id) const { return nodes[id.index()]; }
  const Bucket& operator[](BucketId id) const { return buckets[id.index()]; }
  NodeId add(Node node);
  StreamId stream(const std::string& name);
  int slices() const;
  const MeshAxis& tp() const { return shared[SampleAxis::Tp]; }
  int devices_per_sample() const { return shared[SampleAxis::Cp].size * shared[SampleAxis::Tp].size; }
  const Residence& residence(ChunkId chunk, GroupId group) const;
  /// The group that was placed, if this is what is left of it; else the group itself.
  GroupId placed_as(GroupId group) const;
  SourceRange where(DirectiveId directive) const;
  /// The first of these arguments that was written, else the directive itself.
  SourceRange where(DirectiveId directive, std::initializer_list<std::string_view> arguments) const;
  SourceRange where_filter(DirectiveId directive) const { return where(directive, {""}); }
  SourceRange where_devices(DirectiveId directive) const { return where(directive, {"devices", "mesh", "along"}); }
  /// The `index`-th element of an argument that is a list, or that has several lists.
  SourceRange where_item(DirectiveId directive, std::string_view argument, size_t index) const;
  /// The element that the `index`-th number of a list, or of several lists, comes from.
  SourceRange where_number(DirectiveId directive, std::string_view argument, size_t index) const;
};

/// Axes whose devices share samples are the last of the mesh, in their order, so that those devices are consecutive.
bool shared_axes_are_last(const TrainingDag& dag);

/// F and B of every chunk over the whole batch, connected by their values.
TrainingDag initial_dag(std::shared_ptr<const ModelGraph> model);

/// By parameter.
Table<ParameterId, BucketId> bucket_of_parameter(const TrainingDag& dag);

const PassWork& work_of(const TrainingDag& dag, const Node& node);
bool is_compute(const Node& node);
/// Further rounds of rows for experts: a communication that computes too.
bool is_rounds(const Node& node);
/// What a computation does, or further rounds: those of backward compute forward again, then all of backward.
std::vector<const PassWork*> works_of(const TrainingDag& dag, const Node& node);

/// `layer.3.attention.F.mb2`, `transfer.x1.F.mb0.to[4..7]`: unique and stable, for people; never a key.
std::string name_of(const TrainingDag& dag, NodeId id);
/// ` mb=2`, or nothing for what belongs to the whole step.
std::string slice_tags(const TrainingDag& dag, int slice, std::string_view separator, std::string_view equals);
/// gather, reduce, directions, exchange, sum, join, part, shift, transfer, scalars; empty for computations and updates.
std::string_view comm_tag(const Node& node);
std::string item_name(const TrainingDag& dag, Item item);
/// `bucket3.layer.1.wq..layer.0.wq`: a bucket by its first and last parameter in the order of backward, or its only
/// one.
std::string bucket_name(const TrainingDag& dag, BucketId bucket);

/// Successor (or predecessor) edges of every node, as indices into dag.edges.
struct Adjacency {
  std::vector<int> offsets, edges;
  std::pair<const int*, const int*> of(NodeId id) const {
    return {edges.data() + offsets[id.index()], edges.data() + offsets[id.index() + 1]};
  }
};
enum class Direction { Successors, Predecessors };
Adjacency adjacency(const TrainingDag& dag, Direction direction);

/// Computations by (chunk, pass, slice).
class ComputeIndex {
 public:
  explicit ComputeIndex(const TrainingDag& dag);
  NodeId find(ChunkId chunk, Pass pass, int slice) const {
    return NodeId(
        table_[(chunk.index() * all_passes.size() + static_cast<size_t>(pass)) * slices_ + static_cast<size_t>(slice)]);
  }

 private:
  size_t slices_;
  std::vector<int32_t> table_;
};

}  // namespace piper
