// Tokens to experts without slots: a row for every choice of every token, sorted by expert, and the way back.
//
// There are tokens * top_k rows whatever the router says, so that all shapes are known in advance, and nothing is
// dropped. The rows of an expert are in the order of tokens, and of a token in that of its choices. Backward only moves
// rows and adds up those of a token, in their order: it adds into nothing by index.
#pragma once

#include <ATen/core/Tensor.h>

#include "models/routing.h"

namespace piper {

struct SortedRows {
  Choices choices;
  at::Tensor order;   // [rows]: the choice that a row is; choices are numbered token by token
  at::Tensor places;  // [rows]: the row of a choice
  at::Tensor counts;  // [experts]: rows of each
  at::Tensor ends;    // [experts], int32: rows of it and those before
  int64_t top_k = 0;
};

SortedRows sort_rows(Choices choices);

/// [tokens, dim] to [rows, dim].
at::Tensor dispatch(const at::Tensor& x, const SortedRows& rows);

/// [rows, dim] back to [tokens, dim], weighted.
at::Tensor combine(const at::Tensor& y, const SortedRows& rows);

/// The part of all choices of the slice that each expert is: [experts].
at::Tensor shares(const SortedRows& rows);

}  // namespace piper
