#include "model/analytic/vocabulary_chunks.h"

#include "model/analytic/dims.h"
#include "model/analytic/draft_parts.h"

namespace piper {
namespace {

ChunkDraft draft_in(const char* scope, const std::string& name) {
  ChunkDraft out;
  out.name = name;
  out.scopes = {{scope, 0}};
  return out;
}
WorkTally tally_in(const ChunkWriter& writer, const char* prefix, Divided divided) {
  WorkUnit unit = writer.per_sample();
  unit.divided = divided;
  return WorkTally(prefix, unit);
}

}  // namespace

void add_sharded_embed(ChunkWriter& writer, ValueId tokens, const Flow& out) {
  const ModelConfig& c = writer.config();
  const bool more = has_learned_positions(c.arch) || c.dropout;
  const Flow rows = more ? writer.activation("embed.table.out") : out;
  ChunkDraft table = draft_in("embed", "embed.table");
  table.reads = {tokens};
  table.writes = {rows.value};
  table.weight_reads = rows.gradients;
  table.weight_reads.push_back(tokens);
  WorkTally lookup = tally_in(writer, "embed", Divided::Width);
  lookup.lookup("weight", tp(c.vocab), c.hidden);
  writer.make_partial(rows.value);
  writer.add(std::move(table), lookup);
  if (!more) return;
  ChunkDraft rest = draft_in("embed", "embed");
  rest.reads = {rows.value};
  rest.writes = {out.value};
  rest.input_reads = out.gradients;
  rest.input_writes = rows.gradients;
  WorkTally tally = tally_in(writer, "embed", Divided::Nothing);
  if (has_learned_positions(c.arch)) {
    tally.lookup("positions", fixed(c.seq), c.hidden);
    rest.weight_reads = out.gradients;
  }
  if (c.dropout) tally.keep_bytes(c.hidden, NeededBy::Input);  // mask
  writer.add(std::move(rest), tally);
}

void add_sharded_head(ChunkWriter& writer, const Flow& x, ValueId labels, ValueId loss) {
  const ModelConfig& c = writer.config();
  Flow normed = x;
  if (c.arch != Architecture::Gpt) {
    normed = writer.activation("head.norm.out");
    ChunkDraft norm = draft_in("head", "head.norm");
    norm.reads = {x.value};
    norm.writes = {normed.value};
    norm.input_reads = norm.weight_reads = {normed.gradients[0], x.value};
    norm.input_writes = {x.gradients.front()};
    WorkTally tally = tally_in(writer, "head", Divided::Tokens);
    tally.norm("norm", c.hidden, norm_bias(c));
    writer.add(std::move(norm), tally);
  }
  writer.make_partial(normed.gradients.front());
  const Flow logits = writer.inner("head.logits.out", c.vocab, DType::Float32);
  const ValueId most = writer.per_token("head.max", Partial::Max), sum = writer.per_token("head.sum.out", Partial::Sum),
                picked = writer.partial_number("head.pick.out");

  ChunkDraft products = draft_in("head", "head.logits");
  products.reads = {normed.value};
  products.writes = {logits.value, most};
  products.input_reads = logits.gradients;
  products.input_writes = {normed.gradients.front()};
  products.weight_reads = {normed.value, logits.gradients[0]};
  WorkTally projection = tally_in(writer, "head", Divided::Width);
  projection.tied_linear(c.tie_embeddings ? "embed.weight" : "head.weight", c.hidden, tp(c.vocab));
  projection.inside(c.vocab);
  projection.pointwise(c.vocab, 1);
  writer.add(std::move(products), projection);

  ChunkDraft exponentials = draft_in("head", "head.sum");
  exponentials.reads = {logits.value, most};
  exponentials.writes = {sum};
  WorkTally summed = tally_in(writer, "head", Divided::Width);
  summed.inside(c.vocab);
  summed.pointwise(c.vocab, 1);
  writer.add(std::move(exponentials), summed);

  ChunkDraft pick = draft_in("head", "head.pick");
  pick.reads = {logits.value, most, sum, labels};
  pick.writes = {picked};
  pick.input_reads = {labels};
  pick.input_writes = logits.gradients;
  WorkTally chosen = tally_in(writer, "head", Divided::Width);
  chosen.keep_bytes(bytes_of(DType::Float32) * c.vocab, NeededBy::Input);  // logarithms
  chosen.pointwise(c.vocab, c.vocab);
  writer.add(std::move(pick), chosen);

  ChunkDraft mean = draft_in("head", "head");
  mean.reads = {picked, labels};
  mean.writes = {loss};
  writer.add(std::move(mean), tally_in(writer, "head", Divided::Nothing));
}

}  // namespace piper
