#include "capture/sequence_labels.h"

#include <algorithm>

#include "capture/chunk_calls.h"

namespace piper {
namespace {

class SequenceFinder {
 public:
  explicit SequenceFinder(const OperatorGraph& graph)
      : graph_(graph),
        chunks_(cut_into_chunks(graph, live_calls(graph))),
        chunk_of_(graph.calls.size(), -1),
        ignored_(graph.calls.size(), 0) {
    for (size_t c = 0; c < chunks_.size(); ++c) {
      for (const auto* calls : {&chunks_[c].forward, &chunks_[c].backward})
        for (const CallId id : *calls) chunk_of_[id.index()] = static_cast<int>(c);
      mixes_.push_back(is_region(chunks_[c].scope));
    }
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
      if (graph_[scope].cut || graph_[scope].attributes.experts > 0) return true;
    return false;
  }

  /// From the seeds to the end. False: a chunk was found to mix tokens, so that nothing may follow from it.
  bool label() {
    labels_ = {{}, true};
    for (const GraphTensor& tensor : graph_.tensors) labels_.tensors.push_back(unknown_labels(tensor.layout.sizes));
    for (const TensorId input : graph_.inputs) {
      std::vector<Factors>& dims = labels_.tensors[input.index()].dims;
      if (dims.size() < 2) continue;
      for (Factor& factor : dims[0]) factor.mark = Mark::Plain;
      for (Factor& factor : dims[1]) factor.mark = Mark::Cut;
    }
    std::vector<const Call*> calls;
    for (size_t c = 0; c < graph_.calls.size(); ++c)
      if (chunk_of_[c] >= 0 && !ignored_[c] && (!mixes(graph_.calls[c]) || is_view(graph_, graph_.calls[c])))
        calls.push_back(&graph_.calls[c]);
    for (bool learned = true; learned;) {
      const LabelSweep sweep = sweep_rules(graph_, graph_.tensors, calls, labels_);
      bool fine = !sweep.stopped_at;
      if (sweep.stopped_at && mixes(*sweep.stopped_at))  // a view that cannot be followed
        ignored_[position(*sweep.stopped_at)] = true;
      else if (sweep.stopped_at)
        mixes(*sweep.stopped_at) = true;
      for (const auto& [call, must] : sweep.must_be_plain)
        if (!mixes(*call) && has(labels_.tensors[must.tensor.index()].dims[must.dim], Mark::Cut)) {
          mixes(*call) = true;
          fine = false;
        }
      if (!fine) return false;
      learned = sweep.learned;
      for (const Contribution& contribution : graph_.gradients)
        learned |=
            unify_tensors(labels_.tensors[contribution.parameter.index()], labels_.tensors[contribution.value.index()]);
    }
    return true;
  }
  size_t position(const Call& call) const { return static_cast<size_t>(&call - graph_.calls.data()); }
  /// Of its chunk.
  char& mixes(const Call& call) { return mixes_[static_cast<size_t>(chunk_of_[position(call)])]; }

  /// And on nothing that lasts, or comes from outside, by tokens.
  bool works_on_tokens(const ChunkCalls& chunk) const {
    bool found = false, outside = false;
    for (const auto* calls : {&chunk.forward, &chunk.backward})
      for (const CallId id : *calls)
        for (const auto* list : {&graph_[id].arguments, &graph_[id].results})
          each_tensor(*list, [&](TensorId tensor) {
            if (!has(labels_.tensors[tensor.index()], Mark::Cut)) return;
            found = true;
            outside = outside || graph_[graph_[graph_[tensor].storage].base].kind != TensorKind::Result;
          });
    return found && !outside;
  }

  const OperatorGraph& graph_;
  const std::vector<ChunkCalls> chunks_;
  std::vector<int> chunk_of_;  // by call; -1: nobody needs it
  std::vector<char> mixes_;    // by chunk: it needs all tokens
  std::vector<char> ignored_;  // by call: nothing follows from it
  BodyLabels labels_;
};

}  // namespace

SequenceLabels find_sequence(const OperatorGraph& graph) {
  return SequenceFinder(graph).find();
}

}  // namespace piper
