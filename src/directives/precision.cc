// precision(<filter>, matmul=float8): linear layers of the selected chunks multiply numbers that were rounded to e4m3,
// forward and backward; heads, routers and attention do not. Every pass of a chunk does so, or none.
//   before:  %f = compute layer.0 F mb=0: products of bfloat16
//   after:   %f = compute layer.0 F mb=0: products of float8, twice as fast, and their operands are quantised
// Whether the sizes allow it is known when all is divided: the pass check_float8.
// Illegal: nothing selected (E203); parts of the batch, or passes (E105); selected twice, or no linear layers (E320).
#include <fmt/format.h>

#include <algorithm>

#include "directives/directives.h"
#include "ir/select.h"

namespace piper {
namespace {

bool has_linear_products(const Chunk& chunk) {
  return std::ranges::any_of(chunk.work, [](const std::optional<PassWork>& work) {
    return work && work->operators && std::ranges::any_of(work->operators->products, [](const ProductShape& product) {
             return product.kind == ProductKind::Linear;
           });
  });
}

}  // namespace

Result<TrainingDag> apply(TrainingDag dag, const Precision& precision, DirectiveId by) {
  PIPER_TRY(std::vector<ChunkId> chunks, Selector(dag).whole_chunks(precision.what, "precision"));
  for (const ChunkId chunk : chunks)
    if (const auto other = dag.float8.find(chunk); other != dag.float8.end())
      return error(ErrorCode::E320, dag.where_filter(by),
                   fmt::format("precision: chunk {} is computed in float8 already", (*dag.model)[chunk].name))
          .note(dag.where_filter(other->second), "first here")
          .help("make the filters of the two directives exclude each other");
  const std::string first = (*dag.model)[chunks[0]].name;
  std::erase_if(chunks, [&](ChunkId chunk) { return !has_linear_products((*dag.model)[chunk]); });
  if (chunks.empty())
    return error(ErrorCode::E320, dag.where_filter(by),
                 fmt::format("precision: chunk {} has no linear layer, nor has another that is selected", first))
        .help("heads, routers, embeddings, norms, attention and experts stay as they are: select layers")
        .help("a model as text marks products of linear layers: products(linear [1, b*8, 64, 32])");
  for (const ChunkId chunk : chunks) dag.float8[chunk] = by;
  return dag;
}

}  // namespace piper
