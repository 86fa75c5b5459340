#include "capture/program/as_strided_views.h"

#include <c10/core/ScalarType.h>

namespace piper {
namespace {

/// Nothing but its layout distinguishes the tensor from all of its storage.
bool is_layout_only(const ChunkIr& body, TensorId id) {
  const GraphTensor& all = body[body.storages[body[id].storage.index()].base];
  return body[id].layout.element == all.layout.element &&
         !c10::isComplexType(static_cast<c10::ScalarType>(all.layout.element));  // which may be conjugated besides
}

bool only_shows(const ChunkIr& body, const Call& call) {
  bool some = false, all = call.writes.empty() && call.random < 0;
  each_tensor(call.results, [&](TensorId result) {
    some = true;
    bool shown = false;
    each_tensor(call.arguments, [&](TensorId argument) { shown |= body[argument].storage == body[result].storage; });
    all &= shown && is_layout_only(body, result);
  });
  return some && all;
}

}  // namespace

ChunkIr as_strided_views(ChunkIr body) {
  std::vector<char> shows, used(body.tensors.size(), 0);
  for (const Call& call : body.calls) {
    shows.push_back(only_shows(body, call));
    if (!shows.back()) each_tensor(call.arguments, [&](TensorId id) { used[id.index()] = 1; });
  }
  for (const ContentUse& output : body.writes) used[output.inside.index()] = 1;
  std::vector<Call> calls;
  for (size_t i = 0; i < body.calls.size(); ++i) {
    if (!shows[i]) {
      calls.push_back(std::move(body.calls[i]));
      continue;
    }
    each_tensor(body.calls[i].results, [&](TensorId result) {
      if (!used[result.index()]) return;
      Call& shown = calls.emplace_back();
      shown.arguments = {body.storages[body[result].storage.index()].base};
      shown.results = {result};
      shown.side_stream = body.calls[i].side_stream;
    });
  }
  body.calls = std::move(calls);
  find_producers(body.tensors, body.calls);
  return body;
}

}  // namespace piper
