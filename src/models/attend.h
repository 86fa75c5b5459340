// Pieces of computation that all models share.
#pragma once

#include <ATen/core/Tensor.h>

namespace piper {

enum class Mask { None, Causal };

/// softmax(q k^T / sqrt(width)) v, where scores are not stored if the target has such an operator for these numbers.
/// [samples, heads, tokens, width]; keys and values may have fewer heads, each of which then serves several heads of
/// queries.
at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, Mask mask, c10::DeviceType target);

/// The same with stored scores, which dropout thins out. `places`: of every token in its document, [samples, tokens];
/// it sees no token of another one before it. Undefined: a sample is one document.
at::Tensor attend_with_scores(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, Mask mask, double dropout,
                              const at::Tensor& places = {});

/// Over the last dimension; one operator where the target has one.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon, c10::DeviceType target);

/// Logits [samples, tokens, words], targets [samples, tokens]; in float32 or wider.
at::Tensor mean_cross_entropy(const at::Tensor& logits, const at::Tensor& targets);

}  // namespace piper
