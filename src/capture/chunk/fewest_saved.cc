#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <unordered_map>

#include "capture/chunk/chunk_calls.h"
#include "capture/chunk/min_cut.h"

namespace piper {
namespace {

/// Operators that move elements without computing anything.
constexpr std::string_view moves[] = {"aten::_to_copy", "aten::clone", "aten::cat", "aten::constant_pad_nd"};

/// Chooses for one chunk what forward saves: the fewest bytes from which the rest can be made again.
class SavedChooser {
 public:
  SavedChooser(const OperatorGraph& graph, const std::vector<char>& written, const ChunkCalls& chunk)
      : graph_(graph), written_(written), chunk_(chunk), forward_(chunk.forward.begin(), chunk.forward.end()) {}

  std::vector<CallId> made_again() {
    for (const CallId id : chunk_.backward)
      each_tensor(graph_[id].arguments, [&](TensorId argument) {
        for (const TensorId source : sources(argument)) network_.add_edge(nodes(source).out, sink_, uncuttable);
      });
    const std::vector<char> again = network_.on_side_of_sink(source_, sink_);
    std::vector<CallId> out;
    for (const auto& [storage, of] : nodes_)
      if (const CallId maker = graph_[graph_[storage].base].producer;
          again[static_cast<size_t>(of.in)] && is_cheap(maker))
        out.push_back(maker);
    return out;
  }

 private:
  struct Node {
    int in = 0, out = 0;
  };

  /// It can be made again, with the same result.
  bool is_cheap(CallId id) const {
    if (!id.valid() || !forward_.contains(id)) return false;
    const Call& call = graph_[id];
    const Operator& op = graph_[call.op];
    if (!op.pointwise && std::find(std::begin(moves), std::end(moves), op.name) == std::end(moves)) return false;
    bool pure = call.writes.empty() && call.random < 0 && call.results.size() == 1;
    const auto look = [&](TensorId id) { pure = pure && !written_[graph_[id].storage.index()]; };
    each_tensor(call.arguments, look);
    each_tensor(call.results, look);
    return pure;
  }
  /// What costs nothing to have: weights, the batch, and what follows from neither.
  bool is_free(TensorId id) {
    const GraphTensor& tensor = graph_[id];
    if (tensor.kind != TensorKind::Result) return true;
    const auto [known, fresh] = free_.try_emplace(tensor.producer, false);
    if (!fresh) return known->second;
    const Call& call = graph_[tensor.producer];
    bool free = call.writes.empty() && call.random < 0 && !written_[tensor.storage.index()];
    each_tensor(call.arguments, [&](TensorId argument) {
      free = free && (graph_[argument].kind == TensorKind::Constant ||
                      (graph_[argument].kind == TensorKind::Result && is_free(argument)));
    });
    return free_[tensor.producer] = free;
  }
  /// What forward made of which this is a view; nothing where it is free, or made by backward.
  std::vector<TensorId> sources(TensorId id) {
    const GraphTensor& tensor = graph_[id];
    if (is_free(id) || graph_[tensor.producer].backward) return {};
    const TensorId base = graph_[tensor.storage].base;
    if (graph_[base].kind != TensorKind::Result) return {};
    return {base};
  }
  Node nodes(TensorId base) {
    const StorageId storage = graph_[base].storage;
    if (const auto known = nodes_.find(storage); known != nodes_.end()) return known->second;
    const Node node{network_.add_node(), network_.add_node()};
    nodes_[storage] = node;
    network_.add_edge(node.in, node.out, graph_[storage].bytes);
    const CallId maker = graph_[base].producer;
    if (!is_cheap(maker)) {
      network_.add_edge(source_, node.in, uncuttable);
      return node;
    }
    each_tensor(graph_[maker].arguments, [&](TensorId argument) {
      for (const TensorId source : sources(argument)) network_.add_edge(nodes(source).out, node.in, uncuttable);
    });
    return node;
  }

  const OperatorGraph& graph_;
  const std::vector<char>& written_;
  const ChunkCalls& chunk_;
  const std::set<CallId> forward_;
  FlowNetwork network_;
  const int source_ = network_.add_node(), sink_ = network_.add_node();
  std::map<StorageId, Node> nodes_;
  std::unordered_map<CallId, bool> free_;
};

}  // namespace

std::vector<int> calls_made_again(const OperatorGraph& graph, const std::vector<ChunkCalls>& chunks) {
  std::vector<char> written(graph.storages.size(), 0);
  for (const Call& call : graph.calls)
    for (const StorageId storage : call.writes) written[storage.index()] = 1;
  std::vector<int> out(graph.calls.size(), -1);
  for (size_t c = 0; c < chunks.size(); ++c)
    for (const CallId id : SavedChooser(graph, written, chunks[c]).made_again()) out[id.index()] = static_cast<int>(c);
  return out;
}

}  // namespace piper
