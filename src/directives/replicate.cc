// replicate(<filter>, devices=[…] | along=dp, zero=0..3, …): the devices of a group hold equal parameters and take
// different slices; gradients are reduced over them. ZeRO cuts optimizer state (1), gradients (2), parameters (3).
//   before:  layer.0 on [0, 1]
//   after:   layer.0 on [0, 1], replicated: one reduction per bucket, then one update
// Illegal: nothing selected (E203); replicated twice (E301); devices that differ from the placement (E208, E212);
// an argument without effect at this level (E104).
#include <fmt/format.h>

#include <algorithm>

#include "directives/device_choice.h"
#include "directives/directives.h"
#include "ir/select.h"

namespace piper {
namespace {

/// Arguments that have no effect at this ZeRO level, however many devices there are.
Checked check_arguments(const TrainingDag& dag, const Replicate& replicate, DirectiveId by) {
  const Replicate usual;
  const std::vector<DeviceList>& lists = replicate.devices.lists;
  const auto is_alone = [](const DeviceList& list) { return list.size() == 1; };
  if (replicate.zero > 0 && !lists.empty() && std::all_of(lists.begin(), lists.end(), is_alone))
    return error(ErrorCode::E104, dag.where(by, {"zero"}),
                 fmt::format("replicate: zero={} goes with several devices, among which to divide", replicate.zero))
        .help("take it out, or name the devices that hold equal parameters: devices=[0, 1]");
  if (replicate.release != usual.release && replicate.zero < 3)
    return error(ErrorCode::E104, dag.where(by, {"release"}), "replicate: release=… goes with zero=3")
        .help(fmt::format("with zero={} there is no gathered copy to release; take it out, or write zero=3",
                          replicate.zero));
  if (replicate.gather_stream != usual.gather_stream && replicate.zero == 0)
    return error(ErrorCode::E104, dag.where(by, {"gather_stream"}),
                 "replicate: gather_stream=… goes with zero=1, 2 or 3")
        .help("with zero=0 no parameters are gathered; take it out, or divide something: zero=1");
  return Ok{};
}

}  // namespace

Result<TrainingDag> apply(TrainingDag dag, const Replicate& replicate, DirectiveId by) {
  PIPER_CHECK(check_arguments(dag, replicate, by));
  Selector selector(dag);
  PIPER_TRY(const std::vector<ChunkId> chunks, selector.whole_chunks(replicate.what, "replicate"));
  std::vector<std::pair<Residence*, PartitionId>> selected;
  for (const ChunkId chunk : chunks) {
    for (Residence& residence : dag.residences[chunk.index()]) {
      PIPER_TRY(const PartitionId over, partition_of(dag, residence.group, replicate.devices, by));
      if (residence.replication)
        return error(ErrorCode::E301, dag.where_filter(by),
                     fmt::format("chunk {} is already replicated", (*dag.model)[chunk].name))
            .note(dag.where_filter(residence.replication->by), "first replicated here")
            .help("make the filters of the two directives exclude each other");
      selected.emplace_back(&residence, over);
    }
  }
  for (const auto& [residence, over] : selected)
    residence->replication = Replication{
        over, replicate.zero, replicate.bucket, replicate.release, replicate.gather_stream, replicate.reduce_stream,
        by};
  return dag;
}

}  // namespace piper
