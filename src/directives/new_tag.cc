#include "directives/new_tag.h"

#include <fmt/format.h>

namespace piper {
namespace {

/// The first directive that put something into these stages.
SourceRange first_stages(const TrainingDag& dag, const StageTags& stages) {
  DirectiveId first;
  for (const Node& node : dag.nodes)
    if (stages.of_chunk[node.tags.chunk.index()] >= 0 && node.placed_by.valid() &&
        (!first.valid() || node.placed_by < first))
      first = node.placed_by;
  return dag.where(first, {"as", "stages"});
}

}  // namespace

Checked check_new_tag(const TrainingDag& dag, const std::string& tag, DirectiveId by) {
  const SourceRange where = dag.where(by, {"as", "stages"});
  constexpr auto help = "give it another name: as=…";
  if (tag == "pass" || tag == "comm")
    return error(ErrorCode::E206, where, fmt::format("\"{}\" has a meaning of its own", tag)).help(help);
  for (const Chunk& chunk : dag.model->chunks)
    for (const ScopeTag& scope : chunk.scopes)
      if (scope.scope == tag)
        return error(ErrorCode::E206, where, fmt::format("\"{}\" is a scope of the model", tag)).help(help);
  for (const SliceDim& dim : dag.dims)
    if (dim.name == tag)
      return error(ErrorCode::E206, where, fmt::format("the batch is already split along \"{}\"", tag))
          .note(dag.where(dim.made_by, {"as"}), "first split here")
          .help(help);
  for (const StageTags& stages : dag.stages)
    if (stages.tag == tag)
      return error(ErrorCode::E206, where, fmt::format("stages called \"{}\" exist already", tag))
          .note(first_stages(dag, stages), "made here")
          .help(help);
  return Ok{};
}

}  // namespace piper
