// What the decoders are made of. Names of parameters are those of the analytic model: layer.3.attention.q.weight.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/attend.h"
#include "models/model_module.h"
#include "models/sorted_rows.h"

namespace piper {

/// y = x W^T + b, W stored [out, in].
struct Linear : torch::nn::Module {
  Linear(int64_t in, int64_t out, bool with_bias, const TensorMaker& make);
  at::Tensor forward(const at::Tensor& x) const;
  at::Tensor weight, bias;
};

/// The same for every expert by itself: W stored [experts, out, in].
struct ExpertLinear : torch::nn::Module {
  ExpertLinear(int64_t experts, int64_t in, int64_t out, bool with_bias, const TensorMaker& make);
  /// [experts, slots, in]
  at::Tensor forward(const at::Tensor& x, const SlotRouting& slots) const;
  /// [rows, in]
  at::Tensor forward(const at::Tensor& x, const SortedRows& rows) const;
  at::Tensor weight, bias;
};

/// RMS or layer norm over the last dimension.
struct NormLayer : torch::nn::Module {
  NormLayer(const ModelConfig& config, int64_t width, const TensorMaker& make);
  at::Tensor forward(const at::Tensor& x) const;
  Norm kind;
  double epsilon;
  c10::DeviceType target;
  at::Tensor weight, bias;
};

/// Table of cosines and sines by position, applied to queries and keys.
struct Rotation : torch::nn::Module {
  Rotation(int64_t sequence, int64_t width, const TensorMaker& make);
  /// [samples, tokens, heads, width]
  at::Tensor apply(const at::Tensor& x) const;
  at::Tensor cos, sin;
};

/// Norm, projections, attention, output projection, residual: scope `attention`, or `cross` if keys and values come
/// from elsewhere.
struct Attention : torch::nn::Module {
  Attention(const ModelConfig& config, const TensorMaker& make);
  /// `rotation` may be null; `places` as for attend_with_scores.
  at::Tensor forward(const at::Tensor& x, const Rotation* rotation, Mask mask, const at::Tensor& places = {}) const;
  at::Tensor forward_to(const at::Tensor& x, const at::Tensor& memory) const;

 private:
  at::Tensor project(const Linear& linear, const at::Tensor& x, int64_t heads) const;
  at::Tensor mix(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, Mask mask,
                 const at::Tensor& places) const;
  at::Tensor out(const at::Tensor& x, const at::Tensor& mixed) const;

  ModelConfig config_;
  c10::DeviceType target_;
  std::shared_ptr<NormLayer> norm_, q_norm_, k_norm_;
  std::shared_ptr<Linear> q_, k_, v_, out_;
};

/// up (and gate), activation, down.
struct FeedForward {
  /// Its layers belong to `owner`, their names begin with `prefix`.
  FeedForward(torch::nn::Module& owner, const std::string& prefix, const ModelConfig& config, int64_t width,
              const TensorMaker& make);
  at::Tensor forward(const at::Tensor& x) const;
  std::shared_ptr<Linear> gate, up, down;
};

/// Norm, feed-forward, residual.
struct Mlp : torch::nn::Module {
  Mlp(const ModelConfig& config, int64_t width, const TensorMaker& make);
  at::Tensor forward(const at::Tensor& x) const;

 private:
  ModelConfig config_;
  std::shared_ptr<NormLayer> norm_;
  FeedForward feed_forward_;
};

/// Tokens to vectors, with learned positions if the architecture has them: scope `embed`.
struct Embedding : torch::nn::Module {
  Embedding(const ModelConfig& config, const TensorMaker& make);
  /// `places`: of every token in its document, where they do not follow each other.
  at::Tensor forward(const at::Tensor& tokens, const at::Tensor& places = {}) const;
  at::Tensor weight;

 private:
  ModelConfig config_;
  at::Tensor positions_;
};

/// Norm (gpt: none) and vocabulary projection.
struct Head : torch::nn::Module {
  Head(const ModelConfig& config, const TensorMaker& make);
  at::Tensor norm(const at::Tensor& x) const;
  /// Of what was normed. `table`: what a tied head projects with.
  at::Tensor project(const at::Tensor& x, const at::Tensor& table) const;
  at::Tensor forward(const at::Tensor& x, const at::Tensor& table) const { return project(norm(x), table); }

 private:
  std::shared_ptr<NormLayer> norm_;
  at::Tensor weight_;
};

/// Dropout where the configuration asks for it.
at::Tensor thinned(const at::Tensor& x, const ModelConfig& config);

/// Children `0`, `1`, …
template <class Layer>
struct LayerList : torch::nn::Module {
  template <class Make>
  LayerList(int64_t count, Make make) {
    for (int64_t i = 0; i < count; ++i) all.push_back(register_module(std::to_string(i), make(i)));
  }
  std::vector<std::shared_ptr<Layer>> all;
};

/// The first value of a parameter or buffer named as above. Gains are one, biases zero, weights nearly normal with
/// deviation 0.02, those in front of a residual smaller by the root of the number of `residuals`.
void initialize_by_name(uint64_t seed, const std::string& name, double rope_theta, int64_t residuals,
                        at::Tensor& whole);

}  // namespace piper
