// ZeRO 2 and 3: gradients of a slice that are complete and wait for their reduction, by class of devices.
#pragma once

#include <optional>
#include <utility>

#include "ir/device_classes.h"

namespace piper {

/// When a computation makes more of them, they take at most twice what the computation with most makes there: enough
/// for reductions to run beside computations of all sizes. Only gradients whose reduction may start count, so that
/// waiting always ends.
class Unreduced {
 public:
  Unreduced(const TrainingDag& dag, const DeviceClasses& classes);

  /// Whether a node is the reduction of a slice's gradients.
  bool is_reduction(NodeId node) const { return reduced_[node.index()] > 0; }
  /// A reduction that may start.
  void add(NodeId reduction);
  /// A reduction that has its time.
  void set_end(NodeId reduction, double end);

  /// A class of devices on which a computation has to wait.
  std::optional<int> full(NodeId computation, double now);
  /// On that class: the next reduction to end, and when, of those that have their times.
  std::optional<std::pair<NodeId, double>> next_to_end(int device_class) const;

 private:
  struct Gradients {
    NodeId reduction;
    std::optional<double> end;
  };
  std::vector<int64_t> made_, reduced_;          // bytes, by node
  std::vector<std::vector<Gradients>> waiting_;  // by class
  std::vector<int64_t> limit_;                   // by class
  const TrainingDag& dag_;
  const DeviceClasses& classes_;
};

}  // namespace piper
