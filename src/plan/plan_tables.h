// What all templates of a plan share, and what nodes, streams and buckets of the DAG became in it.
#pragma once

#include "ir/training_dag.h"
#include "plan/plan.h"

namespace piper {

struct PlanTables {
  Plan plan;  // everything but the templates
  Table<ChunkId, NameId> chunk_name;
  Table<ValueId, NameId> value_name;
  Table<BucketId, NameId> bucket_name;
  Table<ParameterId, BucketId> bucket_of;
  NameId scalars_name;
  Table<StreamId, PlanStreamId> send_stream, receive_stream;  // different where a stream moves values between groups
  Table<NodeId, CommunicationId> communication;               // none for computations and updates
  Table<NodeId, WorkId> work;                                 // none for communication
};

/// `costs`: hash of the costs behind the order.
PlanTables make_tables(const TrainingDag& dag, const std::vector<NodeId>& order, uint64_t costs);

/// What a node is about, in the user's words.
PlanLabel label_of(const PlanTables& tables, const Node& node);

}  // namespace piper
