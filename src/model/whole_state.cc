#include "model/whole_state.h"

#include <functional>
#include <numeric>

#include "base/saturate.h"

namespace piper {

std::vector<WholeState> whole_states(Optimizer optimizer, std::span<const int64_t> sizes) {
  if (optimizer != Optimizer::Adafactor) return {};
  const auto state = [](std::string_view suffix, std::vector<int64_t> of, bool by_first) {
    const int64_t count = std::accumulate(of.begin(), of.end(), int64_t{1}, saturating_multiply);
    return WholeState{suffix, std::move(of), count, by_first};
  };
  if (sizes.size() < 2) return {state("exp_avg_sq", {sizes.begin(), sizes.end()}, true)};
  const std::vector<int64_t> rows(sizes.begin(), sizes.end() - 1);
  std::vector<int64_t> columns(sizes.begin(), sizes.end() - 2);
  columns.push_back(sizes.back());
  return {state("exp_avg_sq_row", rows, true), state("exp_avg_sq_col", columns, sizes.size() > 2)};
}

int64_t whole_state_count(Optimizer optimizer, std::span<const int64_t> sizes) {
  int64_t out = 0;
  for (const WholeState& state : whole_states(optimizer, sizes)) out = saturating_add(out, state.count);
  return out;
}

int64_t whole_state_count(Optimizer optimizer, const Parameter& parameter) {
  std::vector<int64_t> sizes = parameter.tensor;
  if (sizes.empty())
    for (const Dim& dim : parameter.shape) sizes.push_back(dim.size);
  return whole_state_count(optimizer, sizes);
}

int64_t whole_state_begin(const ElementTypes& types, Optimizer kind, int64_t count) {
  constexpr int64_t alignment = 8;
  return ceil_divide(state_bytes(types, kind, count), alignment) * alignment;
}

}  // namespace piper
