// The cheapest way to cut a network in two.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace piper {

constexpr int64_t uncuttable = std::numeric_limits<int64_t>::max() / 4;

class FlowNetwork {
 public:
  int add_node();
  void add_edge(int from, int to, int64_t capacity);

  /// By node: on which side of a cheapest cut it is. Of several, the one nearest to the sink.
  std::vector<char> on_side_of_sink(int source, int sink);

 private:
  struct Edge {
    int to = 0;
    int64_t left = 0;  // of its capacity; the edge behind it in the list is its reverse
  };
  bool find_levels(int source, int sink);
  int64_t push(int node, int sink, int64_t most);

  std::vector<Edge> edges_;
  std::vector<std::vector<int>> from_;  // by node: edges that leave it
  std::vector<int> levels_;
  std::vector<size_t> next_;  // by node: the first edge that may still have something left
};

}  // namespace piper
