#include "capture/chunk/min_cut.h"

#include <algorithm>

namespace piper {

int FlowNetwork::add_node() {
  from_.emplace_back();
  return static_cast<int>(from_.size()) - 1;
}

void FlowNetwork::add_edge(int from, int to, int64_t capacity) {
  from_[static_cast<size_t>(from)].push_back(static_cast<int>(edges_.size()));
  edges_.push_back({to, capacity});
  from_[static_cast<size_t>(to)].push_back(static_cast<int>(edges_.size()));
  edges_.push_back({from, 0});
}

bool FlowNetwork::find_levels(int source, int sink) {
  levels_.assign(from_.size(), -1);
  levels_[static_cast<size_t>(source)] = 0;
  std::vector<int> open = {source};
  for (size_t i = 0; i < open.size(); ++i)
    for (const int e : from_[static_cast<size_t>(open[i])]) {
      const Edge& edge = edges_[static_cast<size_t>(e)];
      int& level = levels_[static_cast<size_t>(edge.to)];
      if (edge.left == 0 || level >= 0) continue;
      level = levels_[static_cast<size_t>(open[i])] + 1;
      open.push_back(edge.to);
    }
  return levels_[static_cast<size_t>(sink)] >= 0;
}

int64_t FlowNetwork::push(int node, int sink, int64_t most) {
  if (node == sink) return most;
  for (size_t& i = next_[static_cast<size_t>(node)]; i < from_[static_cast<size_t>(node)].size(); ++i) {
    const int e = from_[static_cast<size_t>(node)][i];
    Edge& edge = edges_[static_cast<size_t>(e)];
    if (edge.left == 0 || levels_[static_cast<size_t>(edge.to)] != levels_[static_cast<size_t>(node)] + 1) continue;
    const int64_t pushed = push(edge.to, sink, std::min(most, edge.left));
    if (pushed == 0) continue;
    edge.left -= pushed;
    edges_[static_cast<size_t>(e ^ 1)].left += pushed;
    return pushed;
  }
  return 0;
}

std::vector<char> FlowNetwork::on_side_of_sink(int source, int sink) {
  while (find_levels(source, sink)) {  // Dinic
    next_.assign(from_.size(), 0);
    while (push(source, sink, uncuttable) > 0) {
    }
  }
  std::vector<char> out(from_.size(), 0);
  out[static_cast<size_t>(sink)] = 1;
  std::vector<int> open = {sink};
  for (size_t i = 0; i < open.size(); ++i)
    for (const int e : from_[static_cast<size_t>(open[i])]) {
      const int before = edges_[static_cast<size_t>(e)].to;  // its reverse leads here
      if (edges_[static_cast<size_t>(e ^ 1)].left == 0 || out[static_cast<size_t>(before)]) continue;
      out[static_cast<size_t>(before)] = 1;
      open.push_back(before);
    }
  return out;
}

}  // namespace piper
