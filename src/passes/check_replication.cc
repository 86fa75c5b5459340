// check_replication: E211 devices whose roles nobody named; E213 slices that do not divide among the devices; E308
// experts that are divided among devices which work on the same samples; E317 devices that share samples and are no
// neighbours.
#include <fmt/format.h>

#include "ir/local_size.h"
#include "passes/passes.h"
#include "schedule/schedule_text.h"

namespace piper {

namespace {

/// Context parallelism may lie before the last axis of the mesh, if that is the one of tensor parallelism.
Checked check_shared_axes(const TrainingDag& dag) {
  if (shared_axes_are_last(dag)) return Ok{};
  const std::string& name = dag.shared[SampleAxis::Cp].name;
  DirectiveId by;
  for (const std::vector<Residence>& of_chunk : dag.residences)
    for (const Residence& residence : of_chunk)
      if (const Sharding* tokens = residence.find(SampleAxis::Cp)) by = tokens->by;
  return error(ErrorCode::E317, dag.where(by, {"along"}),
               fmt::format("shard: \"{}\" is not the last axis of the mesh, and nothing is sharded along \"{}\"", name,
                           dag.mesh.back().name))
      .help("devices that share samples stand next to each other: make it the last axis");
}

}  // namespace

Result<TrainingDag> check_replication(TrainingDag dag) {
  PIPER_CHECK(check_shared_axes(dag));
  for (size_t c = 0; c < dag.residences.size(); ++c) {
    for (const Residence& residence : dag.residences[c]) {
      const int size = data_parts(dag, residence.group), parts = sample_parts(dag, residence.group);
      const auto& replication = residence.replication;
      const auto experts = residence.expert_group();
      const int copies = replication ? dag.groups[replication->over].part_size : 1;
      const int shards = experts ? dag.groups[*experts].part_size : 1;
      const bool together = copies * shards == size && replication && experts &&
                            dag.groups.apart(dag.groups.across(*experts), dag.tp().size) == replication->over;
      const std::string& chunk = dag.model->chunks[c].name;
      if (experts && dag.tp().size > 1 &&
          !dag.groups.grid(*experts, dag.groups.along(residence.group, {dag.tp().name})))
        return error(ErrorCode::E308, dag.where_devices(residence.find(ShardKind::Expert)->by),
                     fmt::format("shard: the experts of chunk {} are divided among devices that work on the same "
                                 "samples: those along \"{}\"",
                                 chunk, dag.tp().name))
            .help("shard along another axis; parameters=… divides inside the experts");
      const auto where = [&] {
        const Sharding* sharding = residence.find(ShardKind::Expert);
        const DirectiveId by = replication ? replication->by : sharding ? sharding->by : DirectiveId();
        return dag.where_devices(by.valid() ? by : who_placed(dag, ChunkId(c), residence.group));
      };
      if (size > 1 && copies != size && shards != size && !together)
        return error(ErrorCode::E211, where(),
                     fmt::format("chunk {} runs on the devices {}, which are not all replicated or sharded", chunk,
                                 print_devices(dag.groups[residence.group].devices)))
            .help("add replicate(…) over these devices, so that each takes a part of every microbatch");
      const int64_t slices = int64_t{dag.slices()} * parts;
      if (dag.model->step.batch % slices != 0) {
        Diagnostic problem =
            error(ErrorCode::E213, where(),
                  fmt::format("a batch of {} samples does not divide into {} microbatches on {} devices",
                              dag.model->step.batch, dag.slices(), parts));
        for (const SliceDim& dim : dag.dims) problem.notes.push_back({dag.where(dim.made_by, {"parts"}), "split here"});
        problem.helps.emplace_back("use fewer parts or devices, or another batch");
        return problem;
      }
    }
  }
  return dag;
}

}  // namespace piper
