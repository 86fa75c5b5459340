// What all templates of a plan share, and where the things of the DAG stand in it.
#pragma once

#include "ir/training_dag.h"
#include "plan/plan.h"

namespace piper {

struct PlanTables {
  Plan plan;                                             // everything but the templates
  std::vector<int> chunk_name, value_name, bucket_name;  // by ChunkId, ValueId, BucketId
  int scalars_name = -1;
  std::vector<int> send_stream, receive_stream;  // by StreamId; different where a stream moves values between groups
  std::vector<int> communication;                // by NodeId, -1 for computations and updates
  std::vector<int> work;                         // by NodeId, -1 for communication
};

/// `costs`: hash of the costs behind the order.
PlanTables make_tables(const TrainingDag& dag, const std::vector<NodeId>& order, uint64_t costs);

/// What a node is about, in the user's words.
PlanLabel label_of(const PlanTables& tables, const Node& node);

}  // namespace piper
