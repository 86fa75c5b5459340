#include <algorithm>
#include <map>
#include <set>

#include "base/invariant.h"
#include "capture/chunk/chunk_calls.h"

namespace piper {
namespace {

/// The instance of an annotation with experts around a segment, if there is one.
std::vector<ScopeId> region_of_segments(const OperatorGraph& graph) {
  std::vector<ScopeId> regions;
  for (const Segment& segment : graph.segments) {
    ScopeId scope = segment.scope;
    while (scope.valid() && graph[scope].attributes.experts <= 0) scope = graph[scope].parent;
    regions.push_back(scope);
  }
  return regions;
}

/// Whether the elements fill their memory without gaps, in whatever order of dimensions.
bool is_dense(const TensorLayout& layout) {
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride, size
  for (size_t d = 0; d < layout.sizes.size(); ++d)
    if (layout.sizes[d] != 1) dims.emplace_back(layout.strides[d], layout.sizes[d]);
  std::sort(dims.begin(), dims.end());
  int64_t expected = 1;
  for (const auto& [stride, size] : dims) {
    if (stride != expected) return false;
    expected *= size;
  }
  return true;
}
void make_contiguous(TensorLayout& layout) {
  int64_t stride = 1;
  for (size_t d = layout.sizes.size(); d-- > 0;) {
    layout.strides[d] = stride;
    stride *= layout.sizes[d];
  }
}

class Materializer {
 public:
  explicit Materializer(OperatorGraph graph)
      : graph_(std::move(graph)), regions_(region_of_segments(graph_)), clone_(operator_named(graph_, "aten::clone")) {
    for (const Call& call : graph_.calls)
      for (const StorageId storage : call.writes) written_.insert({region(call), storage});
  }

  OperatorGraph run() {
    find_copies();
    std::vector<Call> calls;
    std::vector<CallId> place(graph_.calls.size());  // new ids of old calls
    for (size_t i = 0; i < graph_.calls.size(); ++i) {
      for (Copy* copy : before_[i]) add_copy(calls, *copy);
      place[i] = CallId(calls.size());
      calls.push_back(std::move(graph_.calls[i]));
      for (Copy* copy : after_[i]) add_copy(calls, *copy);
    }
    for (size_t t = 0; t < graph_.tensors.size(); ++t)
      if (GraphTensor& tensor = graph_.tensors[t]; tensor.producer.valid() && !copied_.contains(TensorId(t)))
        tensor.producer = place[tensor.producer.index()];
    for (Call& call : calls)
      if (call.forward.valid()) call.forward = place[call.forward.index()];
    graph_.calls = std::move(calls);
    return std::move(graph_);
  }

 private:
  struct Copy {
    TensorId of, result;
    int segment = 0;
    bool backward = false;
    bool keeps_strides = true;
  };

  ScopeId region(const Call& call) const { return regions_[static_cast<size_t>(call.segment)]; }

  bool is_whole(TensorId id) const { return graph_[graph_[id].storage].base == id; }

  void find_copies() {
    before_.resize(graph_.calls.size());
    after_.resize(graph_.calls.size());
    for (size_t i = 0; i < graph_.calls.size(); ++i) {
      const ScopeId user = region(graph_.calls[i]);
      std::map<StorageId, StorageId> moved;  // storages of arguments that a copy replaces
      map_tensors(graph_.calls[i].arguments, [&](TensorId id) {
        const TensorId renamed = argument(id, user, i);
        if (renamed != id) moved[graph_[id].storage] = graph_[renamed].storage;
        return renamed;
      });
      if (moved.empty()) continue;
      map_tensors(graph_.calls[i].results, [&](TensorId id) { return view_of_copy(id, user, moved, i); });
    }
    for (Contribution& contribution : graph_.gradients) contribution.value = made_by_producer(contribution.value);
  }
  /// What the call that made the tensor makes now.
  TensorId made_by_producer(TensorId id) const {
    const CallId producer = graph_[id].producer;
    if (!producer.valid()) return id;
    const auto found = renamed_.find({region(graph_[producer]), id});
    return found == renamed_.end() ? id : found->second;
  }
  /// The tensor that a call in the region `user` sees.
  TensorId argument(TensorId id, ScopeId user, size_t call) {
    if (const auto own = renamed_.find({user, id}); own != renamed_.end()) return own->second;
    TensorId seen = made_by_producer(id);
    if (crosses_in_part(seen, user)) seen = copy_of(seen, user, call);
    if (seen != id) renamed_[{user, id}] = seen;
    return seen;
  }
  /// A view of what a copy replaces is a view of the copy.
  TensorId view_of_copy(TensorId id, ScopeId user, const std::map<StorageId, StorageId>& moved, size_t call) {
    const auto to = moved.find(graph_[id].storage);
    if (to == moved.end()) return id;
    GraphTensor view = graph_[id];
    view.storage = to->second;
    view.producer = CallId(call);
    const TensorId renamed(graph_.tensors.size());
    graph_.tensors.push_back(std::move(view));
    renamed_[{user, id}] = renamed;
    return renamed;
  }
  bool crosses_in_part(TensorId id, ScopeId user) const {
    const GraphTensor& tensor = graph_[id];
    if (!tensor.producer.valid() || region(graph_[tensor.producer]) == user) return false;
    const TensorKind kind = graph_[graph_[tensor.storage].base].kind;
    return (kind == TensorKind::Result || kind == TensorKind::Input) && !is_whole(id) &&
           !written_.contains({user, tensor.storage});
  }
  TensorId copy_of(TensorId id, ScopeId region_of_user, size_t user) {
    const auto [found, fresh] = copies_.try_emplace({region_of_user, id});
    Copy& copy = found->second;
    if (!fresh) return copy.result;
    const CallId producer = graph_[id].producer;
    const Call& maker = graph_[producer];
    GraphTensor result = graph_[id];
    result.layout.offset = 0;
    const bool dense = is_dense(result.layout);
    if (!dense) make_contiguous(result.layout);
    result.kind = TensorKind::Result;
    result.storage = StorageId(graph_.storages.size());
    copy = {id, TensorId(graph_.tensors.size()), maker.segment, maker.backward, dense};
    graph_.storages.push_back({element_count(result.layout) * result.layout.element_bytes, copy.result});
    copied_.insert(copy.result);
    graph_.tensors.push_back(std::move(result));
    if (maker.backward == graph_.calls[user].backward)
      before_[user].push_back(&copy);
    else
      after_[producer.index()].push_back(&copy);
    return copy.result;
  }
  void add_copy(std::vector<Call>& calls, const Copy& copy) {
    Call call;
    call.op = clone_;
    call.arguments = {copy.of, None{}};
    if (!copy.keeps_strides) call.arguments[1] = int64_t{0};  // memory format: contiguous
    call.results = {copy.result};
    call.segment = copy.segment;
    call.backward = copy.backward;
    graph_.tensors[copy.result.index()].producer = CallId(calls.size());
    calls.push_back(std::move(call));
  }

  OperatorGraph graph_;
  std::vector<ScopeId> regions_;
  OperatorId clone_;
  std::set<std::pair<ScopeId, StorageId>> written_;
  std::map<std::pair<ScopeId, TensorId>, Copy> copies_;
  std::map<std::pair<ScopeId, TensorId>, TensorId> renamed_;  // by region and tensor: what stands for it there
  std::vector<std::vector<Copy*>> before_, after_;
  std::set<TensorId> copied_;
};

}  // namespace

OperatorGraph materialize_region_borders(OperatorGraph graph) {
  for (const ScopeInstance& scope : graph.scopes)
    if (scope.attributes.experts > 0) return Materializer(std::move(graph)).run();
  return graph;
}

}  // namespace piper
