// Plans: the program of every device, the only contract between the compiler, the simulator and the runtime.
//
// A device issues its operations in the order they are listed. An operation starts when the one before it on its
// stream and all operations in `waits` have ended. Buffers are allocated by the first operation that touches them and
// freed, in issue order, after the operation that frees them. A communication is one event on all its devices: it
// starts when the last of them has reached it. Devices that do the same share one template; only their positions in
// groups differ.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/device_list.h"
#include "base/shared_ids.h"
#include "base/table.h"
#include "model/capture_form.h"
#include "model/model_graph.h"

namespace piper {

using NameId = Id<struct NameTag>;
using PlanStreamId = Id<struct PlanStreamTag>;  // a stream of the DAG may be two: one that sends, one that receives
using WorkId = Id<struct WorkTag>;
using CommunicationId = Id<struct CommunicationTag>;
using TemplateId = Id<struct TemplateTag>;
using BufferId = Id<struct BufferTag>;  // of one template

enum class OpKind {
  Run,
  Send,
  Recv,
  AllReduce,
  ReduceScatter,
  AllGather,
  AllToAll,
  ReducePieces,
  LocalSlice,
  Update,
  Shift,
  Rounds  // as many as the members need, equally many on all: the only operation whose length the plan cannot know
};
constexpr int op_kinds = static_cast<int>(OpKind::Rounds) + 1;
std::string_view name(OpKind kind);
bool is_communication(OpKind kind);

enum class Category { Weights, Gradients, Optimizer, Activations, Communication, Temporaries };
constexpr int category_count = 6;
std::string_view name(Category category);

/// What something is about, in the user's words: a name, a pass, a slice of the batch.
struct PlanLabel {
  NameId name;
  std::optional<Pass> pass;
  int slice = -1;
  friend bool operator==(const PlanLabel&, const PlanLabel&) = default;
};

struct PlanBuffer {
  PlanLabel label;
  Category category = Category::Activations;
  int64_t bytes = 0;
  bool persistent = false;  // from before the step until after it
  friend bool operator==(const PlanBuffer&, const PlanBuffer&) = default;
};

/// What a computation or an update does; how long that takes is for the costs to say.
struct PlanWork {
  NameId name;               // the chunk or the bucket
  std::optional<Pass> pass;  // none: an update
  int64_t samples = 0;       // of the slice, on one device
  DType dtype = DType::Float32;
  DeviceWork does;
  GroupId group;                         // a device's position in it says which samples of the slice it has
  ByShardKind<PartitionId> shards = {};  // partition among whose members the dimensions of each label are divided
  int64_t buffer = 0;                    // of rows sorted by expert, as in ShardCounts
  bool float8 = false;                   // linear layers multiply such numbers
  friend bool operator==(const PlanWork&, const PlanWork&) = default;
};

/// What an all-to-all does to a value. Divide: the value enters a sharded region; the dimension that is sharded inside
/// is divided among the devices, the one that is sharded outside is gathered. Gather: the reverse.
enum class Exchange { None, Divide, Gather };
std::string_view name(Exchange exchange);

struct PlannedOp {
  OpKind kind = OpKind::Run;
  PlanStreamId stream;
  PlanLabel label;
  WorkId work;  // of computations and updates
  CommunicationId communication;
  DirectiveId origin;       // the schedule line behind it
  std::vector<OpId> waits;  // earlier operations of this device, on other streams
  std::vector<BufferId> reads, writes, frees;
  friend bool operator==(const PlannedOp&, const PlannedOp&) = default;
};

/// A transfer from one group to another (sends and receives), or a collective inside each part of a partition.
struct Communication {
  PlanLabel label;
  bool transfer = false;
  GroupId from, to;   // of a transfer
  PartitionId over;   // of a collective
  int64_t bytes = 0;  // on one receiving device
  Exchange exchange = Exchange::None;
  ShardCounts shards = {};  // of a transfer: devices that share samples send their shards of the value
  bool maximum = false;     // an all_reduce by maximum, not by sum
  int by = 0;               // of a shift: each member sends this many ranks further, modulo their number
  /// Of rows sorted by expert, as in ShardCounts: how many are sent is known only when it runs; `bytes` are those of a
  /// balanced load. An all_gather with a buffer tells all members how many rows each of them has for each expert.
  int64_t buffer = 0;
  friend bool operator==(const Communication&, const Communication&) = default;
};

struct PlanPartition {
  int part_size = 1;
  DeviceList members;
  friend bool operator==(const PlanPartition&, const PlanPartition&) = default;
};

/// A parameter in the flat buffers of its bucket, after those before it.
struct PlanParameter {
  NameId name;
  int64_t elements = 0;             // of its shard, before ZeRO divides it
  bool ordered = false;             // its gradient is summed slice by slice, bit-equal to one device
  std::optional<int> sharded = {};  // the dimension that tensor parallelism divides
  friend bool operator==(const PlanParameter&, const PlanParameter&) = default;
};

/// Devices that hold the parameters of a bucket.
struct PlanHolder {
  GroupId group;
  PartitionId copies;    // copies in a part are equal; each part has its own piece of every parameter, in order
  bool sharded = false;  // ZeRO: each of the equal copies updates its own range of the bucket
  /// Of every parameter. With more parts than shards, parts / shards consecutive ones hold the same shard and work on
  /// the same samples.
  ShardCounts shards = {};
  friend bool operator==(const PlanHolder&, const PlanHolder&) = default;
};

/// Parameters that are reduced, gathered and updated together, one after another in flat buffers.
struct PlanBucket {
  NameId name;
  DType weights = DType::Float32, gradients = DType::Float32;
  std::vector<PlanParameter> parameters;
  std::vector<PlanHolder> holders;
  bool matrices = false;  // each parameter is updated as a whole
  friend bool operator==(const PlanBucket&, const PlanBucket&) = default;
};

/// The plan of all devices in the list.
struct PlanTemplate {
  DeviceList devices;
  Table<BufferId, PlanBuffer> buffers;
  Table<OpId, PlannedOp> ops;
  friend bool operator==(const PlanTemplate&, const PlanTemplate&) = default;
};

struct PlanDim {
  std::string name;
  int parts = 1;
  friend bool operator==(const PlanDim&, const PlanDim&) = default;
};

struct PlanOrigin {
  std::string place;  // file:line
  std::string text;   // the directive
  friend bool operator==(const PlanOrigin&, const PlanOrigin&) = default;
};

struct Plan {
  std::string model;
  uint64_t costs = 0;     // hash of the costs the order was made with
  int64_t losses = 0;     // parts of the batch whose losses are averaged
  AxisSizes shared = {};  // along the last axes of every group of computations, whose devices share samples
  CaptureForm capture;    // of the model
  std::vector<PlanDim> dims;
  Table<PlanStreamId, std::string> streams;
  Table<NameId, std::string> names;
  Table<DirectiveId, PlanOrigin> origins;
  Table<GroupId, DeviceList> groups;
  Table<PartitionId, PlanPartition> partitions;
  Table<BucketId, PlanBucket> buckets;
  Table<WorkId, PlanWork> works;
  Table<CommunicationId, Communication> communications;
  Table<TemplateId, PlanTemplate> templates;

  /// Devices with the same samples are consecutive in every group of computations.
  int devices_per_sample() const { return shared.all(); }
  friend bool operator==(const Plan&, const Plan&) = default;
};

/// Equal plans, equal hash, on every machine: what ranks compare before the first step.
uint64_t hash(const Plan& plan);

/// `layer.3.attention F mb=2`
std::string describe(const Plan& plan, const PlanLabel& label);
/// `device 4: op 17 all_to_all x.3 F mb=2 on ep (dualpipe.piper:5)`
std::string describe(const Plan& plan, const PlanTemplate& on, OpId op);
/// Template of every device, if it has one.
std::vector<TemplateId> template_of_device(const Plan& plan);
/// One more than the highest.
int device_count(const Plan& plan);

/// The part of a transfer between two devices, in samples of the slice of the sender and of the receiver.
struct TransferPiece {
  int peer = 0;
  int64_t samples = 0;
};
/// With whom, and how much, the device at `position` of group `mine` exchanges with group `theirs`, if both divide
/// `samples` samples evenly and `devices_per_sample` consecutive devices have the same.
std::vector<TransferPiece> transfer_pieces(int position, const DeviceList& mine, const DeviceList& theirs,
                                           int64_t samples, int devices_per_sample);
/// How many consecutive devices work on the same tokens of the same samples.
int devices_with_same_data(const Plan& plan);
/// Its rank among those.
int rank_with_same_data(const Plan& plan, int device);

}  // namespace piper
