#include "model/shards.h"

#include <fmt/format.h>

namespace piper {

std::string print(const ShardCounts& shards) {
  std::string out;
  for (const ShardRule& rule : shard_rules)
    if (shards[rule.kind] > 1) out += fmt::format("{}{}={}", out.empty() ? "" : " ", rule.label, shards[rule.kind]);
  return out;
}

}  // namespace piper
