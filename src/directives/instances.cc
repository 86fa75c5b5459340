#include "directives/instances.h"

#include <algorithm>
#include <map>

namespace piper {

Instances find_instances(const ModelGraph& model, const std::vector<ChunkId>& chunks) {
  std::map<std::string, std::map<int, int>> seen;
  for (const ChunkId id : chunks)
    if (!model[id].scopes.empty()) seen[model[id].scopes[0].scope][model[id].scopes[0].index] = 0;
  Instances out;
  for (auto& [scope, indices] : seen)
    if (static_cast<int>(indices.size()) > out.count) out = {scope, static_cast<int>(indices.size()), {}};
  std::map<int, int> number;
  int current = 0;
  for (const ChunkId id : chunks) {
    if (!model[id].scopes.empty() && model[id].scopes[0].scope == out.scope)
      current = number.emplace(model[id].scopes[0].index, static_cast<int>(number.size())).first->second;
    out.of_chunk.push_back(current);
  }
  return out;
}

std::vector<int> even_starts(int instances, int stages) {
  const int size = instances / stages, larger = instances % stages;
  std::vector<int> starts;
  for (int s = 0; s < stages; ++s) starts.push_back(s * size + std::min(s, larger));
  return starts;
}

}  // namespace piper
