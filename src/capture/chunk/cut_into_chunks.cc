#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "capture/chunk/chunk_calls.h"

namespace piper {
namespace {

/// By segment: its chunk, or -1 if nothing happens in it.
std::vector<int> chunk_of_segments(const OperatorGraph& graph, const std::vector<CallId>& live,
                                   std::vector<ChunkCalls>& chunks) {
  std::vector<int> chunk_of(graph.segments.size(), -1);
  for (const CallId id : live) chunk_of[static_cast<size_t>(graph[id].segment)] = 0;
  std::map<ScopeId, int> runs;
  for (size_t s = 0; s < chunk_of.size(); ++s) {
    if (chunk_of[s] < 0) continue;
    const ScopeId scope = graph.segments[s].scope;
    if (chunks.empty() || chunks.back().scope != scope) {
      const int run = ++runs[scope];
      const std::string name = scope_name(graph, scope);
      chunks.push_back({run == 1 ? name : fmt::format("{}.part{}", name, run), scope, {}, {}, {}});
    }
    chunk_of[s] = static_cast<int>(chunks.size()) - 1;
  }
  return chunk_of;
}

/// By chunk: parameters (their storages) that forward uses for more than looking at them differently.
std::vector<std::unordered_set<StorageId>> parameters_of(const OperatorGraph& graph,
                                                         const std::vector<ChunkCalls>& chunks) {
  std::vector<std::unordered_set<StorageId>> used(chunks.size());
  for (size_t c = 0; c < chunks.size(); ++c)
    for (const CallId id : chunks[c].forward) {
      if (is_view(graph, graph[id])) continue;
      each_tensor(graph[id].arguments, [&](TensorId argument) {
        const StorageId storage = graph[argument].storage;
        if (graph[graph[storage].base].kind == TensorKind::Parameter) used[c].insert(storage);
      });
    }
  return used;
}

}  // namespace

std::vector<ChunkCalls> cut_into_chunks(const OperatorGraph& graph, const std::vector<CallId>& live) {
  std::vector<ChunkCalls> chunks;
  const std::vector<int> chunk_of = chunk_of_segments(graph, live, chunks);
  for (const CallId id : live) {
    const Call& call = graph[id];
    ChunkCalls& chunk = chunks[static_cast<size_t>(chunk_of[static_cast<size_t>(call.segment)])];
    (call.backward ? chunk.backward : chunk.forward).push_back(id);
  }
  const auto used = parameters_of(graph, chunks);
  for (const Contribution& contribution : graph.gradients) {
    // the gradient may be a tensor that a later chunk made: then the last user of the parameter before it adds it up
    const CallId producer = graph[contribution.value].producer;
    int made = static_cast<int>(chunks.size()) - 1;
    if (producer.valid()) made = chunk_of[static_cast<size_t>(graph[producer].segment)];
    const StorageId parameter = graph[contribution.parameter].storage;
    int chunk = made;
    while (chunk >= 0 && !used[static_cast<size_t>(chunk)].contains(parameter)) --chunk;
    if (chunk < 0) chunk = made;  // all that came before only looked at it
    chunks[static_cast<size_t>(chunk)].contributions.push_back(contribution);
  }
  return chunks;
}

}  // namespace piper
