#include "model/shards.h"

#include <fmt/format.h>

#include "base/saturate.h"

namespace piper {

int64_t local_extent(const Dim& dim, int64_t samples, const ShardCounts& shards) {
  int64_t out = dim.extent(samples);
  if (dim.label.empty()) return out;
  for (const ShardRule& rule : shard_rules) {
    if (dim.label == rule.label) out /= shards[rule.kind];
    if (dim.label == rule.gathered) out = saturating_multiply(out, shards[rule.kind]);
  }
  return out;
}

std::string shard_kinds_in_words() {
  std::string out;
  for (size_t k = 0; k < shard_rules.size(); ++k)
    out += fmt::format("{}{}", k == 0 ? "" : k + 1 < shard_rules.size() ? ", " : " or ", shard_rules[k].name);
  return out;
}

std::string print(const ShardCounts& shards) {
  std::string out;
  for (const ShardRule& rule : shard_rules)
    if (shards[rule.kind] > 1) out += fmt::format("{}{}={}", out.empty() ? "" : " ", rule.name, shards[rule.kind]);
  return out;
}

}  // namespace piper
