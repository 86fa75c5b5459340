#include "model/analytic/ring_attention.h"

#include <fmt/format.h>

#include "model/analytic/dims.h"

namespace piper {

RingAttention::RingAttention(ChunkWriter& writer, RingPlace place)
    : writer_(writer),
      place_(std::move(place)),
      query_heads_(writer.config().heads),
      key_heads_(key_value_heads(writer.config())),
      key_width_(place_.heads.query_width + place_.heads.value_width),
      steps_(static_cast<size_t>(writer.ring())) {
  const DType dtype = writer_.dtype();
  const auto name = [&](std::string_view suffix) { return fmt::format("{}.{}", place_.prefix, suffix); };
  queries_.value = writer_.of_heads(name("q.out"), dtype, query_heads_, place_.heads.query_width);
  keys_.value = writer_.of_heads(name("kv.out"), dtype, key_heads_, key_width_);
  attended_ = {result("core.out", dtype), {gradient("core.out", dtype, false)}};
  const ValueId all_sums = sums("core.sums");
  for (int s = 0; s <= last(); ++s) {
    Step& step = steps_[static_cast<size_t>(s)];
    const std::string own = fmt::format("core.step.{}", s), merged = fmt::format("core.merge.{}", s);
    const bool alone = last() == 0, begins = s == 0, ends = s == last();
    step.out = alone ? attended_.value : result(own + ".out", dtype);
    step.sums = alone ? all_sums : sums(own + ".sums");
    step.for_queries = gradient(alone ? "q.out" : own + ".q", dtype, false);
    step.for_keys = gradient(alone ? "kv.out" : own + ".kv", dtype, true);
    step.merged_out = begins ? step.out : ends ? attended_.value : result(merged + ".out", DType::Float32);
    step.merged_sums = begins ? step.sums : ends ? all_sums : sums(merged + ".sums");
    step.merged_for_queries =
        begins ? step.for_queries : gradient(ends ? "q.out" : merged + ".q", ends ? dtype : DType::Float32, false);
    step.merged_for_keys = s <= 1 ? step.for_keys : gradient(merged + ".kv", DType::Float32, true);
  }
  queries_.gradients = {steps_.back().merged_for_queries};
  keys_.gradients = {steps_.front().for_keys};  // of its own keys, and those that have come home
  if (last() > 0) keys_.gradients.push_back(steps_.back().merged_for_keys);
}

void RingAttention::add_chunks() {
  for (int s = 0; s <= last(); ++s) {
    attend(s);
    if (s > 0) merge(s);
  }
}

ValueId RingAttention::result(const std::string& name, DType dtype) const {
  return writer_.of_heads(fmt::format("{}.{}", place_.prefix, name), dtype, query_heads_, place_.heads.value_width);
}

ValueId RingAttention::sums(const std::string& name) const {
  return writer_.of_heads(fmt::format("{}.{}", place_.prefix, name), DType::Float32, query_heads_);
}

ValueId RingAttention::gradient(const std::string& name, DType dtype, bool keys) const {
  return writer_.of_heads(fmt::format("d.{}.{}", place_.prefix, name), dtype, keys ? key_heads_ : query_heads_,
                          keys ? key_width_ : place_.heads.query_width);
}

ChunkDraft RingAttention::draft(const char* kind, int step) const {
  ChunkDraft out;
  out.name = fmt::format("{}.core.{}.{}", place_.prefix, kind, step);
  out.scopes = place_.scopes;
  out.scopes.push_back({"core", 0});
  out.scopes.push_back({kind, step});
  out.rotation = step;
  return out;
}

WorkTally RingAttention::tally(const ChunkDraft& draft) const {
  WorkUnit unit = writer_.per_sample();
  unit.divided = Divided::Width;
  return WorkTally(draft.name, unit);
}

void RingAttention::attend(int s) {
  const Step& step = steps_[static_cast<size_t>(s)];
  ChunkDraft draft = this->draft("step", s);
  draft.reads = {queries_.value, keys_.value};
  draft.writes = {step.out, step.sums};
  draft.input_reads = {queries_.value, keys_.value, attended_.value, steps_.back().merged_sums, attended_.gradients[0]};
  draft.input_writes = {step.for_queries, step.for_keys};
  draft.rotated = {keys_.value, step.for_keys};
  draft.causal = true;
  const Heads& heads = place_.heads;
  WorkTally tally = this->tally(draft);
  tally.scores(query_heads_, heads.query_width, heads.value_width, heads.stored + query_heads_ * heads.value_width, 0,
               writer_.ring());
  writer_.add(std::move(draft), tally);
}

void RingAttention::merge(int s) {
  const Step &step = steps_[static_cast<size_t>(s)], &before = steps_[static_cast<size_t>(s) - 1];
  ChunkDraft draft = this->draft("merge", s);
  draft.reads = {before.merged_out, before.merged_sums, step.out, step.sums};
  draft.writes = {step.merged_out, step.merged_sums};
  draft.input_reads = {before.merged_for_queries, step.for_queries};
  draft.input_writes = {step.merged_for_queries};
  if (s > 1) {
    draft.input_reads.insert(draft.input_reads.end(), {before.merged_for_keys, step.for_keys});
    draft.input_writes.push_back(step.merged_for_keys);
    draft.rotated = {before.merged_for_keys, step.for_keys, step.merged_for_keys};
  }
  WorkTally tally = this->tally(draft);
  const int64_t width = query_heads_ * place_.heads.value_width;
  tally.pointwise(2 * width, width);
  writer_.add(std::move(draft), tally);
}

}  // namespace piper
