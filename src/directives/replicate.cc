// replicate(<filter>, devices=[…] | along=dp, zero=0..3, …): the devices of a group hold equal parameters and take
// different slices; gradients are reduced over them. ZeRO cuts optimiser state (1), gradients (2), parameters (3).
//   before:  layer.0 on [0, 1]
//   after:   layer.0 on [0, 1], replicated: one reduction per bucket, then one update
// Illegal: nothing selected (E203); replicated twice (E301); devices that differ from the placement (E208, E212).
#include <fmt/format.h>

#include "directives/device_choice.h"
#include "directives/directives.h"
#include "ir/select.h"

namespace piper {

Result<TrainingDag> apply(TrainingDag dag, const Replicate& replicate, DirectiveId by) {
  Selector selector(dag);
  PIPER_TRY(const std::vector<ChunkId> chunks, selector.whole_chunks(replicate.what, "replicate"));
  size_t fitting = 0;
  std::optional<Diagnostic> misfit;
  for (const ChunkId chunk : chunks) {
    for (Residence& residence : dag.residences[chunk.index()]) {
      auto partition = partition_of(dag, residence.group, replicate.devices, by);
      if (!partition) {
        if (!misfit) misfit = partition.error();
        continue;
      }
      ++fitting;
      if (residence.replicated_by.valid())
        return error(ErrorCode::E301, dag.where_filter(by),
                     fmt::format("chunk {} is already replicated", (*dag.model)[chunk].name))
            .note(dag.where_filter(residence.replicated_by), "first replicated here")
            .help("make the filters of the two directives exclude each other");
      residence.replicated_by = by;
      residence.copies = *partition;
    }
  }
  if (misfit) return std::move(*misfit);
  if (fitting == 0) return nothing_selected(replicate.what, "replicate", "placed chunk");
  return dag;
}

}  // namespace piper
