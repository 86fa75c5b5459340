// Tokens to experts: the best experts of each token, a slot in each of them, and the way back.
//
// An expert has equally many slots in every slice of one size, so that all shapes are known in advance. Slots are given
// to all first choices in the order of tokens, then to all second choices, and so on; a choice that finds its expert
// full contributes nothing. Without slots: sorted_rows.h.
#pragma once

#include <ATen/core/Tensor.h>

#include "model/analytic/model_config.h"

namespace piper {

/// How a router chooses.
struct RouterForm {
  int64_t top_k = 1;
  RouterScores scores = RouterScores::Softmax;
  bool normalized = true;  // the weights of a token's choices add up to one
  double scaling = 1;      // of them, in the end
  int64_t groups = 1;      // of experts, equally large; a token's choices lie in the best `top_groups` of them
  int64_t top_groups = 1;
};
RouterForm router_form(const ModelConfig& config);

/// What a router says of each token.
struct Choices {
  at::Tensor logits;   // [tokens, experts], in float32 or wider
  at::Tensor scores;   // of them
  at::Tensor experts;  // [tokens, top_k]
  at::Tensor weights;  // [tokens, top_k]: of what comes back
};

/// Logits [tokens, experts]. `bias` [experts]: added to the scores for the choice, but not for the weights. It gets a
/// gradient of its own, by whose sign it is updated (ParameterGroup::sign_rate): how many more tokens than the mean
/// have chosen an expert, times the number of experts and `count_unit`. Whole numbers, so that sums of slices and
/// devices are exact, and so small that they do not matter in the norm of all gradients.
Choices choose(const at::Tensor& logits, const RouterForm& form, const at::Tensor& bias = {});
constexpr double count_unit = 0x1p-80;

/// Of experts, for each token: they add up to one.
at::Tensor probabilities(const Choices& choices, const RouterForm& form);

struct SlotRouting {
  Choices choices;
  int64_t experts = 0, capacity = 0, top_k = 0;
  at::Tensor chosen;   // [top_k * tokens, experts]: whether it is the choice; all first choices come first
  at::Tensor slots;    // [top_k * tokens]: row of [experts * capacity], or the row behind for what is dropped
  at::Tensor weights;  // [top_k * tokens, 1]: of what comes back
};

/// ceil(factor * tokens * top_k / experts), the factor in ten-thousandths as analytic models take it.
int64_t expert_capacity(double factor, int64_t tokens, int64_t top_k, int64_t experts);

SlotRouting route(Choices choices, double capacity_factor);

/// [tokens, dim] to [experts, capacity, dim]; empty slots are zero.
at::Tensor dispatch(const at::Tensor& x, const SlotRouting& routing);

/// [experts, capacity, dim] back to [tokens, dim], weighted.
at::Tensor combine(const at::Tensor& y, const SlotRouting& routing);

/// The part of all choices of the slice that each expert is: [experts].
at::Tensor shares(const SlotRouting& routing);

/// How often each expert is chosen by the tokens of a sample, divided by these: [samples, experts].
at::Tensor choices_by_sample(const Choices& choices, int64_t samples);
/// The mean over the tokens of a sample: [samples, experts].
at::Tensor means_by_sample(const at::Tensor& probabilities, int64_t samples);
/// The mean over the tokens of a sample of the square of the logsumexp of logits: [samples].
at::Tensor square_of_logsumexp(const Choices& choices, int64_t samples);

/// How unevenly tokens are spread, of each sample: experts * sum over experts of (part of all choices of the slice) *
/// (mean probability in the sample). Its mean over the samples is one if they are spread evenly, and more otherwise.
at::Tensor imbalance(const at::Tensor& probabilities, const at::Tensor& shares, int64_t samples);

}  // namespace piper
