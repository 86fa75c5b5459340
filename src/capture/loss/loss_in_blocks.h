// A loss over a vocabulary without its logits.
//
// Of a cross entropy the logits are needed twice: for a number of each token forward, and for a gradient of the same
// size backward. Both can be had in blocks of tokens, if the product that makes logits runs again in backward.
//   before:  l = log_softmax(mm(h, t(w))); loss, n = nll_loss(l, t)
//            d = log_softmax_backward(nll_loss_backward(g, l, t, n), l); dh = mm(d, w); dw = mm(t(d), h)
//   after:   s, p = logits_in_blocks(w, h, t); loss = mean(s - p); n = number of targets
//            dh, dw = logits_in_blocks_backward(w, h, t, s, g / n)
// Views and conversions between these calls are part of it, so are sums instead of means, and losses of single tokens.
// It stays as it is where somebody else looks at the logits, where classes have weights, and where nobody wants a
// gradient.
#pragma once

#include <cstdint>
#include <optional>

#include "capture/record/operator_graph.h"

namespace piper {

/// How many tokens are a block.
struct LossBlocks {
  /// A vocabulary of so many words or more is worth it: what is computed twice costs less than a third of its head.
  int64_t smallest_vocabulary = 32768;
  /// None: twice the hidden size, 1,024 at least. The logits of a block are then twice as large as the table, whose
  /// gradient is read and written once per block: smaller blocks spend more time on it, larger ones more memory.
  std::optional<int64_t> tokens = std::nullopt;
};

/// As somebody asked for it: so many tokens, whatever the vocabulary; 0: logits are made whole.
std::optional<LossBlocks> loss_blocks_of(int64_t tokens);

OperatorGraph loss_in_blocks(OperatorGraph graph, const LossBlocks& blocks);

}  // namespace piper
