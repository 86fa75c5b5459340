// shard(<filter>, along=AXIS | devices=[…] | …, parameters="*.wo: 1", vocabulary=on, sequence=on | gather | heads |
// ring, order=zigzag | contiguous, regather=on, stream=…): the devices along an axis divide what the selected chunks
// are made of.
//
// Experts (expert parallelism), where all selected chunks are made of them and no argument is about parameters:
// parameters are divided along their expert dimension, values that cross a region's border are exchanged by all-to-all.
//   before:  layer.0.experts on [0, 1]: every device holds all experts
//   after:   layer.0.experts on [0, 1]: each holds half of them, tokens travel
// Where the rows of experts are sorted a device has memory for buffer=… of them at once.
// Parameters (tensor parallelism): those of the selected chunks are divided along a dimension. The devices work on the
// same samples; where a chunk writes terms of a sum, they are added up behind it. With sequence=on selected chunks that
// treat every token alone get some of the tokens each (sequence parallelism), and sums leave each device those. With
// vocabulary=on the tables of embedding and head are divided too, and the loss over them.
//   before:  layer.0.mlp on [0, 1]: every device holds w_up and w_down
//   after:   layer.0.mlp on [0, 1]: each holds half of the rows of w_up and of the columns of w_down; one all_reduce
//
// Tokens (context parallelism, sequence=gather): each device has some tokens of every sample in all of the model, in
// zigzag order unless order=contiguous. What attention looks at, keys and values, is gathered; gradients of those are
// reduced and scattered. Parameters are replicated along the axis.
//   before:  layer.0 on [0, 1]: each device has half of the samples
//   after:   layer.0 on [0, 1]: each device has half of the tokens of all samples; one all_gather, one reduce_scatter
// With sequence=heads attention has all tokens of some heads instead: what it reads and writes is exchanged by
// all-to-all. With sequence=ring it has keys and values of one device after the other: they are shifted around the
// axis.
//
// Illegal: nothing selected (E203); sharded twice (E309); no such axis or other devices than the placement's (E208,
// E212). Experts: a chunk without them, or a number of them that does not divide (E308). Parameters: devices that are
// no neighbours or are replicas of each other, nothing that can be divided, no sequence or vocabulary, sizes that do
// not divide (E317). Tokens: a part of the model only, an axis of tensor parallelism, experts, values without a
// dimension of tokens, heads that do not divide (E317).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/saturate.h"
#include "base/suggest.h"
#include "directives/device_choice.h"
#include "directives/directives.h"
#include "ir/select.h"
#include "schedule/schedule_text.h"
#include "schedule/shard_target.h"

namespace piper {
namespace {

/// A chunk on a group, and how the directive divides it.
struct Sharded {
  Residence* residence = nullptr;
  Sharding sharding;
};

/// Calls check(parameter or value, what it is) for all that the chunk works on.
template <class Check>
Checked check_all(const TrainingDag& dag, const Chunk& chunk, Check check) {
  for (const std::optional<PassWork>& work : chunk.work) {
    if (!work) continue;
    for (const ParameterId p : work->parameters) PIPER_CHECK(check((*dag.model)[p], "parameter"));
    for (const ValueId v : work->writes) PIPER_CHECK(check((*dag.model)[v], "value"));
    for (const ValueId v : work->reads) PIPER_CHECK(check((*dag.model)[v], "value"));
  }
  return Ok{};
}

Checked check_new(const TrainingDag& dag, ChunkId chunk, const Sharding* known, DirectiveId by) {
  if (!known) return Ok{};
  return error(ErrorCode::E309, dag.where_filter(by),
               fmt::format("chunk {} is already sharded", (*dag.model)[chunk].name))
      .note(dag.where_filter(known->by), "first sharded here")
      .help("make the filters of the two directives exclude each other");
}

// ---- experts

/// Every expert dimension of the chunk divides by `parts`, and there is one.
Checked check_experts(const TrainingDag& dag, const Chunk& chunk, int parts, const Shard& shard) {
  PIPER_CHECK(check_all(dag, chunk, [&](const auto& thing, std::string_view what) -> Checked {
    const Dim* dim = labelled(thing.shape, expert_label);
    if (!dim || dim->size % parts == 0) return Ok{};
    return error(ErrorCode::E308, shard.devices.where,
                 fmt::format("shard: {} {} of chunk {} has {} experts, which do not divide among {} devices", what,
                             thing.name, chunk.name, dim->size, parts))
        .help(fmt::format("use a number of devices that divides {}", dim->size));
  }));
  if (has_label(*dag.model, chunk, routed_label) && !chunk.routed_by)
    return error(ErrorCode::E308, shard.what.where,
                 fmt::format("shard: chunk {} works on sorted rows, and does not read where those of each expert end",
                             chunk.name))
        .help("select the region of the experts only, as in shard({experts=*}, …)");
  if (has_label(*dag.model, chunk, expert_label)) return Ok{};
  Diagnostic nothing = error(ErrorCode::E308, shard.what.where,
                             fmt::format("shard: nothing in chunk {} has an expert dimension", chunk.name));
  if (chunk.experts)
    return std::move(nothing).help(
        "its rows are sorted by expert (dropless = true), and nothing says where those of each expert end: give "
        "experts slots, capacity_factor = 1.25, or leave out this directive");
  return std::move(nothing)
      .help("select the region of the experts only, as in shard({experts=*}, …)")
      .help("or, for tensor parallelism, name parameters and their dimension: parameters=\"*.wo: 1\"");
}

Result<std::vector<Sharded>> shard_experts(TrainingDag& dag, const std::vector<ChunkId>& chunks, const Shard& shard,
                                           DirectiveId by) {
  constexpr int64_t usual_buffer = one_load + one_load / 2;
  std::vector<Sharded> out;
  bool any_routed = false;
  for (const ChunkId chunk : chunks)
    for (Residence& residence : dag.residences[chunk.index()]) {
      PIPER_TRY(const PartitionId along, partition_of(dag, residence.group, shard.devices, by));
      PIPER_CHECK(check_new(dag, chunk, residence.find(ShardKind::Expert), by));
      const int parts = dag.groups[along].part_size;
      PIPER_CHECK(check_experts(dag, (*dag.model)[chunk], parts, shard));
      const bool routed = (*dag.model)[chunk].routed_by.has_value();
      any_routed = any_routed || routed;
      out.push_back({&residence,
                     {ShardKind::Expert, parts > 1 ? std::optional(along) : std::nullopt,
                      shard.stream.empty() ? "ep" : shard.stream, false, by,
                      !routed            ? 0
                      : shard.buffer > 0 ? shard.buffer
                                         : usual_buffer}});
    }
  if (shard.buffer > 0 && !any_routed)
    return error(ErrorCode::E308, dag.where(by, {"buffer"}),
                 "shard: buffer is about rows that are sorted by expert, and the experts here have slots")
        .help("leave it out, or train without slots: dropless = true");
  return out;
}

// ---- parameters

/// The devices along the axis are neighbours in every group that computes something; those of tensor parallelism stand
/// closest.
Result<MeshAxis> shared_axis(const TrainingDag& dag, SampleAxis kind, const Shard& shard, DirectiveId by) {
  const auto where = [&] { return dag.where(by, {"along", "devices", "mesh"}); };
  std::vector<std::string> names;
  for (const MeshAxis& axis : dag.mesh) names.push_back(axis.name);
  if (shard.devices.along.size() != 1)
    return error(ErrorCode::E317, where(),
                 fmt::format("shard: {} are divided along one axis of the mesh",
                             kind == SampleAxis::Tp ? "parameters" : "tokens"))
        .help(fmt::format("write along={}, the last axis of the mesh", name_of(kind)));
  const std::string& along = shard.devices.along[0];
  const auto found = std::find(names.begin(), names.end(), along);
  if (found == names.end())
    return error(ErrorCode::E208, where(), fmt::format("shard: the mesh has no axis \"{}\"", along))
        .help(names.empty() ? fmt::format("declare one whose last axis it is: mesh(dp=2, {}=2)", name_of(kind))
                            : did_you_mean(along, names));
  const MeshAxis& axis = dag.mesh[static_cast<size_t>(found - names.begin())];
  TrainingDag as_asked;
  as_asked.mesh = dag.mesh;
  as_asked.shared = dag.shared;
  as_asked.shared[kind] = axis;
  const bool cp_before_last = kind == SampleAxis::Cp && found + 2 == names.end();  // tensor parallelism may follow
  if (!shared_axes_are_last(as_asked) && !(cp_before_last && dag.tp().name.empty()))
    return error(ErrorCode::E317, where(), fmt::format("shard: \"{}\" is not the last axis of the mesh", along))
        .help("devices that share samples stand next to each other: make it the last axis")
        .help(kind == SampleAxis::Cp ? "or the last but one, before that of tensor parallelism" : "");
  for (size_t c = 0; c < dag.residences.size(); ++c)
    for (const Residence& residence : dag.residences[c])
      if (std::ranges::find(dag.groups[residence.group].axes, axis) == dag.groups[residence.group].axes.end())
        return error(ErrorCode::E317, where(),
                     fmt::format("shard: chunk {} runs on {}, which are not all devices of axis \"{}\"",
                                 dag.model->chunks[c].name, print_devices(dag.groups[residence.group].devices), along))
            .help(fmt::format("place every chunk by coordinates of the mesh that leave out {}", along));
  return axis;
}

/// Devices that divide parameters work on the same samples; replicas take different ones.
Checked check_not_replicas(TrainingDag& dag, ChunkId chunk, const Residence& residence, const std::string& along,
                           DirectiveId by) {
  const PartitionId sharing = dag.groups.along(residence.group, {along});
  const Partition &replicas = dag.groups[residence.replication->over], &group = dag.groups[sharing];
  std::map<int, size_t> part_of;  // by device: its part of the replicas
  for (size_t i = 0; i < replicas.members.size(); ++i)
    part_of[replicas.members[i]] = i / static_cast<size_t>(replicas.part_size);
  for (size_t d = 0; d < group.members.size(); d += static_cast<size_t>(group.part_size)) {
    std::set<size_t> parts;
    for (size_t k = d; k < d + static_cast<size_t>(group.part_size); ++k)
      if (!parts.insert(part_of.at(group.members[k])).second)
        return error(ErrorCode::E317, dag.where(by, {"along"}),
                     fmt::format("shard: chunk {} is replicated along \"{}\", so these devices take different samples",
                                 (*dag.model)[chunk].name, along))
            .note(dag.where_devices(residence.replication->by), "replicated here")
            .help("tensor parallelism needs an axis of its own, the last of the mesh: mesh(dp=2, tp=2)")
            .help("for expert parallelism the region must be annotated with the number of its experts");
  }
  return Ok{};
}

/// What tensor parallelism divides in a chunk: what follows from parameters, or tokens.
ShardKind kind_of(const Chunk& chunk) {
  return chunk.sequence_sharded ? ShardKind::Sequence : ShardKind::Tp;
}

Checked check_sizes(const TrainingDag& dag, ChunkId id, int parts, const Shard& shard) {
  const Chunk& chunk = (*dag.model)[id];
  const auto by_heads = [](const Residence& residence) { return residence.find(ShardKind::Heads) != nullptr; };
  if (std::ranges::any_of(dag.residences[id.index()], by_heads)) parts *= dag.shared[SampleAxis::Cp].size;
  return check_all(dag, chunk, [&](const auto& thing, std::string_view what) -> Checked {
    const Dim* dim = labelled(thing.shape, label_of(kind_of(chunk)));
    if (!dim || dim->falls_into(parts)) return Ok{};
    return error(ErrorCode::E317, shard.what.where,
                 fmt::format("shard: {} {} {} of chunk {} does not divide among {} devices", what, thing.name,
                             print(thing.shape), chunk.name, parts))
        .help(fmt::format("use a number of devices that divides {}",
                          dim->blocks.empty() ? fmt::format("{}", dim->size)
                                              : fmt::format("each of {}", fmt::join(dim->blocks, ", "))));
  });
}

/// As a softmax does over what is divided.
bool finds_maxima(const ModelGraph& model, const Chunk& chunk) {
  const PassWork* forward = chunk.find(Pass::F);
  return forward && std::any_of(forward->writes.begin(), forward->writes.end(),
                                [&](ValueId value) { return model[value].partial == Partial::Max; });
}

/// Something was found for every argument.
Checked check_found(const TrainingDag& dag, const Shard& shard, const std::vector<const Chunk*>& found,
                    DirectiveId by) {
  const auto any = [&](auto is) { return std::any_of(found.begin(), found.end(), is); };
  if (!any([](const Chunk* chunk) { return !chunk->sequence_sharded; }))
    return error(ErrorCode::E317, shard.what.where,
                 "shard: nothing that is selected has a dimension that can be divided")
        .help("name parameters and their dimension: parameters=\"*.wo: 1\"");
  if (shard.sequence == Sequence::On && !any([](const Chunk* chunk) { return chunk->sequence_sharded; }))
    return error(ErrorCode::E317, dag.where(by, {"sequence"}),
                 "shard: nothing that is selected treats every token alone, so there is no sequence to divide")
        .help("select whole layers, norms and residuals included: {layer=*}");
  if (shard.vocabulary && !any([&](const Chunk* chunk) { return finds_maxima(*dag.model, *chunk); }))
    return error(ErrorCode::E317, dag.where(by, {"vocabulary"}),
                 "shard: nothing that is selected computes a loss over the vocabulary")
        .help("select embedding and head too: {} is everything")
        .help(
            "or name the table that the loss is computed with, if it is not known by its name: "
            "parameters=\"*.output: 0\"");
  if (shard.regather && shard.sequence == Sequence::Off)
    return error(ErrorCode::E317, dag.where(by, {"regather"}), "shard: regather=on is about tokens that are gathered")
        .help("add sequence=on");
  return Ok{};
}

Result<std::vector<Sharded>> shard_parameters(TrainingDag& dag, const std::vector<ChunkId>& chunks, const Shard& shard,
                                              DirectiveId by) {
  PIPER_TRY(const MeshAxis axis, shared_axis(dag, SampleAxis::Tp, shard, by));
  const int parts = axis.size;
  std::vector<Sharded> out;
  std::vector<const Chunk*> found;
  std::set<std::pair<GroupId, PartitionId>> apart;  // groups that were checked against their replicas
  for (const ChunkId id : chunks) {
    const Chunk& chunk = (*dag.model)[id];
    if (chunk.sequence_sharded && shard.sequence == Sequence::Off) continue;
    PIPER_CHECK(check_sizes(dag, id, parts, shard));
    if (!has_label(*dag.model, chunk, label_of(kind_of(chunk)))) continue;
    found.push_back(&chunk);
    for (Residence& residence : dag.residences[id.index()]) {
      PIPER_CHECK(check_new(dag, id, residence.find(SampleAxis::Tp), by));
      if (residence.replication && apart.insert({residence.group, residence.replication->over}).second)
        PIPER_CHECK(check_not_replicas(dag, id, residence, shard.devices.along[0], by));
      const auto along =
          parts > 1 ? std::optional(dag.groups.along(residence.group, shard.devices.along)) : std::nullopt;
      out.push_back(
          {&residence, {kind_of(chunk), along, shard.stream.empty() ? "tp" : shard.stream, shard.regather, by}});
    }
  }
  PIPER_CHECK(check_found(dag, shard, found, by));
  dag.shared[SampleAxis::Tp] = axis;
  return out;
}

// ---- tokens

/// The attention of the model is made for it.
Checked check_ring(const TrainingDag& dag, int parts, const Shard& shard, DirectiveId by) {
  const bool asked = shard.sequence == Sequence::Ring;
  if (dag.model->ring == (asked ? parts : 0)) return Ok{};
  const std::string has =
      dag.model->ring == 0
          ? fmt::format("attention of model {} has all keys and values at once", dag.model->name)
          : fmt::format("attention of model {} is the steps of a ring of {} devices", dag.model->name, dag.model->ring);
  return error(
             ErrorCode::E317, dag.where(by, {"sequence"}),
             asked ? fmt::format("shard: {}, and the ring has {} devices", has, parts) : fmt::format("shard: {}", has))
      .help(asked ? "write it step by step in the model file, and: context ring=4"
                  : "divide the tokens as the model does: sequence=ring")
      .help(asked ? "or let attention gather keys and values: sequence=gather" : "");
}

/// All tokens of all samples are divided, evenly, and every value that has them says where.
Checked check_tokens(const TrainingDag& dag, const std::vector<ChunkId>& chunks, int parts, const Shard& shard,
                     DirectiveId by) {
  const ModelGraph& model = *dag.model;
  if (chunks.size() != model.chunks.size())
    return error(ErrorCode::E317, shard.what.where,
                 "shard: tokens are divided from the first chunk of the model to the last, and some are not selected")
        .help("select everything: shard({}, …)");
  if (!model.context)
    return error(ErrorCode::E317, dag.where(by, {"sequence"}),
                 fmt::format("shard: model {} does not say where the tokens of its values are", model.name))
        .help("label them in the model file, [b, sequence=128, 64], and add the line: context");
  PIPER_CHECK(check_ring(dag, parts, shard, by));
  const int blocks = parts > 1 && shard.order == TokenOrder::Zigzag ? 2 * parts : parts;
  for (const ChunkId id : chunks) {
    if (model[id].routed_by || (model[id].experts && !has_label(model, model[id], expert_label)))
      return error(ErrorCode::E317, shard.what.where,
                   fmt::format("shard: the rows of chunk {} are sorted by expert, those of all tokens together",
                               model[id].name))
          .help("context parallelism is for models without experts");
    PIPER_CHECK(check_all(dag, model[id], [&](const auto& thing, std::string_view what) -> Checked {
      if (what == "parameter") return Ok{};
      const auto refuse = [&](std::string_view why) {
        return error(
            ErrorCode::E317, shard.what.where,
            fmt::format("shard: value {} {} of chunk {} {}", thing.name, print(thing.shape), model[id].name, why));
      };
      if (labelled(thing.shape, expert_label))
        return refuse("has slots of experts, and how many each gets depends on all tokens")
            .help("context parallelism is for models without experts");
      const Dim* tokens = labelled(thing.shape, sequence_label);
      if (!tokens || tokens->size % blocks == 0) return Ok{};
      const bool one_block = tokens->size % parts == 0;
      return refuse(blocks == parts ? fmt::format("does not divide among {} devices", parts)
                                    : fmt::format("does not fall into {} blocks, two for each device", blocks))
          .help(fmt::format("use a sequence of {} tokens, or {}", ceil_divide(tokens->size, blocks) * blocks,
                            one_block ? "one block for each device: order=contiguous" : "another number of devices"));
    }));
  }
  return Ok{};
}

/// Attention, where heads are divided and not tokens.
bool divides_heads(const Shard& shard, const Chunk& chunk) {
  return shard.sequence == Sequence::Heads && !chunk.all_tokens.empty();
}

/// Attention says where the heads are of all that has tokens, and they divide, also where tensor parallelism does.
Checked check_heads(const TrainingDag& dag, const Chunk& chunk, int parts, DirectiveId by) {
  return check_all(dag, chunk, [&](const auto& thing, std::string_view what) -> Checked {
    const Dim* heads = labelled(thing.shape, tp_label);
    const auto refuse = [&](std::string_view why, std::string help) {
      return error(ErrorCode::E317, dag.where(by, {"sequence"}),
                   fmt::format("shard: {} {} {} of chunk {} {}", what, thing.name, print(thing.shape), chunk.name, why))
          .help(std::move(help))
          .help("or let attention gather keys and values: sequence=gather");
    };
    if (what == "parameter") {
      if (!heads) return Ok{};
      return refuse("has heads, which attention divides, and parameters are whole", "keep it in a chunk of its own");
    }
    if (!heads && !labelled(thing.shape, sequence_label)) return Ok{};
    if (!heads) return refuse("does not say where its heads are", "label them: [b, sequence=128, tp=8, 64]");
    if (heads->falls_into(parts)) return Ok{};
    return refuse(fmt::format("has {} heads, which do not divide among {} devices", heads->size, parts),
                  fmt::format("use a number of devices that divides {}", heads->size));
  });
}

Result<std::vector<Sharded>> shard_tokens(TrainingDag& dag, const std::vector<ChunkId>& chunks, const Shard& shard,
                                          DirectiveId by) {
  if (!shard.parameters.empty() || shard.vocabulary)
    return error(ErrorCode::E317, dag.where(by, {"parameters", "vocabulary"}),
                 "shard: parameters are whole where tokens are divided along the same axis")
        .help("shard them along another axis, in a directive of its own");
  PIPER_TRY(const MeshAxis axis, shared_axis(dag, SampleAxis::Cp, shard, by));
  const int parts = axis.size;
  PIPER_CHECK(check_tokens(dag, chunks, parts, shard, by));
  if (shard.sequence != Sequence::Gather && shard.regather)
    return error(ErrorCode::E317, dag.where(by, {"regather"}),
                 fmt::format("shard: regather=on is about what was gathered, and {}",
                             shard.sequence == Sequence::Heads ? "heads are exchanged"
                                                               : "keys and values go round a ring in every pass"))
        .help(shard.sequence == Sequence::Heads
                  ? "leave it out: what attention has of all tokens is no more than what it would keep of its own"
                  : "leave it out: a device never has more than its own and those of two others");
  std::vector<Sharded> out;
  for (const ChunkId id : chunks)
    for (Residence& residence : dag.residences[id.index()]) {
      PIPER_CHECK(check_new(dag, id, residence.find(SampleAxis::Cp), by));
      const bool heads = parts > 1 && divides_heads(shard, (*dag.model)[id]);
      if (heads) PIPER_CHECK(check_heads(dag, (*dag.model)[id], parts * dag.tp().size, by));
      const auto along =
          parts > 1 ? std::optional(dag.groups.along(residence.group, shard.devices.along)) : std::nullopt;
      out.push_back({&residence,
                     {heads ? ShardKind::Heads : ShardKind::Context, along, shard.stream.empty() ? "cp" : shard.stream,
                      shard.regather, by}});
    }
  dag.shared[SampleAxis::Cp] = axis;
  dag.token_order = shard.order;
  return out;
}

/// Experts, unless the arguments are about parameters, or only other chunks have something to divide, or the model has
/// none and they lie along an axis.
bool selects_experts(const TrainingDag& dag, const std::vector<ChunkId>& chunks, const Shard& shard) {
  if (names_parameters(shard)) return false;
  const ModelGraph& model = *dag.model;
  const auto has_experts = [&](const Chunk& chunk) { return has_label(model, chunk, expert_label); };
  return std::ranges::all_of(chunks, [&](ChunkId chunk) { return is_made_of_experts(model, model[chunk]); }) ||
         (std::ranges::none_of(chunks, [&](ChunkId chunk) { return has_label(model, model[chunk], tp_label); }) &&
          (shard.devices.along.size() != 1 || std::ranges::any_of(model.chunks, has_experts)));
}

}  // namespace

Result<TrainingDag> apply(TrainingDag dag, const Shard& shard, DirectiveId by) {
  Selector selector(dag);
  PIPER_TRY(const std::vector<ChunkId> chunks, selector.whole_chunks(shard.what, "shard"));
  const bool experts = !divides_context(shard) && selects_experts(dag, chunks, shard);
  if (shard.buffer > 0 && !experts)
    return error(ErrorCode::E308, dag.where(by, {"buffer"}), "shard: buffer is about experts, and these are none")
        .help("select the region of the experts only, as in shard({experts=*}, …)");
  if (!divides_context(shard) && shard.order != TokenOrder::Zigzag)
    return error(ErrorCode::E317, dag.where(by, {"order"}),
                 "shard: order=contiguous is about the tokens that context parallelism divides")
        .help("add sequence=gather, sequence=heads or sequence=ring");
  PIPER_TRY(const std::vector<Sharded> all, divides_context(shard) ? shard_tokens(dag, chunks, shard, by)
                                            : experts              ? shard_experts(dag, chunks, shard, by)
                                                                   : shard_parameters(dag, chunks, shard, by));
  for (const auto& [residence, sharding] : all) {
    std::vector<Sharding>& all_of = residence->shardings;
    all_of.insert(std::ranges::upper_bound(all_of, sharding.kind, {}, &Sharding::kind), sharding);
  }
  return dag;
}

}  // namespace piper
