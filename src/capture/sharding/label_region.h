// Labels of all tensors in a region that may be sharded, and its passes as one of several devices runs them.
//
// Seeds are the values that enter the region in forward, [experts, capacity, ...], and the number of experts that the
// scope declares. All else follows by unification. A region is accepted only if it treats every slot alone, so that
// tokens of other slices may stand beside its own: what would mix them is refused, with the operator. Where rows are
// sorted by expert (capture/experts) a row takes the place of a slot: [rows, ...], and where those of each expert end.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "base/result.h"
#include "capture/sharding/label_rules.h"

namespace piper {

/// The chunks of one instance of an annotation that declares a number of experts, or of a region that is sharded; or a
/// chunk between those, of which devices have some tokens.
struct Region {
  ScopeId scope;
  int64_t experts = 0;
  bool tp = false;
  bool sequence_sharded = false;  // and tp: what is sharded are tokens
  std::vector<size_t> chunks;
  bool context = false;                 // and sequence_sharded: by context parallelism
  std::set<StorageId> all_tokens = {};  // of which it has all tokens then
  bool heads = false;                   // or it has all tokens of some heads
  bool routed = false;                  // its rows are sorted by expert
};
/// Chunks by what they read, in ascending order.
using Readers = std::map<Content, std::vector<size_t>>;
Readers find_readers(const std::vector<ChunkBodies>& chunks);

/// What says where the rows of each expert end: a value that the body reads, if its rows are sorted.
std::optional<ContentUse> ends_of_rows(const OperatorGraph& graph, const ChunkIr& body);

std::vector<Region> find_regions(const OperatorGraph& graph, const std::vector<ChunkBodies>& chunks);

using RegionLabels = std::map<std::pair<size_t, Pass>, BodyLabels>;  // by chunk and pass
/// `known`: labels of the graph's tensors, for regions that are sharded. Refused (E308, E317): what would give another
/// result if the region were on several devices.
Result<RegionLabels> label_region(const OperatorGraph& graph, const std::vector<ChunkBodies>& chunks,
                                  const Readers& readers, const Region& region,
                                  const std::vector<TensorLabels>& known = {});

}  // namespace piper
