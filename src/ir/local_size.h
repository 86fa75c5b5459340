// How much of a value, parameter or bucket one device holds.
#pragma once

#include "ir/training_dag.h"

namespace piper {

/// Parts into which the devices of a group divide the samples of a slice: as many as devices, or as groups of those
/// that share samples.
int sample_parts(const TrainingDag& dag, GroupId group);
/// Parts into which they divide its data, samples and tokens: as many as there are different gradients and losses.
int data_parts(const TrainingDag& dag, GroupId group);
/// Samples of one slice on one device of the group.
int64_t samples_on(const TrainingDag& dag, GroupId group);

/// The dimension whose elements are the samples of the slice, one after the other, if a value of this shape has one.
/// Where samples share a dimension with tokens or slots nothing says in which order they lie.
std::optional<size_t> sample_dimension(const Shape& shape);

/// Among how many devices what a chunk works on is divided there.
ShardCounts shard_counts(const TrainingDag& dag, const Residence& residence);

/// Which of the parts into which tokens are divided the device at a position of a group has.
int token_shard(const TrainingDag& dag, int position);
/// Whether devices with later tokens do more: causal attention over blocks that lie in the order of the tokens.
bool has_uneven_attention(const TrainingDag& dag);

/// How many different works the devices of a node do: one, or one for each part of the tokens.
int different_works(const TrainingDag& dag, const Node& node);
/// Which of them a device of its group does.
int work_of_device(const TrainingDag& dag, const Node& node, int device);
/// What a pass of a chunk does on the devices of the group that do this one.
DeviceWork local_work(const TrainingDag& dag, ChunkId chunk, const PassWork& work, GroupId group, int which);

/// Bytes that live only while it does.
int64_t local_temporaries(const TrainingDag& dag, ChunkId chunk, const PassWork& work, GroupId group);

/// Into how many shards a value is divided where a node writes it.
ShardCounts written_shards(const TrainingDag& dag, const Node& writer, ValueId value);
/// Bytes of a value that is divided so.
int64_t local_bytes(const Value& value, int64_t samples, const ShardCounts& shards);
/// Bytes of a value as the node writes it on each device of its group. Inside a sharded region experts are divided and
/// their capacity gathered; an exchange changes which of them are here, not how many numbers. Rows that are sorted by
/// expert arrive in a buffer; and with them, where those of each expert end on every device.
int64_t written_bytes(const TrainingDag& dag, const Node& writer, ValueId value);

/// Of what goes to experts whose rows are sorted, and back: the buffer for those rows, as in ShardCounts. 0: other
/// communication.
int64_t row_buffer(const TrainingDag& dag, const Node& communication);
/// What further rounds take for a while: what a round brings, makes and sends.
int64_t rounds_temporaries(const TrainingDag& dag, const Node& rounds);

/// Sums of losses and of squared gradients: what every update reads. Where parameters are updated as a whole by how
/// large they are (Adafactor), also the squares of each of them.
int64_t scalar_bytes(const TrainingDag& dag);

/// Bytes of a communication: the whole array of an all_reduce, reduce_scatter or all_gather, and what one receiving
/// device gets of a transfer or all_to_all.
int64_t moved_bytes(const TrainingDag& dag, const Node& communication);

/// Elements of a bucket on one device of the holder: all of them, or its shard (padded to equal size).
int64_t whole_elements(const TrainingDag& dag, const Bucket& bucket, const Holder& holder);
int64_t shard_elements(const TrainingDag& dag, const Bucket& bucket, const Holder& holder);

/// Bytes of optimizer state per element: moments, copies of weights and gradients that differ from the model's own, and
/// a moving average of the weights.
int64_t optimizer_bytes(const StepConfig& step, DType weights, Optimizer kind);
/// Elements that each device of the holder updates.
int64_t updated_elements(const TrainingDag& dag, const Bucket& bucket, const Holder& holder);
/// Bytes of what is kept for the parameters of a bucket as a whole, in numbers of the type of moments.
int64_t whole_state_bytes(const TrainingDag& dag, const Bucket& bucket);
/// Bytes that live only while parameters of a bucket are updated as a whole: those of the largest, in the types that it
/// passes through.
int64_t matrix_temporaries(const TrainingDag& dag, const Bucket& bucket);
/// What an update does on each device, on the whole bucket or on its shard of it: gradients are read, weights written,
/// the optimizer's state both.
DeviceWork update_work(const TrainingDag& dag, const Node& update);
/// The same of so many elements.
DeviceWork update_work(const StepConfig& step, DType weights, int64_t elements);

/// The holder of the bucket that is this group.
const Holder& holder_on(const Bucket& bucket, GroupId group);

}  // namespace piper
