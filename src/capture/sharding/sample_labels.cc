#include "capture/sharding/sample_labels.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>

#include "capture/program/draws.h"
#include "capture/record/origin.h"
#include "capture/sharding/label_rules.h"
#include "runtime/draw/draw_operator.h"
#include "runtime/frame.h"

namespace piper {
namespace {

/// A dimension is outer * samples * inner.
struct SamplePlace {
  size_t dim = 0;
  int64_t outer = 1, inner = 1;
};

bool in_experts(const OperatorGraph& graph, const Call& call) {
  ScopeId scope = graph.segments[static_cast<size_t>(call.segment)].scope;
  for (; scope.valid(); scope = graph[scope].parent)
    if (graph[scope].attributes.experts > 0) return true;
  return false;
}

class SampleFinder {
 public:
  SampleFinder(const OperatorGraph& graph, int64_t samples) : graph_(graph), samples_(samples) {
    for (const GraphTensor& tensor : graph.tensors) labels_.tensors.push_back(unknown_labels(tensor.layout.sizes));
    for (const TensorId input : graph.inputs)
      for (Factor& factor : labels_.tensors[input.index()].dims[0]) factor.mark = Mark::Sample;
    for (const Call& call : graph.calls)
      if (!call.backward) followed_.push_back(&call);
    // every round adds factors or marks, of which there are only so many
    for (size_t before = 0; known() > before;) {
      before = known();
      if (const LabelSweep sweep = sweep_rules(graph_, graph_.tensors, followed_, labels_); sweep.stopped_at)
        std::erase(followed_, sweep.stopped_at);  // it takes samples apart
      for (const Call* call : followed_) pass_on(*call);
    }
  }

  std::optional<SamplePlace> place(TensorId tensor) const {
    std::optional<SamplePlace> out;
    const std::vector<Factors>& dims = labels_.tensors[tensor.index()].dims;
    for (size_t d = 0; d < dims.size(); ++d) {
      SamplePlace here{d, 1, 1};
      bool found = false;
      for (const Factor& factor : dims[d]) {
        const bool is_sample = factor.mark == Mark::Sample;
        if (is_sample && (found || out)) return std::nullopt;
        found = found || is_sample;
        if (!is_sample) (found ? here.inner : here.outer) *= factor.size;
      }
      if (found) out = here;
    }
    return out;
  }

  bool is_mixed(TensorId tensor) const {
    int found = 0;
    for (const Factors& dim : labels_.tensors[tensor.index()].dims)
      for (const Factor& factor : dim) found += factor.mark == Mark::Sample ? 1 : 0;
    return found > 1;
  }

 private:
  size_t known() const {
    size_t count = 0;
    for (const TensorLabels& tensor : labels_.tensors)
      for (const Factors& dim : tensor.dims)
        for (const Factor& factor : dim) count += factor.mark == Mark::Unknown ? 1 : 2;
    return count + graph_.calls.size() - followed_.size();
  }
  bool begins_with_samples(TensorId id) const {
    const std::vector<Factors>& dims = labels_.tensors[id.index()].dims;
    return !dims.empty() && dims[0].size() == 1 && dims[0][0].mark == Mark::Sample;
  }
  /// From arguments to results that no rule told anything.
  void pass_on(const Call& call) {
    bool given = false;
    each_tensor(call.arguments, [&](TensorId id) { given = given || begins_with_samples(id); });
    if (!given || in_experts(graph_, call)) return;
    each_tensor(call.results, [&](TensorId id) {
      std::vector<Factors>& dims = labels_.tensors[id.index()].dims;
      if (dims.empty() || dims[0].size() != 1 || dims[0][0].size != samples_) return;
      if (dims[0][0].mark == Mark::Unknown) dims[0][0].mark = Mark::Sample;
    });
  }

  const OperatorGraph& graph_;
  const int64_t samples_;
  std::vector<const Call*> followed_;
  BodyLabels labels_;
};

/// One random call with every size of slices.
class DrawnEverywhere {
 public:
  DrawnEverywhere(const std::vector<CapturedSlice>& slices, int random) : slices_(slices) {
    for (const CapturedSlice& slice : slices)
      for (const Call& call : slice.operators.calls)
        if (call.random == random) calls_.push_back(&call);
  }
  bool is_complete() const { return calls_.size() == slices_.size(); }
  const Call& call() const { return *calls_[0]; }
  TensorId result(size_t slice) const { return std::get<TensorId>(calls_[slice]->results[0]); }
  const TensorLayout& layout(size_t slice) const { return slices_[slice].operators[result(slice)].layout; }

  bool grows() const {
    for (size_t s = 1; s < calls_.size(); ++s)
      if (layout(s).sizes != layout(0).sizes) return true;
    return false;
  }
  /// Whether it is as large everywhere as the place says.
  bool fits(const SamplePlace& place) const {
    for (size_t s = 0; s < calls_.size(); ++s) {
      std::vector<int64_t> sizes = layout(0).sizes;
      if (place.dim >= sizes.size()) return false;
      sizes[place.dim] = place.outer * slices_[s].samples * place.inner;
      if (layout(s).sizes != sizes) return false;
    }
    return true;
  }
  /// The dimension that is the samples alone, however many there are.
  std::optional<SamplePlace> own_dimension() const {
    for (size_t d = 0; d < layout(0).sizes.size(); ++d)
      if (fits({d, 1, 1})) return SamplePlace{d, 1, 1};
    return std::nullopt;
  }
  Diagnostic refuse(const std::string& what) const {
    const OperatorGraph& graph = slices_[0].operators;
    const ScopeId scope = graph.segments[static_cast<size_t>(call().segment)].scope;
    return error(ErrorCode::E603, {},
                 fmt::format("{}, forward: {} {}", scope_name(graph, scope), graph[call().op].name, what));
  }
  Diagnostic no_place() const {
    return refuse(
               fmt::format("draws [{}] numbers for {} samples and [{}] for {}, and nothing says which belong to which "
                           "sample",
                           fmt::join(layout(0).sizes, ", "), slices_[0].samples, fmt::join(layout(1).sizes, ", "),
                           slices_[1].samples))
        .help("draw them as [samples, ...], and flatten them afterwards");
  }

 private:
  const std::vector<CapturedSlice>& slices_;
  std::vector<const Call*> calls_;
};

Factors factors_of(int64_t size) {
  return size == 1 ? Factors{} : Factors{{size, Mark::Plain}};
}

Drawn drawn_at(const std::vector<int64_t>& sizes, const std::optional<SamplePlace>& place, int64_t samples) {
  Drawn out;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (!place || place->dim != d) {
      out.dims.push_back(factors_of(sizes[d]));
      continue;
    }
    Factors dim = factors_of(place->outer);
    dim.push_back({samples, Mark::Sample});
    for (const Factor& factor : factors_of(place->inner)) dim.push_back(factor);
    out.dims.push_back(std::move(dim));
  }
  return out;
}

}  // namespace

Checked place_samples(std::vector<CapturedSlice>& slices) {
  int draws = 0;
  for (const CapturedSlice& slice : slices)
    for (const Call& call : slice.operators.calls) draws = std::max(draws, call.random + 1);
  if (draws == 0) return Ok{};
  // samples that are one alone cannot be told from a dimension that is broadcast
  size_t told = 0;
  while (slices[told].samples == 1) ++told;
  const SampleFinder finder(slices[told].operators, slices[told].samples);
  std::vector<std::map<int, Drawn>> found(slices.size());
  for (int random = 0; random < draws; ++random) {
    const DrawnEverywhere drawn(slices, random);
    if (!drawn.is_complete())
      return error(ErrorCode::E603, {}, "the model draws other random numbers if a slice has more samples")
          .help("what is drawn must not depend on the size of the batch");
    if (!dtype_of(static_cast<c10::ScalarType>(drawn.layout(0).element)))
      return drawn.refuse("draws numbers of a type for which there is no generator")
          .help("draw float32 numbers, and convert them");
    std::optional<SamplePlace> place;
    bool by_slice = false;
    if (drawn.grows()) {
      const bool slots = in_experts(slices[0].operators, drawn.call());
      place = finder.place(drawn.result(told));
      if (place && !drawn.fits(*place)) place.reset();
      if (!place && !slots) place = drawn.own_dimension();
      if (!place && !slots) return drawn.no_place();
      by_slice = !place;
    }
    for (size_t s = 0; s < slices.size(); ++s) {
      found[s][random] = drawn_at(drawn.layout(s).sizes, place, slices[s].samples);
      found[s][random].by_slice = by_slice;
    }
  }
  for (size_t s = 0; s < slices.size(); ++s)
    for (ChunkBodies& chunk : slices[s].chunks)
      for (std::optional<ChunkIr>& body : chunk.passes) {
        if (!body) continue;
        for (Call& call : body->calls)
          if (call.random >= 0) call.drawn = found[s].at(call.random);
      }
  return Ok{};
}

std::optional<SliceDependence> find_mixed_samples(const CapturedSlice& slice) {
  if (slice.samples == 1) return std::nullopt;
  const OperatorGraph& graph = slice.operators;
  const SampleFinder finder(graph, slice.samples);
  for (const CallId id : origin_of(graph, graph.loss).calls) {
    const Call& call = graph[id];
    bool mixed = false;
    each_tensor(call.results, [&](TensorId result) { mixed = mixed || finder.is_mixed(result); });
    if (mixed && !in_experts(graph, call))
      return SliceDependence{graph[call.op].name,
                             scope_name(graph, graph.segments[static_cast<size_t>(call.segment)].scope)};
  }
  return std::nullopt;
}

}  // namespace piper
