// Piper's own operators that make the logits of a vocabulary in blocks of tokens, and keep one number for each token of
// them. Logits: hidden [tokens, width] times table [vocabulary, width], transposed. What is kept is float32, or as wide
// as the logits are.
#pragma once

namespace piper {

// piper::logits_in_blocks(Tensor table, Tensor hidden, Tensor targets, int ignored, int block) -> (Tensor, Tensor)
//   of each token: the logsumexp of its logits, and the logit of its target; 0 for a target that is ignored
// piper::logits_in_blocks_backward(Tensor table, Tensor hidden, Tensor targets, Tensor logsumexp, Tensor gradient,
//   int first, int block, bool[2] output_mask) -> (Tensor, Tensor)
//   gradients of hidden and table, where `gradient` is that of the loss of each token; the logits are computed again
// piper::logits_in_blocks_backward_add(Tensor(a!) to, …the same…) -> (Tensor, Tensor(a!))
//   the same, with the gradient of the table added to a wider sum before it is rounded; on GPUs
//
// Of a part of the vocabulary, whose first word is `first`:
// piper::logits_in_blocks_max(Tensor table, Tensor hidden, int block) -> Tensor
//   of each token: its greatest logit
// piper::logits_in_blocks_sum(Tensor table, Tensor hidden, Tensor targets, Tensor most, int ignored, int first,
//   int block) -> (Tensor, Tensor)
//   of each token: the sum of exp(logit - most), and the logit of its target; 0 where the target is elsewhere
//
// What they are made of; GPUs have kernels for them:
// piper::logsumexp_of_rows(Tensor logits) -> Tensor
// piper::softmax_gradient_(Tensor(a!) logits, Tensor logsumexp, Tensor targets, Tensor gradient, int first) ->
// Tensor(a!)
//   logits become (exp(logit - logsumexp) - 1 at the target) times the gradient of their row

/// Whoever calls it is linked with them.
void provide_logits_operators();

}  // namespace piper
