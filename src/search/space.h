// The schedules that a search looks at: one Candidate is one choice of everything that a schedule decides.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "cost/cluster.h"
#include "model/model_graph.h"
#include "schedule/schedule.h"
#include "timelines/library.h"

namespace piper {

/// Axes of the mesh. Those of context and of tensor parallelism are always the last, in this order; the others stand in
/// any order.
enum class Axis { Pp, Dp, Ep, Cp, Tp };
constexpr std::array<Axis, 5> all_axes = {Axis::Pp, Axis::Dp, Axis::Ep, Axis::Cp, Axis::Tp};
/// Those whose devices communicate in forward and backward, each axis on a stream of its own.
constexpr std::array<Axis, 3> communicating_axes = {Axis::Ep, Axis::Cp, Axis::Tp};
/// Something for each of them.
template <class T>
struct ByAxis {
  std::array<T, all_axes.size()> of = {};
  T& operator[](Axis axis) { return of[static_cast<size_t>(axis)]; }
  const T& operator[](Axis axis) const { return of[static_cast<size_t>(axis)]; }
  friend auto operator<=>(const ByAxis&, const ByAxis&) = default;
};
std::string_view name(Axis axis);

/// Stages that recompute: all of them, or so many of the first, which are chosen after the scope.
constexpr int every_stage = -1, first_stages = 0;

/// Plain data; schedule_of makes it a schedule.
struct Candidate {
  int pp = 1, dp = 1, ep = 1, cp = 1, tp = 1;  // devices along each axis; the batch is divided among dp * ep of them
  int microbatches = 1;
  std::string recompute;                      // scope whose activations are not kept; empty: none
  int recomputed_stages = every_stage;        // or so many of the first stages, which keep most microbatches
  bool sequence = false, vocabulary = false;  // of tensor parallelism
  bool heads = false;                         // of context parallelism: attention divides them; else it gathers
  bool regather = false;                      // what either gathers
  std::array<Axis, 3> order = {Axis::Pp, Axis::Dp, Axis::Ep};  // of the mesh, slowest first
  std::string timeline = "1f1b";
  int stages_per_rank = 1;
  std::vector<int> at;  // where stages begin, if not divided evenly
  int zero = 0;
  int64_t bucket = 25'000'000;
  int prefetch = 1;
  bool gather_stream = false;  // parameters are gathered beside reductions, not in turn with them
  friend bool operator==(const Candidate&, const Candidate&) = default;
};
int size_of(const Candidate& candidate, Axis axis);
int stages_of(const Candidate& candidate);
StageShape shape_of(const Candidate& candidate);
StagePlacement placement_of(const Candidate& candidate);
/// What make_timeline is asked for; without costs.
TimelineRequest request_of(const Candidate& candidate);
/// Devices with equal parameters; samples that one of them has of a microbatch.
int replicas(const Candidate& candidate);
int64_t samples_of(const Candidate& candidate, int64_t batch);
/// The same, but that nothing is recomputed; or all stages recompute.
Candidate without_recomputation(Candidate candidate);
Candidate recomputed_everywhere(Candidate candidate);

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
/// The candidate divides what is in a layer, so that its model has parts of layers.
bool divides_layers(const Candidate& candidate);

/// The part of the choice that the user has made, directive by directive; the rest is searched.
struct Fixed {
  ByAxis<std::optional<int>> size;
  std::optional<std::array<Axis, 3>> order;
  std::optional<int> microbatches, stages, recomputed_stages, zero, prefetch;
  std::optional<int64_t> bucket;
  std::optional<std::string> timeline, recompute;
  std::optional<bool> sequence, vocabulary, heads, regather, gather_stream;
  std::optional<std::vector<int>> at;
  std::optional<StageShape> shape;
  /// What more than one device of an axis divides, as a scope; empty: whatever there is.
  ByAxis<std::optional<std::string>> divided;
};
bool allows(const Fixed& fixed, const Candidate& candidate);
/// From directives as in a schedule: `mesh(tp=8)` fixes one axis, `replicate({}, along=dp, zero=1)` only what is
/// written. E105: what a search does not choose; E301: fixed twice, differently.
Result<Fixed> fixed_by(const Schedule& schedule);

/// What is the same for all candidates of a search.
struct SpaceLimits {
  int devices = 1;
  int64_t batch = 1;
  int64_t sequence = 1;          // tokens of a sample
  bool context = false;          // context parallelism may divide them
  ModelFacts model, sharded;     // as it is; in parts that tensor and context parallelism divide
  std::vector<int> level_sizes;  // devices that each level of links joins, innermost first
  Fixed fixed;
};

/// The space is a tree of four choices. Each function lists the ways to continue from a candidate whose earlier choices
/// are made; all leaves are different schedules. Whether one is legal, the compiler says.
std::vector<Candidate> meshes(const SpaceLimits& limits);                        // sizes of axes, microbatches
std::vector<Candidate> forms(const SpaceLimits& limits, const Candidate& mesh);  // recomputation, sequence, vocabulary
std::vector<Candidate> pipelines(const SpaceLimits& limits, const Candidate& form);  // order of axes, timeline, stages
std::vector<Candidate> replications(const SpaceLimits& limits, const Candidate& pipeline);  // ZeRO, its communication
/// The same with `list`, whose order follows the costs: it has no bound that would tell whether it is worth a trial, so
/// it is tried in place of what was found. With --fix it is a pipeline like all others.
std::vector<Candidate> by_costs(const SpaceLimits& limits, const Candidate& found);
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
