// Filters: which nodes and chunks of the DAG they select.
#pragma once

#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "ir/training_dag.h"

namespace piper {

/// Which passes the word in a filter stands for. B takes in its parts and the recomputation before it, BI the latter.
std::vector<Pass> passes_named(std::string_view word);

/// Selects by tags; indexes the DAG once, so build it anew after a rewrite that adds nodes.
class Selector {
 public:
  explicit Selector(const TrainingDag& dag);

  /// Chunks that match the conditions on scopes and stages. Unknown tags are errors (E202), an empty selection too
  /// (E203).
  Result<std::vector<ChunkId>> chunks(const Filter& filter, std::string_view verb);
  /// The same for directives about parameters, which belong to all slices and passes (E105).
  Result<std::vector<ChunkId>> whole_chunks(const Filter& filter, std::string_view verb);
  /// Slices that match the conditions on dims.
  Result<std::vector<int>> slices(const Filter& filter, std::string_view verb);
  /// Computations, or communication if the filter names `comm`. E202, E203.
  Result<std::vector<NodeId>> nodes(const Filter& filter, std::string_view verb);

 private:
  Checked check_tags(const Filter& filter, std::string_view verb) const;
  /// Every index that the user names exists: nothing is silently left out.
  Checked check_indices(const TagCondition& condition, std::string_view verb) const;
  bool chunk_matches(ChunkId chunk, const Filter& filter) const;
  Result<std::vector<NodeId>> communication(const Filter& filter, std::string_view verb);
  std::string chunk_key(const Filter& filter) const;
  /// All indices of a scope or stage.
  std::set<int> indices(std::string_view tag) const;
  bool is_dim(std::string_view tag) const;

  const TrainingDag& dag_;
  ComputeIndex index_;
  std::vector<std::string> known_tags_;
  mutable std::unordered_map<std::string, int> highest_;  // index of a tag, as far as it was asked for
  std::unordered_map<std::string, std::vector<ChunkId>> cache_;
};

/// The error for a selection without result.
Diagnostic nothing_selected(const Filter& filter, std::string_view verb, std::string_view what);

}  // namespace piper
