// Placements: how the devices along one axis hold a value, as in PyTorch's DTensor, and which collective turns one
// placement into another. Placements along expert, tensor and context parallel axes are computed here; those along data
// parallel axes follow from Replication and Holder (ir/training_dag.h).
//
// what users call       | along the axis
// data parallelism      | values Shard(samples), parameters Replicate, gradients Partial(sum)
// ZeRO 1, 2, 3 (FSDP)   | optimizer state; and gradients; and parameters: Shard of the flat bucket
// expert parallelism    | parameters Shard(expert); values from Shard(capacity) to Shard(expert) and back
// tensor parallelism    | parameters and inner values Shard(tp); products over such a dimension Partial(sum)
// sequence parallelism  | values between such chunks Shard(sequence)
// vocabulary            | tables and logits Shard(tp); softmax through Partial(max) and Partial(sum)
// context parallelism   | values Shard(sequence); keys and values of attention Replicate, their gradients Partial(sum)
//                       | or all that attention reads and writes Shard(heads)
//                       | or keys and values Shard(sequence), rotated by one device in every step of a ring
#pragma once

#include "ir/training_dag.h"

namespace piper {

struct Placement {
  enum class Kind : uint8_t { Replicate, Shard, Partial };
  Kind kind = Kind::Replicate;
  std::string_view label = {};             // of the dimension that is sharded
  piper::Partial op = piper::Partial::No;  // of Partial: sum or maximum
  int rotation = 0;                        // device r has the shard of device r - rotation, modulo their number

  static Placement replicate() { return {}; }
  static Placement shard(std::string_view label, int rotation = 0) {
    return {Kind::Shard, label, piper::Partial::No, rotation};
  }
  static Placement partial(piper::Partial op) { return {Kind::Partial, {}, op, 0}; }
  bool is_shard() const { return kind == Kind::Shard; }
  bool is_partial() const { return kind == Kind::Partial; }
  friend bool operator==(const Placement&, const Placement&) = default;
};

/// The collective that turns one placement into another. None if they are equal, and for pairs without a collective.
///   from \ to    Replicate       Shard(e)
///   Replicate    -               local_slice
///   Shard(d)     all_gather      all_to_all, shift if only the rotation differs, - if equal
///   Partial(op)  all_reduce(op)  reduce_scatter(op)
/// A shard at another rotation is first shifted back.
std::optional<CollectiveKind> redistribute(const Placement& from, const Placement& to);
/// Of a shift among so many devices: each sends this many ranks further, modulo their number.
inline int shift_by(const Placement& from, const Placement& to, int devices) {
  return (to.rotation - from.rotation + devices) % devices;
}

/// Along an axis whose devices share samples: the placement of a value after a node of any kind, and the one in which a
/// computation reads it (never Partial).
Placement placement_along(SampleAxis axis, const TrainingDag& dag, const Node& node, ValueId value);
Placement wanted_along(SampleAxis axis, const TrainingDag& dag, const Node& reader, ValueId value);

/// After an all-to-all of a value, along its axis.
Placement placement_after_exchange(const TrainingDag& dag, const Node& exchange, ValueId value);
/// Whether the all-to-all takes a value out of a sharded region; otherwise into one.
bool leaves_region(const TrainingDag& dag, const Node& exchange, ValueId value);
/// The same for exchanges among devices that divide experts.
bool leaves_experts(const TrainingDag& dag, const Node& exchange);

/// Along the devices that divide experts: inside of what they divide, and outside, where each has its own samples.
inline Placement inside_experts() {
  return Placement::shard(expert_label);
}
inline Placement outside_experts() {
  return Placement::shard(capacity_label);
}

}  // namespace piper
