// One pass of one chunk by itself: a list of calls over tensors of its own, and what it takes and gives.
//
// Bodies are pure: whatever crosses the border of a chunk is a whole storage that nobody changes afterwards. Two things
// make it so. Views are never handed over; the body that needs one makes it again from the storage (so no view of a
// parameter outlives the parameter's stay on a device). And a body that writes in place to a storage of another makes
// a copy first; later bodies read the copy. What needs no input at all (masks, positions) is made where it is used.
#pragma once

#include <map>
#include <vector>

#include "base/result.h"
#include "capture/chunk/chunk_calls.h"
#include "model/model_graph.h"

namespace piper {

/// What a storage holds after a group of calls has written it. Groups are numbered in order of execution: forward of
/// the chunks, then backward in reverse. Group -1: an input, before anybody wrote it.
struct Content {
  StorageId storage;
  int group = -1;
  friend auto operator<=>(const Content&, const Content&) = default;
};

/// Something from outside under the name it has inside.
struct ContentUse {
  Content content;
  TensorId inside;  // all of the storage
};
struct ExternalUse {
  TensorId outside;  // in the graph: a parameter, buffer or constant
  TensorId inside;
};

struct ChunkIr {
  std::vector<GraphTensor> tensors;
  std::vector<GraphStorage> storages;
  std::vector<Call> calls;  // their ids of tensors and storages are those of the body
  std::vector<ContentUse> reads, writes;
  std::vector<ExternalUse> parameters;  // also buffers that nobody writes
  std::vector<ExternalUse> states;      // buffers it writes
  std::vector<ExternalUse> constants;
  std::vector<ExternalUse> gradients;  // accumulators, by parameter
  ShardCounts shards;                  // of its region; it sees so many slices as devices divide the experts

  const GraphTensor& operator[](TensorId id) const { return tensors[id.index()]; }
  bool empty() const { return calls.empty(); }
};

/// The passes of a chunk: F always, the others as far as there is something to do.
struct ChunkBodies {
  std::string name;
  ScopeId scope;
  std::array<std::optional<ChunkIr>, 4> passes;  // F, B, BI, BW
  const ChunkIr* find(Pass pass) const {
    const auto& slot = passes[static_cast<size_t>(pass)];
    return slot ? &*slot : nullptr;
  }
};

/// What forward saves for backward.
enum class Saved {
  AsRecorded,  // what autograd saved
  Fewest,      // without what backward can make again by pointwise calls
};

/// Cuts a recorded graph into bodies. Adds calls to the graph (halves of calls), never changes any.
/// Refused: a model buffer written in one pass and used in an earlier one, or written by two (E606).
Result<std::vector<ChunkBodies>> build_bodies(OperatorGraph& graph, Saved saved = Saved::AsRecorded);

/// The result shows the storage of an argument.
bool shows_argument(const ChunkIr& body, const Call& call, TensorId result);
/// All its results do, and it changes nothing.
bool is_view(const ChunkIr& body, const Call& call);

/// Bytes of a pass in time: what it takes beyond inputs and outputs. `call_peaks`: by call, the most bytes it holds
/// while it runs, its results included; without it, its results.
int64_t temporary_bytes(const ChunkIr& body, const std::vector<int64_t>& call_peaks = {});

/// By call: tensors that nobody needs afterwards. Those that calls on side streams use end with the pass.
std::vector<std::vector<TensorId>> last_uses(const ChunkIr& body);

}  // namespace piper
