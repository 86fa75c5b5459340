// prefetch({comm=gather, …}, distance=n): a gather may start when the n-th computation before its first user starts.
//   before:  gathers start when the computation just before their user starts (distance 1)
//   after:   n computations ahead; 0: just in time; all: as soon as the step starts
// Illegal: nothing selected (E203); no gathers of sharded parameters in the DAG, or a selection of something else
// (E316).
#include <fmt/format.h>

#include "directives/directives.h"
#include "ir/select.h"

namespace piper {

Result<TrainingDag> apply(TrainingDag dag, const Prefetch& prefetch, DirectiveId by) {
  const TagCondition* comm = prefetch.what.find("comm");
  if (!comm || comm->words != std::vector<std::string>{"gather"})
    return error(ErrorCode::E316, prefetch.what.where, "prefetch: selects gathers only")
        .help("write prefetch({comm=gather}, distance=1)");
  Selector selector(dag);
  auto selected = selector.nodes(prefetch.what, "prefetch");
  if (!selected)
    return std::move(
        std::move(selected.error()).help("only parameters replicated with zero=3 are gathered before use"));
  bool any = false;
  for (const NodeId id : *selected) {
    if (!dag[id].tags.pass) continue;  // gathers after an update have no user in this step
    any = true;
    dag.prefetches.push_back({id, prefetch.distance, by});
  }
  if (!any)
    return error(ErrorCode::E316, prefetch.what.where, "prefetch: no parameter is gathered before its use")
        .help("only parameters replicated with zero=3 are");
  return dag;
}

}  // namespace piper
