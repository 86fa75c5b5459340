// What must be where, by the rules of the design, worked out from the model and the placement alone.
#pragma once

#include <set>
#include <vector>

#include "property/symbols.h"

namespace piper::property {

/// Elements of a bucket that no parameter border and no way of cutting it into shards divides.
struct Piece {
  int64_t begin = 0, end = 0;
  ParameterId parameter;
};

class StepRules {
 public:
  explicit StepRules(const TrainingDag& dag);

  /// Microbatches first, replicas second: the samples of the device at this position of the group.
  Samples cut(int slice, GroupId group, int position) const;
  int position(GroupId group, int device) const;

  /// The value as a computation reads or writes it on the device.
  Tensor tensor(const Node& compute, int device, ValueId value) const;
  /// What a backward pass on the device adds to the parameter.
  Sum contributions(const Node& compute, int device, ParameterId parameter) const;
  /// Everything that all devices together add to the parameter in a step.
  const Sum& complete(ParameterId parameter) const { return complete_[parameter.index()]; }

  BucketId bucket_of(ParameterId parameter) const { return bucket_of_[parameter.index()]; }
  const std::vector<Piece>& pieces(BucketId bucket) const { return pieces_[bucket.index()]; }
  /// The holder the device belongs to, or none.
  const Holder* holder(BucketId bucket, int device) const;
  /// Which experts the device has of the bucket's parameters.
  int block(BucketId bucket, int device) const;
  /// Place of a device in its part of a partition, or -1.
  int index_in_part(PartitionId over, int device) const;
  /// The member of a part that keeps the piece when the bucket is cut among `members`.
  int owner(BucketId bucket, const Piece& piece, int members) const;
  /// The device is the one that keeps the piece.
  bool owns(BucketId bucket, const Holder& holder, int device, const Piece& piece) const;

 private:
  /// Whose samples a computation works on: its own, or in a sharded region those of all devices of its part.
  std::vector<Samples> slots(const Node& compute, int device) const;
  std::optional<PartitionId> experts(ChunkId chunk, GroupId group) const;
  int64_t divided(BucketId bucket) const;
  void make_pieces();
  void make_complete();
  void add_complete(const Node& node);

  const TrainingDag& dag_;
  std::vector<BucketId> bucket_of_;
  std::vector<std::vector<Piece>> pieces_;
  std::vector<Sum> complete_;
};

}  // namespace piper::property
