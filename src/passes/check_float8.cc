// check_float8: E320 a product that is to be computed in float8, and has sizes on a device with which no GPU can.
#include <algorithm>

#include "ir/local_size.h"
#include "model/float8.h"
#include "passes/passes.h"

namespace piper {
namespace {

/// Of products whose labels say what is divided, or of which nothing is. Others are checked when they are captured.
Checked check(const TrainingDag& dag, ChunkId chunk, Pass pass, const PassWork& work, GroupId group, DirectiveId by) {
  const bool divided = dag.devices_per_sample() > 1 && !dag.residence(chunk, group).shardings.empty();
  if (!work.operators) return Ok{};
  for (const ProductShape& product : work.operators->products) {
    const bool labels = std::ranges::any_of(product.extents, [](const Dim& dim) { return !dim.label.empty(); });
    if (product.kind != ProductKind::Linear || (divided && !labels)) continue;
    const DeviceOperators local =
        on_device({{product}, {}, 0}, samples_on(dag, group), shard_counts(dag, dag.residence(chunk, group)));
    PIPER_CHECK(check_fits_float8(local.products[0], (*dag.model)[chunk].name, pass, dag.where_filter(by)));
  }
  return Ok{};
}

}  // namespace

Result<TrainingDag> check_float8(TrainingDag dag) {
  for (const auto& [chunk, by] : dag.float8)
    for (const Residence& residence : dag.residences[chunk.index()])
      for (const Pass pass : {Pass::F, Pass::B})
        if (const PassWork* work = (*dag.model)[chunk].find(pass))
          PIPER_CHECK(check(dag, chunk, pass, *work, residence.group, by));
  return dag;
}

}  // namespace piper
