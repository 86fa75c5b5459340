// The stages that a `use` orders, as they are placed.
#pragma once

#include "base/result.h"
#include "ir/training_dag.h"
#include "schedule/schedule.h"

namespace piper {

/// Stages and microbatches by number. Valid while the DAG is.
class PlacedStages {
 public:
  /// What a place directive with stages=… has cut, or the instances of an outermost scope that every chunk belongs to.
  /// E313: there are no such stages, a chunk belongs to none, a stage is scattered; the batch is not split that way.
  static Result<PlacedStages> find(const TrainingDag& dag, const Use& use, DirectiveId by);

  int count() const { return static_cast<int>(chunks_.size()); }
  int microbatches() const;
  /// Slices of the batch that one microbatch consists of, if the batch is split in several ways.
  int slices_per_microbatch() const { return dag_->slices() / microbatches(); }
  const std::vector<ChunkId>& chunks(int stage) const { return chunks_[static_cast<size_t>(stage)]; }

  /// Not where nothing is trained, nor before.
  bool has_backward(int stage) const;

  /// The group that runs a stage for a microbatch, and who placed it there. Of groups with the same devices in another
  /// order, the first: a timeline orders what devices do, not which samples they have.
  GroupId group(int stage, int microbatch) const { return first_like(forward(stage, microbatch).group); }
  /// The group that it was placed on, of which devices may be lost.
  GroupId placement(int stage, int microbatch) const {
    return first_like(dag_->placed_as(forward(stage, microbatch).group));
  }
  SourceRange where_placed(int stage, int microbatch, std::string_view argument = "devices") const {
    return dag_->where(forward(stage, microbatch).placed_by, {argument, "stages", "devices", "mesh"});
  }
  /// A computation of a chunk for the first slice of a microbatch, if there is one.
  const Node* find(ChunkId chunk, Pass pass, int microbatch) const;

 private:
  PlacedStages(const TrainingDag& dag, std::vector<int> stage_of_chunk, int dim);
  Checked check_one_group_each(const SourceRange& where) const;
  GroupId first_like(GroupId group) const { return first_like_[group.index()]; }
  const Node& forward(int stage, int microbatch) const { return *find(chunks(stage)[0], Pass::F, microbatch); }

  const TrainingDag* dag_;
  ComputeIndex index_;
  std::vector<std::vector<ChunkId>> chunks_;  // by stage
  std::vector<GroupId> first_like_;           // by group: the first of the same devices
  size_t dim_;
  int stride_ = 1;
};

}  // namespace piper
