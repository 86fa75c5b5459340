#include "directives/new_tag.h"

#include <fmt/format.h>

namespace piper {
namespace {

/// The first directive that makes stages of this name.
SourceRange first_stages(const TrainingDag& dag, const std::string& tag) {
  for (size_t d = 0; d < dag.origins.size(); ++d)
    if (const auto* place = std::get_if<Place>(&dag.origins[d].body); place && place->stages > 0 && place->as == tag)
      return dag.where(DirectiveId(d), {"as", "stages"});
  return {};
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
          .note(first_stages(dag, tag), "made here")
          .help(help);
  return Ok{};
}

}  // namespace piper
