// cut(<filter>, along=tp, parameters="*.wo: 1", sequence=on, stream=tp): parameters of the selected chunks are divided
// along a dimension among the devices of an axis of the mesh. Those devices work on the same samples; where a chunk
// writes only parts of a sum, they are added up behind it. With sequence=on selected chunks that treat every token
// alone get some of the tokens each, and sums leave each device those. With vocabulary=on the tables of embedding and
// head are cut too, and the loss over them.
//   before:  layer.0.mlp on [0, 1]: every device holds w_up and w_down
//   after:   layer.0.mlp on [0, 1]: each holds half of the rows of w_up and of the columns of w_down; one all_reduce
// Illegal: nothing selected (E203); no such axis (E208); cut twice (E309); devices that are no neighbours,
// nothing that can be cut, no sequence or vocabulary to cut, sizes that do not divide (E317).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/suggest.h"
#include "directives/directives.h"
#include "ir/local_size.h"
#include "ir/select.h"
#include "schedule/schedule_text.h"

namespace piper {
namespace {

/// The devices along the axis are neighbours in every group that computes something.
Checked check_axis(const TrainingDag& dag, const Cut& cut, DirectiveId by) {
  const auto where = [&] { return dag.where(by, {"along"}); };
  std::vector<std::string> names;
  for (const MeshAxis& axis : dag.mesh) names.push_back(axis.name);
  const auto found = std::find(names.begin(), names.end(), cut.along);
  if (found == names.end())
    return error(ErrorCode::E208, where(), fmt::format("cut: the mesh has no axis \"{}\"", cut.along))
        .help(names.empty() ? "declare one whose last axis it is: mesh(dp=2, tp=2)" : did_you_mean(cut.along, names));
  if (found + 1 != names.end())
    return error(ErrorCode::E317, where(), fmt::format("cut: \"{}\" is not the last axis of the mesh", cut.along))
        .help("devices that share samples stand next to each other: make it the last axis");
  if (!dag.shared.name.empty() && dag.shared.name != cut.along)
    return error(ErrorCode::E317, where(), fmt::format("cut: other chunks are cut along \"{}\"", dag.shared.name))
        .help("cut everything along one axis");
  for (size_t c = 0; c < dag.residences.size(); ++c)
    for (const Residence& residence : dag.residences[c])
      if (!(dag.groups[residence.group].axes.back() == dag.mesh.back()))
        return error(ErrorCode::E317, where(),
                     fmt::format("cut: chunk {} runs on {}, which are not all devices of axis \"{}\"",
                                 dag.model->chunks[c].name, print_devices(dag.groups[residence.group].devices),
                                 cut.along))
            .help(fmt::format("place every chunk by coordinates of the mesh that leave out {}", cut.along));
  return Ok{};
}

/// Whether something in the chunk can be divided; then all of it divides by `parts`.
Result<bool> divides(const TrainingDag& dag, ChunkId id, int parts, const Cut& cut) {
  const Chunk& chunk = (*dag.model)[id];
  if (chunk.sliced && !cut.sequence) return false;
  bool found = false;
  const auto check = [&](const auto& thing, std::string_view what) -> Checked {
    const Dim* dim = labelled(thing.shape, divided_by_cut(chunk));
    found = found || dim;
    if (!dim || dim->falls_into(parts)) return Ok{};
    return error(ErrorCode::E317, cut.what.where,
                 fmt::format("cut: {} {} {} of chunk {} does not divide among {} devices", what, thing.name,
                             print(thing.shape), chunk.name, parts))
        .help(fmt::format("use a number of devices that divides {}",
                          dim->blocks.empty() ? fmt::format("{}", dim->size)
                                              : fmt::format("each of {}", fmt::join(dim->blocks, ", "))));
  };
  for (const Pass pass : {Pass::F, Pass::B, Pass::BI, Pass::BW}) {
    const PassWork* work = chunk.find(pass);
    if (!work) continue;
    for (const ParameterId p : work->parameters) PIPER_CHECK(check((*dag.model)[p], "parameter"));
    for (const ValueId v : work->writes) PIPER_CHECK(check((*dag.model)[v], "value"));
    for (const ValueId v : work->reads) PIPER_CHECK(check((*dag.model)[v], "value"));
  }
  return found;
}

/// As a softmax does over what is cut.
bool finds_maxima(const ModelGraph& model, ChunkId chunk) {
  const PassWork* forward = model[chunk].find(Pass::F);
  return forward && std::any_of(forward->writes.begin(), forward->writes.end(),
                                [&](ValueId value) { return model[value].partial == Partial::Max; });
}

}  // namespace

Result<TrainingDag> apply(TrainingDag dag, const Cut& cut, DirectiveId by) {
  Selector selector(dag);
  PIPER_TRY(const std::vector<ChunkId> chunks, selector.whole_chunks(cut.what, "cut"));
  PIPER_CHECK(check_axis(dag, cut, by));
  dag.shared = dag.mesh.back();
  const StreamId stream = dag.stream(cut.stream);
  bool any = false, any_sliced = false, any_loss = false;
  for (const ChunkId chunk : chunks) {
    PIPER_TRY(const bool found, divides(dag, chunk, dag.shared.size, cut));
    bool& which = (*dag.model)[chunk].sliced ? any_sliced : any;
    which = which || found;
    if (!found) continue;
    any_loss = any_loss || finds_maxima(*dag.model, chunk);
    for (Residence& residence : dag.residences[chunk.index()]) {
      if (residence.cut_by.valid())
        return error(ErrorCode::E309, dag.where_filter(by),
                     fmt::format("chunk {} is already cut", (*dag.model)[chunk].name))
            .note(dag.where_filter(residence.cut_by), "first cut here")
            .help("make the filters of the two directives exclude each other");
      residence.cut_by = by;
      residence.sum_stream = stream;
      if (dag.shared.size > 1) residence.cut = dag.groups.along(residence.group, {cut.along});
    }
  }
  if (any && cut.sequence && !any_sliced)
    return error(ErrorCode::E317, dag.where(by, {"sequence"}),
                 "cut: nothing that is selected treats every token alone, so there is no sequence to divide")
        .help("select whole layers, norms and residuals included: {layer=*}");
  if (any && cut.vocabulary && !any_loss)
    return error(ErrorCode::E317, dag.where(by, {"vocabulary"}),
                 "cut: nothing that is selected computes a loss over the vocabulary")
        .help("select embedding and head too: {} is everything")
        .help(
            "or name the table that the loss is computed with, if it is not known by its name: "
            "parameters=\"*.output: 0\"");
  if (cut.regather && !cut.sequence)
    return error(ErrorCode::E317, dag.where(by, {"regather"}), "cut: regather=on is about tokens that are gathered")
        .help("add sequence=on");
  if (any) return dag;
  return error(ErrorCode::E317, cut.what.where, "cut: nothing that is selected has a dimension that can be cut")
      .help("name parameters and their dimension: parameters=\"*.wo: 1\"");
}

}  // namespace piper
