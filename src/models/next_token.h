// Which token follows a text: the likeliest, or one drawn by its probability.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "capture/capture.h"

namespace piper {

/// What is asked of every sample besides its tokens: its number, and the place of the last token of its text.
std::vector<InputSpec> next_token_inputs();

/// What stands at place `last` of every sample: [samples, tokens, width] to [samples, width].
at::Tensor at_place(const at::Tensor& x, const at::Tensor& last);

/// Of the logits [samples, vocabulary]; the first of several that are equally likely. `temperature`: what logits are
/// divided by before one is drawn; 0: none is drawn.
at::Tensor choose_token(const at::Tensor& logits, double temperature);

}  // namespace piper
