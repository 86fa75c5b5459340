#include "model/capture_form.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "base/hash.h"
#include "base/text/scanner.h"

namespace piper {

CaptureForm capture_form(const ModelGraph& model, TokenOrder order) {
  CaptureForm out;
  out.ring = model.ring > 0;
  out.token_order = order;
  out.labelled[ShardKind::Context] = model.context;
  out.labelled[ShardKind::Sequence] = std::ranges::any_of(model.chunks, &Chunk::sequence_sharded);
  return out;
}

std::string print(const CaptureForm& form) {
  std::vector<std::string_view> words;
  if (form.ring) words.push_back("ring");
  if (form.token_order == TokenOrder::Contiguous) words.push_back("contiguous");
  for (const ShardRule& rule : shard_rules)
    if (form.labelled[rule.kind]) words.push_back(rule.name);
  return fmt::format("{}", fmt::join(words, " "));
}

CaptureForm parse_capture_form(Scanner& in) {
  CaptureForm out;
  out.ring = in.accept_word("ring");
  if (in.accept_word("contiguous")) out.token_order = TokenOrder::Contiguous;
  for (const ShardRule& rule : shard_rules) out.labelled[rule.kind] = in.accept_word(rule.name);
  return out;
}

void add(StableHash& hash, const CaptureForm& form) {
  if (form.ring) hash.add("ring");
  if (form.token_order == TokenOrder::Contiguous) hash.add("contiguous");
  uint64_t labelled = 0;
  for (const bool kind : form.labelled.of) labelled = 2 * labelled + uint64_t{kind};
  hash.add(labelled);
}

}  // namespace piper
