#include "model/analytic/border_chunks.h"

#include "model/analytic/dims.h"
#include "model/analytic/draft_parts.h"

namespace piper {

void add_embed(ChunkWriter& writer, ValueId tokens, const Flow& out) {
  const ModelConfig& c = writer.config();
  ChunkDraft draft;
  draft.name = "embed";
  draft.scopes = {{"embed", 0}};
  draft.reads = {tokens};
  draft.writes = {out.value};
  draft.weight_reads = out.gradients;
  draft.weight_reads.push_back(tokens);
  WorkTally tally(draft.name, writer.per_sample());
  tally.lookup("weight", fixed(c.vocab), c.hidden);
  if (has_learned_positions(c.arch)) tally.lookup("positions", fixed(c.seq), c.hidden);
  if (c.dropout) tally.keep_bytes(c.hidden, NeededBy::Weight);  // mask
  writer.add(std::move(draft), tally);
}

void add_head(ChunkWriter& writer, const Flow& x, ValueId labels, ValueId loss) {
  constexpr int64_t float32_bytes = 4;
  const ModelConfig& c = writer.config();
  ChunkDraft draft;
  draft.name = "head";
  draft.scopes = {{"head", 0}};
  draft.reads = {x.value, labels};
  draft.writes = {loss};
  draft.input_reads = {labels};
  draft.input_writes = {x.gradients.front()};
  draft.weight_reads = {x.value};
  WorkTally tally(draft.name, writer.per_sample());
  if (c.arch != Architecture::Gpt) {
    input_norm(tally, c);
    draft.input_reads.push_back(x.value);
  }
  tally.tied_linear(c.tie_embeddings ? "embed.weight" : "head.weight", c.hidden, fixed(c.vocab));
  tally.keep_bytes(float32_bytes * c.vocab, NeededBy::Input);  // logits
  tally.hand(c.vocab);
  tally.inside(c.vocab);
  tally.pointwise(c.vocab, c.vocab);
  writer.add(std::move(draft), tally);
}

}  // namespace piper
