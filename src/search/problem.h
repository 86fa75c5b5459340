// What is searched for: a model, a cluster, and what the user has decided.
#pragma once

#include <map>
#include <mutex>

#include "cost/cost_table.h"
#include "schedule/model_form.h"
#include "search/space.h"

namespace piper {

/// A model in the forms that were asked for, each loaded once. Any thread may ask.
class ModelForms {
 public:
  explicit ModelForms(ModelLoader load) : load_(std::move(load)) {}
  Result<std::shared_ptr<const ModelGraph>> get(LayerForm layers, TokenForm tokens);

 private:
  ModelLoader load_;
  std::mutex mutex_;
  std::map<std::tuple<LayerForm, bool, int64_t, int>, Result<std::shared_ptr<const ModelGraph>>> loaded_;
};

struct Problem {
  std::shared_ptr<ModelForms> models;  // shared by all candidates
  std::string model;                   // its name
  StepConfig step;                     // the same in all forms
  Cluster cluster;                     // with the memory that may be used
  std::optional<CostTable> costs;
  SpaceLimits limits;
};

/// `memory` replaces that of all devices. E205: the cluster has fewer devices; E111: it does not say what they compute.
Result<Problem> make_problem(ModelLoader load, Cluster cluster, std::optional<CostTable> costs, int devices,
                             std::optional<int64_t> memory, Fixed fixed);
/// The same with another batch.
Problem with_batch(const Problem& problem, int64_t batch);

/// In the form that load_model_for gives for its schedule.
Result<std::shared_ptr<const ModelGraph>> model_for(const Problem& problem, const Candidate& candidate);
const ModelFacts& facts_for(const Problem& problem, const Candidate& candidate);

}  // namespace piper
