#include "runtime/element_runs.h"

#include <algorithm>

namespace piper {
namespace {

/// Indices of a factor of the whole that a shard has, as intervals one after another.
struct Interval {
  int64_t whole = 0, shard = 0, count = 0;
};

std::vector<Interval> intervals_of(const ParameterForm& form, const LocalShards& shards, size_t factor) {
  std::vector<Interval> out = {{0, 0, form.factors[factor]}};
  for (size_t k = 0; k < shards.of.size(); ++k) {
    const auto [count, index] = shards.of[k];
    const ParameterForm::Along& along = form.along.of[k];
    if (count == 1 || along.factor != factor) continue;
    out.clear();
    int64_t begin = 0, here = 0;
    for (const int64_t block : along.blocks.empty() ? std::vector{form.factors[factor]} : along.blocks) {
      const int64_t size = block / count;
      out.push_back({begin + index * size, here, size});
      begin += block;
      here += size;
    }
  }
  return out;
}

int64_t whole_index(const std::vector<Interval>& intervals, int64_t shard_index) {
  for (const Interval& interval : intervals)
    if (shard_index < interval.shard + interval.count) return interval.whole + shard_index - interval.shard;
  return 0;
}

}  // namespace

std::vector<ElementRun> element_runs(const ParameterForm& form, const LocalShards& shards, ElementRange range) {
  if (range.count <= 0) return {};
  std::vector<std::vector<Interval>> factors;
  size_t divided = 0;  // one past the innermost factor that is divided
  for (size_t f = 0; f < form.factors.size(); ++f) {
    factors.push_back(intervals_of(form, shards, f));
    if (factors[f].size() > 1 || factors[f][0].count < form.factors[f]) divided = f + 1;
  }
  if (divided == 0) return {{range.begin, range.begin, range.count}};
  int64_t inner = 1;  // elements behind one index of the innermost divided factor
  for (size_t f = divided; f < form.factors.size(); ++f) inner *= form.factors[f];
  const std::vector<Interval>& last = factors[divided - 1];
  const int64_t row = (last.back().shard + last.back().count) * inner;  // of the shard, for one index of all outer ones
  std::vector<ElementRun> out;
  for (int64_t outer = range.begin / row; outer * row < range.end(); ++outer) {
    int64_t whole_row = 0, rest = outer, stride = form.factors[divided - 1] * inner;
    for (size_t f = divided - 1; f-- > 0;) {
      const int64_t extent = factors[f].back().shard + factors[f].back().count;
      whole_row += whole_index(factors[f], rest % extent) * stride;
      rest /= extent;
      stride *= form.factors[f];
    }
    for (const Interval& interval : last) {
      const int64_t begin = outer * row + interval.shard * inner, end = begin + interval.count * inner;
      const int64_t from = std::max(begin, range.begin), to = std::min(end, range.end());
      if (from >= to) continue;
      const ElementRun run{whole_row + interval.whole * inner + from - begin, from, to - from};
      if (!out.empty() && out.back().whole + out.back().count == run.whole)
        out.back().count += run.count;
      else
        out.push_back(run);
    }
  }
  return out;
}

}  // namespace piper
