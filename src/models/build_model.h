// A model that can be trained, from the same configuration file from which its analytic form is computed.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "capture/capture.h"
#include "model/analytic/config_file.h"
#include "models/saved_name.h"
#include "runtime/optimizer/optimizer.h"

namespace piper {

struct TrainableModel {
  std::string name;
  int64_t vocabulary = 0;
  StepConfig step;                 // what the configuration asks for, and what follows from it
  c10::Device target = c10::kCPU;  // what it will run on
  /// Compiles what runs; none: operators run as they were recorded.
  std::shared_ptr<KernelStore> kernels = nullptr;
  /// Losses over a vocabulary in blocks of tokens; none: their logits are made whole.
  std::optional<LossBlocks> loss_blocks = LossBlocks();
  /// None: the fewest where chunks are compiled, whose kernels compute for nothing what they would read.
  std::optional<Saved> saved_activations = {};
  /// Parameters and buffers by qualified name, and the loss of a slice. Keeps the module alive.
  MetaModel meta;
  /// In the order in which `meta.loss` takes them: one dimension of samples, then `sample_sizes`.
  std::vector<InputSpec> inputs;
  /// Fills a real tensor with the first value of the whole parameter or buffer `name`. Depends on the seed given to
  /// build_model, the name and the configuration; not on how or where the tensor is placed.
  std::function<void(const std::string& name, at::Tensor& whole)> initialize;
  /// Parameters that are updated otherwise than the rest, whatever a configuration says.
  std::vector<ParameterGroup> groups = {};
  /// Its parameters in checkpoints, in their order: by the names of transformers, where that has such a model.
  std::vector<SavedName> saved;
  std::string hugging_face;  // the text of config.json; empty: transformers has no such model
};

enum class BuildOn {
  Meta,  // for capture: shapes without values, of any size
  Cpu,   // for eager training: real tensors with their first values
};

/// What a model does besides its loss over samples of one text: ModelModule.
struct ModelUse {
  bool within_documents = false;           // attention stays within the documents of a sample
  std::optional<double> temperature = {};  // it chooses the token that follows, at this one
};

/// Refused, with the place of [model]: what has an analytic form only, or cannot be used so (E111).
/// `target`: what a captured model will run on; operators are chosen for it.
Result<TrainableModel> build_model(const ConfigFile& config, uint64_t seed, BuildOn on = BuildOn::Meta,
                                   c10::Device target = c10::kCPU, const ModelUse& use = {});

/// The same from the text of a file with [model] and [step].
Result<TrainableModel> build_model(const SourceFilePtr& file, uint64_t seed, BuildOn on = BuildOn::Meta,
                                   c10::Device target = c10::kCPU);

}  // namespace piper
