// What a device has of a value: which samples, which part of them, and what of the whole that is.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plan/plan.h"
#include "train/loop/diff/dependence_order.h"

namespace piper {

struct ValuePlace {
  int64_t first_sample = 0, samples = 0;  // of the slice
  LocalShards shards;                     // what of it is here
  int64_t zigzag = 0;                     // tokens are here in zigzag order: those of one of so many devices, or of all
  Partial partial = Partial::No;          // all of `members` together have the sum, or the greatest
  std::vector<int> members;               // the tensor-parallel group, where the chunk is sharded
  std::vector<int64_t> gathered;          // where experts are divided: the first samples of all slices that are here

  /// The first samples of all slices that are here.
  std::vector<int64_t> slices() const { return gathered.empty() ? std::vector<int64_t>{first_sample} : gathered; }
  /// Rows are here, and numbers of them, as a router has sent them.
  bool routed() const { return shards.buffer > 0 && shards.routed().count > 1; }
};

/// Of a computation on a device, for the slice with this index.
ValuePlace place_of_run(const Plan& plan, const PlannedOp& op, int device, int slice);

/// The places of all values of a plan, buffer by buffer.
class ValuePlaces {
 public:
  ValuePlaces(const Plan& plan, const ModelGraph& graph, const std::vector<OpOnDevice>& order);

  /// Null: the buffer holds no value of the model.
  const ValuePlace* find(int device, BufferId buffer) const;
  const Value* value(const PlanLabel& label) const;
  const Chunk* chunk(const PlanLabel& label) const;

 private:
  void follow(int device, const PlanTemplate& program, const PlannedOp& op);
  const ValuePlace* before(int device, const PlanTemplate& program, const PlannedOp& op, BufferId written) const;
  ValuePlace after(int device, const PlannedOp& op, ValuePlace place) const;
  void to_experts(int device, const Communication& communication, ValuePlace& place) const;
  ValuePlace received(int device, const PlannedOp& op, int slice) const;

  const Plan& plan_;
  std::map<std::string, const Value*, std::less<>> values_;
  std::map<std::string, ValueId, std::less<>> ids_;
  std::map<std::string, const Chunk*, std::less<>> chunks_;
  std::map<std::pair<int, BufferId>, ValuePlace> places_;  // by device
  std::map<CommunicationId, ValuePlace> sent_;             // of one sender
};

/// The tensor with the dimensions that the model graph shows: finer than its own where labels divide one. Undefined if
/// it has other sizes.
at::Tensor by_dimensions(const at::Tensor& whole, const Value& value, int64_t samples);
/// What belongs at a place, of the values of all slices that are there, seen by their dimensions.
at::Tensor take_place(std::vector<at::Tensor> wholes, const Value& value, const ValuePlace& place);
/// Of rows that a router sends to experts: those that the first round brings to a place, as they are here and as they
/// have to be. `wholes`: those of all members of the exchange; `ends`: where the rows of each expert end there.
std::pair<at::Tensor, at::Tensor> take_rows(const at::Tensor& here, const std::vector<at::Tensor>& wholes,
                                            const std::vector<int32_t>& ends, const Value& value,
                                            const ValuePlace& place);
/// The reverse: writes into these, or adds to them, what a device has.
void give_place(const at::Tensor& here, std::vector<at::Tensor>& wholes, const Value& value, const ValuePlace& place);

}  // namespace piper
