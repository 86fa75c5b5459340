// Samples of text: the model of a run continues prompts token by token, with a forward pass over the whole text for
// each token.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "train/loop/evaluation_run.h"

namespace piper {

struct TextLimits {
  int64_t sequence = 1;        // tokens that the model sees
  int64_t vocabulary = 1;      // of the model
  int64_t new_tokens = 1;      // after each text, at most
  std::optional<int64_t> end;  // the token that ends a text
};

/// What follows each text, without the token that ends it; between `begin` and the next step. Every text has a token at
/// least and fewer than a sequence. All processes call it.
std::vector<std::vector<int64_t>> continue_texts(EvaluationRun& run, const std::vector<std::vector<int64_t>>& texts,
                                                 const TextLimits& limits);

}  // namespace piper
