// What an optimizer keeps for a parameter as a whole, not for its elements: Adafactor's second moments.
//
// As in torch.optim.Adafactor: of a tensor with two dimensions or more a number for every row and one for every column
// (of each of its matrices), of a vector the squares themselves. Every device that holds some of the parameter keeps
// all of it: it is small.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "model/element_types.h"

namespace piper {

struct WholeState {
  std::string_view suffix;  // of its name in checkpoints
  std::vector<int64_t> sizes;
  int64_t count = 1;
  bool by_first = true;  // whether its first dimension is that of the parameter
};
/// In the order in which they lie in memory. `sizes`: of the parameter's tensor.
std::vector<WholeState> whole_states(Optimizer optimizer, std::span<const int64_t> sizes);
/// Numbers of all of them.
int64_t whole_state_count(Optimizer optimizer, std::span<const int64_t> sizes);
int64_t whole_state_count(Optimizer optimizer, const Parameter& parameter);

/// Where they begin in the state of a range of so many elements, in bytes: behind what is kept for elements. They are
/// of the type of moments.
int64_t whole_state_begin(const ElementTypes& types, Optimizer kind, int64_t count);

}  // namespace piper
