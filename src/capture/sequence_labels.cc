#include "capture/sequence_labels.h"

#include <algorithm>

#include "capture/chunk_calls.h"

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
    for (bool learned = true; learned;) {
      learned = false;
      bool fine = true;
      std::vector<std::pair<int, MustBePlain>> plain;
      const auto run = [&](size_t c) {
        const Call& call = graph_.calls[c];
        const int chunk = chunk_of_[c];
        if (chunk < 0 || (mixes_[static_cast<size_t>(chunk)] && !is_view(graph_, call))) return;
        RuleResult result = apply_rule(graph_, graph_.tensors, call, labels_);
        learned |= result.learned;
        for (MustBePlain& one : result.must_be_plain) plain.emplace_back(chunk, std::move(one));
        if (result.problem) fine = mixes(chunk);
      };
      for (size_t c = 0; c < graph_.calls.size() && fine; ++c) run(c);
      for (size_t c = graph_.calls.size(); c-- > 0 && fine;) run(c);
      for (const auto& [chunk, must] : plain)
        if (has(labels_.tensors[must.tensor.index()].dims[must.dim], Mark::Cut)) fine = mixes(chunk) && fine;
      if (!fine) return false;
      for (const Contribution& contribution : graph_.gradients)
        learned |=
            unify_tensors(labels_.tensors[contribution.parameter.index()], labels_.tensors[contribution.value.index()]);
    }
    return true;
  }
  /// Whether that was known: then it is only a view that cannot be followed.
  bool mixes(int chunk) {
    const bool known = mixes_[static_cast<size_t>(chunk)];
    mixes_[static_cast<size_t>(chunk)] = true;
    return known;
  }

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
  std::vector<bool> mixes_;    // by chunk: it needs all tokens
  BodyLabels labels_;
};

}  // namespace

SequenceLabels find_sequence(const OperatorGraph& graph) {
  return SequenceFinder(graph).find();
}

}  // namespace piper
