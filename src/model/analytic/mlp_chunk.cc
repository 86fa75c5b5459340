#include "model/analytic/mlp_chunk.h"

#include <fmt/format.h>

#include "model/analytic/draft_parts.h"

namespace piper {

void add_mlp(ChunkWriter& writer, int64_t index, const Flow& x, const Flow& out) {
  const ModelConfig& c = writer.config();
  ChunkDraft draft = residual_draft(fmt::format("layer.{}.mlp", index), x, out);
  draft.scopes = {{"layer", static_cast<int>(index)}};
  WorkTally tally(draft.name, writer.per_sample());
  input_norm(tally, c);
  feed_forward(tally, c, "", dense_width(c));
  residual(tally, c, draft, out.gradients);
  writer.add(std::move(draft), tally);
}

}  // namespace piper
