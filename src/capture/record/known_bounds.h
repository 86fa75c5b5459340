// What is known about random values before they are drawn: none of `rand` is below 0. A layer that is never skipped
// asks that.
#pragma once

#include <set>

#include "capture/record/operator_graph.h"

namespace piper {

class KnownBounds {
 public:
  explicit KnownBounds(const OperatorGraph& graph) : graph_(graph) {}

  /// A call that is being recorded, with its results.
  void note(const Call& call);
  /// Whatever is drawn, all that the storage holds is false.
  bool is_never_true(StorageId storage) const { return never_true_.contains(storage); }

 private:
  const OperatorGraph& graph_;
  std::set<StorageId> uniform_, never_true_;  // of values between 0 and 1, and of comparisons with them
};

}  // namespace piper
