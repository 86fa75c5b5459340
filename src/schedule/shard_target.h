// What a shard directive divides: experts (expert parallelism), or parameters and what follows from them (tensor
// parallelism).
#pragma once

#include <vector>

#include "model/model_graph.h"
#include "schedule/schedule.h"

namespace piper {

/// Context parallelism: it divides tokens, everywhere but in attention.
bool divides_context(const Shard& shard);
/// Devices along the axes of the mesh that it names.
int64_t devices_along(const Schedule& schedule, const Shard& shard);
/// Its arguments are about parameters.
bool names_parameters(const Shard& shard);

/// A part of the model as its annotations name it, and whether it is made of experts.
struct AnnotatedPart {
  std::vector<ScopeTag> scopes;
  bool experts = false;
};
/// Whether the directive divides experts: everything it selects is made of them, and its arguments say nothing about
/// parameters. Before stages exist, conditions about them are taken to hold.
bool divides_experts(const Shard& shard, const std::vector<AnnotatedPart>& parts);

/// It was annotated so; or all values that go in and come out of its forward pass have an expert dimension, or are
/// losses.
bool is_made_of_experts(const ModelGraph& model, const Chunk& chunk);
/// The chunks of a model.
std::vector<AnnotatedPart> annotated_parts(const ModelGraph& model);

/// A dimension with this label in what some pass of the chunk reads, writes or multiplies with.
bool has_label(const ModelGraph& model, const Chunk& chunk, std::string_view label);

}  // namespace piper
