// What all templates of a plan share, and where the things of the DAG stand in it.
#pragma once

#include "cost/cluster.h"
#include "ir/training_dag.h"
#include "plan/plan.h"

namespace piper {

/// Loss, count of tokens, norm of the gradients, whether all is finite: what every update reads.
constexpr int64_t scalar_bytes = 16;

struct PlanTables {
  Plan plan;                                             // everything but the templates
  std::vector<int> chunk_name, value_name, bucket_name;  // by ChunkId, ValueId, BucketId
  int scalars_name = -1;
  std::vector<int> send_stream, receive_stream;  // by StreamId; different where a stream moves values between groups
  std::vector<int> communication;                // by NodeId, -1 for computations and updates
  std::vector<int> work;                         // by NodeId, -1 for communication
};

PlanTables make_tables(const TrainingDag& dag, const std::vector<NodeId>& order, const Cluster& cluster);

/// Bytes of optimiser state per element: moments, and copies of weights and gradients that differ from the model's own.
int64_t optimizer_bytes(const StepConfig& step, DType weights);

/// What a node is about, in the user's words.
PlanLabel label_of(const PlanTables& tables, const Node& node);

}  // namespace piper
