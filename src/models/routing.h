// Tokens to experts: the best experts of each token, a slot in each of them, and the way back.
//
// An expert has equally many slots in every slice of one size, so that all shapes are known in advance. Slots are given
// to all first choices in the order of tokens, then to all second choices, and so on; a choice that finds its expert
// full contributes nothing. Without slots: sorted_rows.h.
#pragma once

#include <ATen/core/Tensor.h>

namespace piper {

/// What a router says of each token.
struct Choices {
  at::Tensor probabilities;  // [tokens, experts]
  at::Tensor experts;        // [tokens, top_k]: best first
  at::Tensor weights;        // [tokens, top_k]: of what comes back; those of a token add up to one
};

/// Logits [tokens, experts]; softmax in float32 or wider.
Choices choose(const at::Tensor& logits, int64_t top_k);

struct SlotRouting {
  Choices choices;
  int64_t experts = 0, capacity = 0, top_k = 0;
  at::Tensor chosen;   // [top_k * tokens, experts]: whether it is the choice; all first choices come first
  at::Tensor slots;    // [top_k * tokens]: row of [experts * capacity], or the row behind for what is dropped
  at::Tensor weights;  // [top_k * tokens, 1]: of what comes back
};

/// ceil(factor * tokens * top_k / experts), the factor in ten-thousandths as analytic models take it.
int64_t expert_capacity(double factor, int64_t tokens, int64_t top_k, int64_t experts);

/// Logits [tokens, experts].
SlotRouting route(const at::Tensor& logits, int64_t top_k, double capacity_factor);

/// [tokens, dim] to [experts, capacity, dim]; empty slots are zero.
at::Tensor dispatch(const at::Tensor& x, const SlotRouting& routing);

/// [experts, capacity, dim] back to [tokens, dim], weighted.
at::Tensor combine(const at::Tensor& y, const SlotRouting& routing);

/// The part of all choices of the slice that each expert is: [experts].
at::Tensor shares(const SlotRouting& routing);

/// How unevenly tokens are spread, of each sample: experts * sum over experts of (part of all choices of the slice) *
/// (mean probability in the sample). Its mean over the samples is one if they are spread evenly, and more otherwise.
at::Tensor imbalance(const at::Tensor& probabilities, const at::Tensor& shares, int64_t samples);

}  // namespace piper
