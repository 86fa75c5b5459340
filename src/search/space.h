// The schedules that a search looks at: one Candidate is one choice of everything that a schedule decides.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "cost/cluster.h"
#include "model/model_graph.h"
#include "schedule/schedule.h"

namespace piper {

/// Axes of the mesh. Tensor parallelism is always the last; the others stand in any order.
enum class Axis { Pp, Dp, Ep, Tp };
std::string_view name(Axis axis);

/// Plain data; schedule_of makes it a schedule.
struct Candidate {
  int pp = 1, dp = 1, ep = 1, tp = 1;  // devices along each axis; the batch is divided among dp * ep of them
  int microbatches = 1;
  std::string recompute;                                        // scope whose activations are not kept; empty: none
  bool sequence = false, vocabulary = false, regather = false;  // of tensor parallelism
  std::array<Axis, 3> order = {Axis::Pp, Axis::Dp, Axis::Ep};   // of the mesh, slowest first
  std::string timeline = "1f1b";
  int stages_per_rank = 1;
  std::vector<int> at;  // where stages begin, if not divided evenly
  int zero = 0;
  int64_t bucket = 25'000'000;
  int prefetch = 1;
  friend bool operator==(const Candidate&, const Candidate&) = default;
};
int size_of(const Candidate& candidate, Axis axis);
int stages_of(const Candidate& candidate);
StageShape shape_of(const Candidate& candidate);
/// Devices that divide the batch, and samples that one of them has of a microbatch.
int replicas(const Candidate& candidate);
int64_t samples_of(const Candidate& candidate, int64_t batch);

/// What a candidate can divide of a model.
struct ModelFacts {
  std::string layers;   // the scope that stages are made of; empty: the model has no scopes
  int instances = 0;    // of it
  std::string experts;  // the scope of experts; empty: there are none that can be divided
  int64_t expert_count = 0;
  std::vector<std::string> recomputable;  // scopes: the layers, and what is inside of them
  bool splits_backward = true;            // every chunk says how its backward falls into two
};
ModelFacts facts_of(const ModelGraph& model);

/// The part of the choice that the user has made, directive by directive; the rest is searched.
struct Fixed {
  std::array<std::optional<int>, 4> size;  // by Axis
  std::optional<std::array<Axis, 3>> order;
  std::optional<int> microbatches, stages, zero, prefetch;
  std::optional<int64_t> bucket;
  std::optional<std::string> timeline, recompute;
  std::optional<bool> sequence, vocabulary, regather;
  std::optional<std::vector<int>> at;
  std::optional<StageShape> shape;
  /// By Axis: what more than one device of it divides, as a scope; empty: whatever there is.
  std::array<std::optional<std::string>, 4> divided;
};
bool allows(const Fixed& fixed, const Candidate& candidate);
/// From directives as in a schedule: `mesh(tp=8)` fixes one axis, `replicate({}, along=dp, zero=1)` only what is
/// written. E105: what a search does not choose; E301: fixed twice, differently.
Result<Fixed> fixed_by(const Schedule& schedule);

/// What is the same for all candidates of a search.
struct SpaceLimits {
  int devices = 1;
  int64_t batch = 1;
  ModelFacts model, sharded;     // as it is; where tensor parallelism divides it
  std::vector<int> level_sizes;  // devices that each level of links joins, innermost first
  Fixed fixed;
};

/// The space is a tree of four choices. Each function lists the ways to continue from a candidate whose earlier choices
/// are made; all leaves are different schedules. Whether one is legal, the compiler says.
std::vector<Candidate> meshes(const SpaceLimits& limits);                        // sizes of axes, microbatches
std::vector<Candidate> forms(const SpaceLimits& limits, const Candidate& mesh);  // recomputation, sequence, vocabulary
std::vector<Candidate> pipelines(const SpaceLimits& limits, const Candidate& form);  // order of axes, timeline, stages
std::vector<Candidate> replications(const SpaceLimits& limits, const Candidate& pipeline);  // ZeRO, buckets, prefetch
/// Of each level of ZeRO, with the largest buckets: no other of the level communicates less.
std::vector<Candidate> cheapest_replications(const SpaceLimits& limits, const Candidate& pipeline);

/// There are candidates; otherwise why not: experts, layers or scopes that are not there (E105), axes that do not make
/// up the devices (E105), a batch that does not divide (E213).
Checked check_space(const SpaceLimits& limits);
/// The last of these reasons, also where tensor parallelism alone would divide the batch, and cannot (E213).
Diagnostic no_layout(const SpaceLimits& limits);

/// The candidate as a schedule for a model with these facts.
Schedule schedule_of(const Candidate& candidate, const ModelFacts& model);

}  // namespace piper
