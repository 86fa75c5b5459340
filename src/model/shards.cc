#include "model/shards.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/saturate.h"

namespace piper {

std::string print_load(int64_t load) {
  std::string out = fmt::format("{}.{:04}", load / one_load, load % one_load);
  out.erase(out.find_last_not_of('0') + 1);
  if (out.back() == '.') out.pop_back();
  return out;
}

std::optional<int64_t> parse_load(std::string_view text) {
  const std::string_view whole = text.substr(0, text.find('.'));
  const std::string_view part = whole.size() < text.size() ? text.substr(whole.size() + 1) : "0";
  const auto digits = [](std::string_view of, size_t most) {
    return !of.empty() && of.size() <= most && std::ranges::all_of(of, [](char c) { return '0' <= c && c <= '9'; });
  };
  if (!digits(whole, 6) || !digits(part, 4)) return std::nullopt;
  int64_t load = 0;
  for (const char c : fmt::format("{}{:0<4}", whole, part)) load = 10 * load + (c - '0');
  return load;
}

int64_t rows_in_buffer(int64_t rows, const ShardCounts& shards) {
  if (shards.buffer == 0) return rows;
  const int64_t all = saturating_multiply(rows, shards.routed());
  return std::min(all, ceil_divide(saturating_multiply(rows, shards.buffer), one_load));
}

int64_t local_extent(const Dim& dim, int64_t samples, const ShardCounts& shards) {
  int64_t out = dim.extent(samples);
  if (dim.label.empty()) return out;
  if (dim.label == routed_label) return rows_in_buffer(out, shards);
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
  if (shards.buffer > 0) out += " buffer=" + print_load(shards.buffer);
  return out;
}

}  // namespace piper
