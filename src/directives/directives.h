// The directives: each checks every reason to refuse, then rewrites the DAG. One file each, with its before and after.
#pragma once

#include "base/result.h"
#include "ir/compute_costs.h"
#include "ir/training_dag.h"
#include "schedule/schedule.h"

namespace piper {

Result<TrainingDag> apply(TrainingDag dag, const Devices& devices, DirectiveId by);
Result<TrainingDag> apply(TrainingDag dag, const Mesh& mesh, DirectiveId by);
Result<TrainingDag> apply(TrainingDag dag, const Split& split, DirectiveId by);
Result<TrainingDag> apply(TrainingDag dag, const Place& place, DirectiveId by);
Result<TrainingDag> apply(TrainingDag dag, const Lose& lose, DirectiveId by);
Result<TrainingDag> apply(TrainingDag dag, const Replicate& replicate, DirectiveId by);
Result<TrainingDag> apply(TrainingDag dag, const Shard& shard, DirectiveId by);
Result<TrainingDag> apply(TrainingDag dag, const Recompute& recompute, DirectiveId by);
Result<TrainingDag> apply(TrainingDag dag, const Precision& precision, DirectiveId by);
Result<TrainingDag> apply(TrainingDag dag, const Prefetch& prefetch, DirectiveId by);

/// An order with the directive it came from; several may come from one `use`.
struct SourcedOrder {
  Order order;
  DirectiveId by;
};
/// All orders at once: they share one index of the DAG.
Result<TrainingDag> apply(TrainingDag dag, const std::vector<SourcedOrder>& orders);

/// The orders that a timeline of the library stands for, one per rank. Costs matter for `use list`.
Result<std::vector<Order>> expand(const TrainingDag& dag, const Use& use, const Costs& costs, DirectiveId by);

}  // namespace piper
