// recompute(<filter>): what forward of the selected chunks saves is dropped and computed again just before backward
// (the pass delay_recomputation holds it back until the gradient has arrived).
// Chunks that agree in the tags of the filter (`layer` in {layer=*}) are recomputed together: only what enters such a
// segment from outside is kept. Without tags every instance of the outermost scope is a segment.
//   before:  %f = compute layer.0 F mb=0        %b = compute layer.0 B mb=0 <- %f:saved
//   after:   %f = compute layer.0 F mb=0        %r = compute layer.0 R mb=0    %b = compute layer.0 B mb=0 <- %r:saved
// Illegal: nothing selected (E203); selected twice, nothing with a backward, or nothing in it that backward needs
// (E312).
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "directives/directives.h"
#include "ir/select.h"

namespace piper {
namespace {

/// What the chunks of one segment have in common.
using SegmentKey = std::vector<int>;

SegmentKey segment_of(const TrainingDag& dag, const Filter& filter, ChunkId id) {
  SegmentKey key;
  const Chunk& chunk = (*dag.model)[id];
  for (const TagCondition& condition : filter.conditions) {
    for (const ScopeTag& tag : chunk.scopes)
      if (tag.scope == condition.tag) key.push_back(tag.index);
    for (const StageTags& stages : dag.stages)
      if (stages.tag == condition.tag) key.push_back(stages.of_chunk[id.index()]);
  }
  if (!key.empty()) return key;
  if (chunk.scopes.empty()) return {-1, id.value};
  const auto first_of_scope = [&] {  // scopes are numbered apart: layer=0 and embed=0 differ
    for (size_t c = 0; c < dag.model->chunks.size(); ++c)
      if (const auto& s = dag.model->chunks[c].scopes; !s.empty() && s[0].scope == chunk.scopes[0].scope)
        return static_cast<int>(c);
    return -1;
  };
  return {first_of_scope(), chunk.scopes[0].index};
}

struct Rewrite {
  TrainingDag& dag;
  std::vector<NodeId> again;  // by forward node: its recomputation
  std::vector<int> segment;   // by chunk, -1: not selected

  bool same_segment(NodeId a, NodeId b) const {
    const int s = segment[dag[a].tags.chunk.index()];
    return s >= 0 && s == segment[dag[b].tags.chunk.index()] && dag[a].tags.slice == dag[b].tags.slice;
  }
};

bool is_backward(const Node& node) {
  return is_compute(node) && (node.tags.pass == Pass::B || node.tags.pass == Pass::BI || node.tags.pass == Pass::BW);
}

/// Forward nodes whose values backward of the same segment needs, directly or to compute others.
std::vector<char> needed_by_backward(const Rewrite& rewrite, const ComputeIndex& index,
                                     const std::vector<ChunkId>& chunks, const std::vector<int>& slices) {
  const TrainingDag& dag = rewrite.dag;
  const Adjacency successors = adjacency(dag, Direction::Successors);
  std::vector<char> needed(dag.nodes.size(), 0);
  for (const int slice : slices) {
    for (auto chunk = chunks.rbegin(); chunk != chunks.rend(); ++chunk) {
      const NodeId forward = index.find(*chunk, Pass::F, slice);
      const auto [first, last] = successors.of(forward);
      needed[forward.index()] = std::any_of(first, last, [&](int e) {
        const NodeId to = dag.edges[static_cast<size_t>(e)].to;
        return rewrite.same_segment(forward, to) && (is_backward(dag[to]) || needed[to.index()]);
      });
    }
  }
  return needed;
}

}  // namespace

Result<TrainingDag> apply(TrainingDag dag, const Recompute& recompute, DirectiveId by) {
  Selector selector(dag);
  PIPER_TRY(const std::vector<ChunkId> chunks, selector.chunks(recompute.what, "recompute"));
  PIPER_TRY(const std::vector<int> slices, selector.slices(recompute.what, "recompute"));
  if (const TagCondition* pass = recompute.what.find("pass"))
    return error(ErrorCode::E105, pass->where, "recompute: it is always forward that is computed again")
        .help("take out pass=…");
  if (recompute.what.find("comm")) return nothing_selected(recompute.what, "recompute", "computation");

  Rewrite rewrite{dag, std::vector<NodeId>(dag.nodes.size()), std::vector<int>(dag.model->chunks.size(), -1)};
  std::map<SegmentKey, int> segments;
  for (const ChunkId chunk : chunks)
    rewrite.segment[chunk.index()] =
        segments.emplace(segment_of(dag, recompute.what, chunk), static_cast<int>(segments.size())).first->second;
  const ComputeIndex index(dag);
  for (const int slice : slices) {
    for (const ChunkId chunk : chunks) {
      const std::string& name = (*dag.model)[chunk].name;
      if (const NodeId other = index.find(chunk, Pass::R, slice); other.valid())
        return error(ErrorCode::E312, recompute.what.where,
                     fmt::format("recompute: chunk {} is recomputed already", name))
            .note(dag.where_filter(dag[other].made_by), "first here")
            .help("make the filters of the two directives exclude each other");
    }
  }
  if (std::none_of(chunks.begin(), chunks.end(), [&](ChunkId c) { return (*dag.model)[c].find(Pass::B) != nullptr; }))
    return error(ErrorCode::E312, recompute.what.where,
                 fmt::format("recompute: chunk {} has no backward pass", (*dag.model)[chunks[0]].name))
        .help("nothing of it is saved, so nothing has to be computed again; leave it out of the filter");
  const std::vector<char> needed = needed_by_backward(rewrite, index, chunks, slices);
  if (std::find(needed.begin(), needed.end(), 1) == needed.end())
    return error(ErrorCode::E312, recompute.what.where,
                 "recompute: backward of the selection needs nothing that forward computes inside it")
        .help("nothing would be dropped; leave the directive out, or select more of the model");
  for (const int slice : slices) {
    for (const ChunkId chunk : chunks) {
      const NodeId forward = index.find(chunk, Pass::F, slice);
      if (!needed[forward.index()]) continue;
      Node node = dag[forward];
      node.tags.pass = Pass::R;
      node.made_by = by;
      node.made_from = forward;
      rewrite.again[forward.index()] = dag.add(std::move(node));
    }
  }
  const std::vector<NodeId>& again = rewrite.again;
  const auto recomputed = [&](NodeId id) { return id.index() < again.size() && again[id.index()].valid(); };
  const size_t edges = dag.edges.size();
  for (size_t e = 0; e < edges; ++e) {
    const Edge edge = dag.edges[e];
    const bool from_inside = recomputed(edge.from) && rewrite.same_segment(edge.from, edge.to);
    if (recomputed(edge.to))  // the clone of a forward node reads what that node read
      dag.edges.push_back({from_inside ? again[edge.from.index()] : edge.from, again[edge.to.index()], edge.item, {}});
    if (from_inside && is_backward(dag[edge.to])) dag.edges[e].from = again[edge.from.index()];
  }
  return dag;
}

}  // namespace piper
