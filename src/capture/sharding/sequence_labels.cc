#include "capture/sharding/sequence_labels.h"

#include <algorithm>
#include <set>

#include "capture/chunk/chunk_calls.h"
#include "capture/sharding/operator_rules.h"

namespace piper {
namespace {

class SequenceFinder {
 public:
  explicit SequenceFinder(const OperatorGraph& graph)
      : graph_(graph), chunks_(cut_into_chunks(graph, live_calls(graph))), chunk_of_(graph.calls.size(), -1) {
    for (size_t c = 0; c < chunks_.size(); ++c) {
      for (const auto* calls : {&chunks_[c].forward, &chunks_[c].backward})
        for (const CallId id : *calls) chunk_of_[id.index()] = static_cast<int>(c);
      mixes_.push_back(is_region(chunks_[c].scope));
    }
    for (const Call& call : graph.calls)
      if (const int chunk = chunk_of(call);
          chunk >= 0 && (!mixes_[static_cast<size_t>(chunk)] || is_view(graph, call) || looks_up(call)))
        followed_.push_back(&call);
  }

  SequenceLabels find() {
    while (!label()) {
    }
    SequenceLabels out;
    for (size_t c = 0; c < chunks_.size(); ++c)
      if (!mixes_[c] && works_on_tokens(chunks_[c])) out.chunks.insert(chunks_[c].name);
    for (TensorLabels& tensor : labels_.tensors) settle(tensor);
    out.tensors = std::move(labels_.tensors);
    return out;
  }

 private:
  bool is_region(ScopeId scope) const {
    for (; scope.valid(); scope = graph_[scope].parent)
      if (graph_[scope].tp || graph_[scope].attributes.experts > 0) return true;
    return false;
  }

  /// The embedding of tokens, where its table is sharded.
  bool looks_up(const Call& call) const { return base_name(graph_[call.op]) == "take_rows"; }

  /// From the seeds to the end. False: calls were found that mix tokens, so that nothing may follow from them.
  bool label() {
    labels_ = {{}, true, true};
    for (const GraphTensor& tensor : graph_.tensors) labels_.tensors.push_back(unknown_labels(tensor.layout.sizes));
    for (const TensorId input : graph_.inputs) {
      std::vector<Factors>& dims = labels_.tensors[input.index()].dims;
      if (dims.size() < 2) continue;
      for (Factor& factor : dims[0]) factor.mark = Mark::Plain;
      for (Factor& factor : dims[1]) factor.mark = Mark::Sharded;
    }
    for (bool learned = true; learned;) {
      const LabelSweep sweep = sweep_rules(graph_, graph_.tensors, followed_, labels_);
      std::set<const Call*> mixing;
      for (const auto& [call, must] : sweep.must_be_plain)
        if (has(labels_.tensors[must.tensor.index()].dims[must.dim], Mark::Sharded)) mixing.insert(call);
      if (sweep.stopped_at) mixing.insert(sweep.stopped_at);
      if (!mixing.empty()) {
        for (const Call* call : mixing) mixes_[static_cast<size_t>(chunk_of(*call))] = true;
        std::erase_if(followed_, [&](const Call* call) { return mixing.contains(call); });
        return false;
      }
      learned = sweep.learned;
      for (const Contribution& contribution : graph_.gradients)
        learned |=
            unify_tensors(labels_.tensors[contribution.parameter.index()], labels_.tensors[contribution.value.index()]);
    }
    return true;
  }
  int chunk_of(const Call& call) const { return chunk_of_[static_cast<size_t>(&call - graph_.calls.data())]; }

  /// And on nothing that lasts, or comes from outside, by tokens.
  bool works_on_tokens(const ChunkCalls& chunk) const {
    bool found = false, outside = false;
    for (const auto* calls : {&chunk.forward, &chunk.backward})
      for (const CallId id : *calls)
        for (const auto* list : {&graph_[id].arguments, &graph_[id].results})
          each_tensor(*list, [&](TensorId tensor) {
            if (!has(labels_.tensors[tensor.index()], Mark::Sharded)) return;
            found = true;
            outside = outside || graph_[graph_[graph_[tensor].storage].base].kind != TensorKind::Result;
          });
    return found && !outside;
  }

  const OperatorGraph& graph_;
  const std::vector<ChunkCalls> chunks_;
  std::vector<int> chunk_of_;          // by call; -1: nobody needs it
  std::vector<char> mixes_;            // by chunk: it needs all tokens
  std::vector<const Call*> followed_;  // labels follow from these
  BodyLabels labels_;
};

}  // namespace

SequenceLabels find_sequence(const OperatorGraph& graph) {
  return SequenceFinder(graph).find();
}

}  // namespace piper
