// What a symbolic step does with weights and gradients: contributions, reductions, gathers, updates.
#pragma once

#include "property/machine.h"
#include "property/step_rules.h"

namespace piper::property {

class BucketOperations {
 public:
  /// Puts the weights of before the step, and gradients of zero, into the persistent buffers.
  BucketOperations(const TrainingDag& dag, Machine& machine, const StepRules& rules);

  /// The computation finds the parameter, whole and not yet updated.
  void check_weights(NodeId id, int device, const PlannedOp& op, ParameterId parameter);
  /// The computation adds to the gradient of the parameter.
  void contribute(NodeId id, int device, const PlannedOp& op, ParameterId parameter);
  /// A reduction or gather of gradients, or a gather of weights.
  void communicate(NodeId id, const Collective& collective);
  /// All gradients that will be used are complete, and every loss is counted once.
  void scalars(NodeId id);
  void update(NodeId id, BucketId bucket);
  /// Every holder has the new weights.
  void check_end();

 private:
  /// Gradients on one member of a collective: what goes in and where the result stays.
  struct Member {
    int device = -1;
    const PlannedOp* op = nullptr;
    Gradients* source = nullptr;
    Gradients* target = nullptr;
  };

  void fill(int device, BufferId id);
  std::optional<BucketId> bucket_named(int device, BufferId buffer) const;
  bool updates(BucketId bucket, const Holder& holder, int device, const Piece& piece) const;
  void check_complete(NodeId id, int device, const Gradients& gradients);
  void gather_weights(NodeId id, BucketId bucket, const DeviceList& members);
  void combine_gradients(NodeId id, const Collective& collective, const DeviceList& members);
  void all_reduce(NodeId id, BucketId bucket, std::vector<Member>& members);
  void reduce_pieces(BucketId bucket, std::vector<Member>& members);
  void reduce_scatter(NodeId id, BucketId bucket, std::vector<Member>& members);
  void gather_gradients(NodeId id, BucketId bucket, std::vector<Member>& members);
  void check_scalars(NodeId id, int device);

  const TrainingDag& dag_;
  Machine& machine_;
  const StepRules& rules_;
  bool scalars_known_ = false;
};

}  // namespace piper::property
