// Passes over a recorded graph, in this order: sums of gradients dissolved, slices named where something is sharded,
// what crosses borders of regions made whole, dead calls removed, calls cut into chunks, backward divided.
#pragma once

#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "capture/record/operator_graph.h"

namespace piper {

/// What must come out of a list of calls.
struct Wanted {
  std::unordered_set<TensorId> tensors;
  std::unordered_set<StorageId> storages;  // what they hold in the end
};
/// By position in the list: whether the call is needed. Calls that write model buffers always are.
std::vector<char> needed_calls(const OperatorGraph& graph, const std::vector<CallId>& calls, const Wanted& wanted);

/// The autograd engine adds up the gradients of a parameter that is used several times. Here each of them is a
/// contribution of its own: whoever accumulates gradients adds them anyway, and they may come from different devices.
///   before:  g = add(a, b); gradient(w) = g        after:  gradient(w) = a, gradient(w) = b
OperatorGraph dissolve_gradient_sums(OperatorGraph graph);

/// Autograd shows the part of a gradient that a copy into a slice wrote by its strides, which say nothing of
/// dimensions.
///   before:  y = as_strided(x, [2, 8], strides of x, 0)        after:  y = slice(x, 1, 0, 8)
OperatorGraph name_slices(OperatorGraph graph);

/// What enters a region of experts is exchanged between devices, so it must be a tensor of its own, not a view of
/// something larger: where it is not, the chunk that made the view makes a copy.
///   before:  x = view(buffer); experts(x)        after:  x = view(buffer); c = clone(x); experts(c)
OperatorGraph materialize_region_borders(OperatorGraph graph);

/// The calls on which the loss, a gradient or a model buffer depends.
std::vector<CallId> live_calls(const OperatorGraph& graph);

/// A maximal run of calls of one scope instance, and the calls of its backward.
struct ChunkCalls {
  std::string name;
  ScopeId scope;
  std::vector<CallId> forward, backward;
  std::vector<Contribution> contributions;  // to gradients of parameters it uses
};
std::vector<ChunkCalls> cut_into_chunks(const OperatorGraph& graph, const std::vector<CallId>& live);

/// An operator that computes several gradients as a mask says (layer norm) as two calls, the first only for the
/// gradient of the input. Bit-equal; reads its inputs twice. None: it is no such operator, or not all of it is wanted.
std::optional<std::pair<Call, Call>> halves_of(const OperatorGraph& graph, const Call& call);
/// Returns the list with such calls replaced; adds them to the graph.
std::vector<CallId> split_masks(OperatorGraph& graph, const std::vector<CallId>& calls);

/// By call: the chunk whose backward makes it again instead of reading what forward saved, or -1. Chosen are pointwise
/// calls and copies, so that forward saves the fewest bytes: a minimum cut between what cannot be made again and what
/// backward needs. What is a weight, or of the batch, is there anyway.
///   before:  F: y = x * r; saves y, x, r      B: reads y, x, r
///   after:   F: saves x, r                    B: reads x, r; y = x * r
std::vector<int> calls_made_again(const OperatorGraph& graph, const std::vector<ChunkCalls>& chunks);

/// By position in the list of backward calls: whether it belongs to BI, what others wait for; the rest is BW.
std::vector<char> input_half(const OperatorGraph& graph, const std::vector<CallId>& calls, const Wanted& by_others);

}  // namespace piper
