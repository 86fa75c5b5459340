// A model that Python knows: captured from a torch.nn.Module, or a graph from a file or a configuration.
#pragma once

#include <memory>
#include <optional>

#include "schedule/model_form.h"
#include "train/loop/prepare_training.h"

namespace piper::python {

struct Model {
  std::shared_ptr<const ModelGraph> graph;
  /// Of a captured model only: what captures it again, for the slices of a schedule.
  std::optional<TrainableModel> trainable;
  std::optional<CapturedModel> sketch;
  /// Of one from a file or a configuration: the same in the forms that schedules need.
  ModelLoader forms = {};
};

}  // namespace piper::python
