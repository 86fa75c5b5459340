// What is searched for: a model, a cluster, and what the user has decided.
#pragma once

#include "cost/cost_table.h"
#include "schedule/model_form.h"
#include "search/space.h"

namespace piper {

struct Problem {
  /// By LayerForm; loaded once, shared by all candidates. The same three times where one form is enough.
  std::array<std::shared_ptr<const ModelGraph>, 3> models;
  ModelLoader load;  // also forms that no candidate has
  Cluster cluster;   // with the memory that may be used
  std::optional<CostTable> costs;
  SpaceLimits limits;
};

/// `memory` replaces that of all devices. E205: the cluster has fewer devices; E111: it does not say what they compute.
Result<Problem> make_problem(ModelLoader load, Cluster cluster, std::optional<CostTable> costs, int devices,
                             std::optional<int64_t> memory, Fixed fixed);
/// The same with another batch.
Problem with_batch(const Problem& problem, int64_t batch);

const std::shared_ptr<const ModelGraph>& model_for(const Problem& problem, const Candidate& candidate);
const ModelFacts& facts_for(const Problem& problem, const Candidate& candidate);

}  // namespace piper
