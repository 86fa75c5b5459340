// What every step needs beside the directives: rewrites, each of which takes the DAG and gives it back or says why not,
// and what they use.
#pragma once

#include "base/result.h"
#include "ir/compute_costs.h"
#include "ir/linear_dag.h"
#include "schedule/schedule.h"

namespace piper {

/// Every computation is placed, and all passes of a chunk and slice together. Fills `residences`.
Result<TrainingDag> collect_residences(TrainingDag dag);

/// The directive that placed a chunk on a group.
DirectiveId who_placed(const TrainingDag& dag, ChunkId chunk, GroupId group);

/// Splits B into BI and BW for every chunk and slice that some order names so.
Result<TrainingDag> split_backward(TrainingDag dag, const std::vector<const Order*>& orders);

/// Devices of a group hold equal parameters or shards, and the batch divides among them.
Result<TrainingDag> check_replication(TrainingDag dag);

/// Products of linear layers that are computed in float8 have sizes with which a GPU can (E320).
Result<TrainingDag> check_float8(TrainingDag dag);

/// Transfers where values cross groups, and collectives (`redistribute`) where placements differ.
Result<TrainingDag> insert_communication(TrainingDag dag);

/// What goes round a ring waits until what went before it was used.
Result<TrainingDag> pace_shifts(TrainingDag dag);

/// Further rounds behind rows that come back from their experts.
Result<TrainingDag> insert_rounds(TrainingDag dag);

/// Recomputation waits for the gradient it is for.
Result<TrainingDag> delay_recomputation(TrainingDag dag);

/// Buckets, reductions, gathers, the step's scalars and the updates.
Result<TrainingDag> insert_updates(TrainingDag dag);

/// Passes that change state of their chunk run slice after slice.
Result<TrainingDag> order_states(TrainingDag dag);

/// The DAG is one: no cycle through data and orders. Shows the cycle otherwise (E303).
Result<TrainingDag> check_acyclic(TrainingDag dag);

/// Seconds of every node, alone on its devices and links. Computations: from the table, if there is one (E411: it lacks
/// one), otherwise from their work. A node waits for the slowest device of its group.
Result<std::vector<double>> node_seconds(const TrainingDag& dag, const Costs& costs);

/// One order of all nodes, with the times behind it.
Result<LinearDag> linearize(TrainingDag dag, const std::vector<double>& seconds);

/// For evaluation: the forward passes behind the losses, in their order, and the sum of the losses. What lasts stays.
Result<TrainingDag> keep_forward(LinearDag trained);

/// Keeps the gathers that are needed, and puts each as far before its first user as prefetch says.
Result<LinearDag> place_gathers(LinearDag linear);

}  // namespace piper
