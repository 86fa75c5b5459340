// shard(<filter>, devices=[…] | … | along=ep, stream=ep): the selected regions' parameters are cut along their expert
// dimension; values that cross a region's border are exchanged by all-to-all.
//   before:  layer.0.experts on [0, 1]: every device holds all experts
//   after:   layer.0.experts on [0, 1]: each holds half of them, tokens travel
// Illegal: nothing selected (E203); sharded twice (E309); devices that differ from the placement (E208, E212);
// a region without expert dimension, or experts that do not divide (E308).
#include <fmt/format.h>

#include "directives/device_choice.h"
#include "directives/directives.h"
#include "ir/local_size.h"
#include "ir/select.h"

namespace piper {
namespace {

/// Every expert dimension of the chunk divides by `parts`, and there is one.
Checked check_divides(const TrainingDag& dag, ChunkId id, int parts, const Shard& shard) {
  const Chunk& chunk = (*dag.model)[id];
  bool found = false;
  const auto divides = [&](const auto& thing, std::string_view what) -> Checked {
    const Dim* dim = labelled(thing.shape, divided_label);
    found = found || dim;
    if (!dim || dim->size % parts == 0) return Ok{};
    return error(ErrorCode::E308, shard.devices.where,
                 fmt::format("shard: {} {} of chunk {} has {} experts, which do not divide among {} devices", what,
                             thing.name, chunk.name, dim->size, parts))
        .help(fmt::format("use a number of devices that divides {}", dim->size));
  };
  for (const Pass pass : {Pass::F, Pass::B, Pass::BI, Pass::BW}) {
    const PassWork* work = chunk.find(pass);
    if (!work) continue;
    for (const ParameterId p : work->parameters) PIPER_CHECK(divides((*dag.model)[p], "parameter"));
    for (const ValueId v : work->writes) PIPER_CHECK(divides((*dag.model)[v], "value"));
    for (const ValueId v : work->reads) PIPER_CHECK(divides((*dag.model)[v], "value"));
  }
  if (found) return Ok{};
  return error(ErrorCode::E308, shard.what.where,
               fmt::format("shard: nothing in chunk {} has an expert dimension", chunk.name))
      .help("select the region of the experts only, as in shard({experts=*}, …)");
}

}  // namespace

Result<TrainingDag> apply(TrainingDag dag, const Shard& shard, DirectiveId by) {
  Selector selector(dag);
  PIPER_TRY(const std::vector<ChunkId> chunks, selector.whole_chunks(shard.what, "shard"));
  const StreamId stream = dag.stream(shard.stream);
  for (const ChunkId chunk : chunks) {
    for (Residence& residence : dag.residences[chunk.index()]) {
      PIPER_TRY(const PartitionId partition, partition_of(dag, residence.group, shard.devices, by));
      if (residence.sharded_by.valid())
        return error(ErrorCode::E309, dag.where_filter(by),
                     fmt::format("chunk {} is already sharded", (*dag.model)[chunk].name))
            .note(dag.where_filter(residence.sharded_by), "first sharded here")
            .help("make the filters of the two directives exclude each other");
      const int parts = dag.groups[partition].part_size;
      PIPER_CHECK(check_divides(dag, chunk, parts, shard));
      residence.sharded_by = by;
      residence.exchange_stream = stream;
      if (parts > 1) residence.layout = partition;
    }
  }
  return dag;
}

}  // namespace piper
