#include "train/loop/diff/scope_borders.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace piper {
namespace {

/// All instances that a chunk is in, outermost first.
std::vector<std::string> instances_of(const Chunk& chunk) {
  std::vector<std::string> out;
  for (const ScopeTag& tag : chunk.scopes)
    out.push_back(
        fmt::format("{}{}{}.{}", out.empty() ? "" : out.back(), out.empty() ? "" : ".", tag.scope, tag.index));
  return out;
}

}  // namespace

std::vector<ScopeBorder> scope_borders(const ModelGraph& graph) {
  std::vector<ScopeBorder> out;
  for (const Chunk& first : graph.chunks)
    for (const std::string& scope : instances_of(first)) {
      if (std::any_of(out.begin(), out.end(), [&](const ScopeBorder& known) { return known.scope == scope; })) continue;
      std::set<ValueId> written, read;
      for (const Chunk& chunk : graph.chunks) {
        const std::vector<std::string> in = instances_of(chunk);
        const PassWork* work = chunk.find(Pass::F);
        if (!work) continue;
        if (std::find(in.begin(), in.end(), scope) != in.end())
          written.insert(work->writes.begin(), work->writes.end());
        else
          read.insert(work->reads.begin(), work->reads.end());
      }
      ScopeBorder border{scope, {}};
      for (const ValueId value : written)
        if (read.contains(value)) border.outputs.push_back(graph[value].name);
      out.push_back(std::move(border));
    }
  return out;
}

}  // namespace piper
