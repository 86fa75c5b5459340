// What every ready model is: a module that computes the loss of a slice and knows the first value of each of its
// tensors.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <string>
#include <vector>

#include "capture/capture.h"
#include "model/analytic/model_config.h"

namespace piper {

/// How the tensors of a model are made: meta ones for capture, real ones for eager training. Never filled.
struct TensorMaker {
  c10::ScalarType dtype = c10::kFloat;
  c10::Device device = c10::kMeta;
  c10::DeviceType target = c10::kCPU;  // what the model will run on
  at::Tensor operator()(c10::IntArrayRef sizes) const;
};

struct ModelModule : torch::nn::Module {
  /// In the order of `inputs`; the mean over the slice.
  virtual at::Tensor loss(const std::vector<at::Tensor>& inputs) = 0;
  virtual std::vector<InputSpec> inputs() const = 0;
  /// Further numbers of the slice that `loss` was called with last: means, each with a name, or lists of them.
  virtual std::vector<NamedTensor> metrics() const { return {}; }
  /// From now on `loss` takes `places`, too: of every token in its document, before which it sees nothing. False: the
  /// model does not know documents.
  virtual bool attend_within_documents() { return false; }
  /// From now on `loss` takes what `next_token_inputs` says, too, and chooses the token that follows, at this
  /// temperature. False: the model does not write text.
  virtual bool choose_next_token(double /*temperature*/) { return false; }
  /// Of every sample its number and that token: [samples, 2]. Undefined: it chooses none.
  virtual at::Tensor next_token() const { return {}; }
  /// Fills a real tensor of the whole parameter or buffer; depends on the seed and the name alone.
  virtual void initialize(uint64_t seed, const std::string& name, at::Tensor& whole) const = 0;
};

}  // namespace piper
