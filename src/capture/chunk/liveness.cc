#include <algorithm>

#include "capture/chunk/chunk_ir.h"

namespace piper {

namespace {

/// By storage: calls on side streams touch it, and others too.
std::vector<char> shared_storages(const ChunkIr& body) {
  std::vector<char> by_side_stream(body.storages.size(), 0), by_others(body.storages.size(), 0);
  for (const Call& call : body.calls)
    for (const auto* list : {&call.arguments, &call.results})
      each_tensor(*list,
                  [&](TensorId id) { (call.side_stream ? by_side_stream : by_others)[body[id].storage.index()] = 1; });
  for (size_t s = 0; s < by_side_stream.size(); ++s) by_side_stream[s] &= by_others[s];
  return by_side_stream;
}

}  // namespace

std::vector<std::vector<TensorId>> last_uses(const ChunkIr& body) {
  const std::vector<char> shared = shared_storages(body);
  std::vector<int> last(body.tensors.size(), -1);
  for (size_t i = 0; i < body.calls.size(); ++i) {
    const auto use = [&](TensorId id) {
      const bool until_end = body.calls[i].side_stream && shared[body[id].storage.index()];
      last[id.index()] = std::max(last[id.index()], static_cast<int>(until_end ? body.calls.size() - 1 : i));
    };
    each_tensor(body.calls[i].arguments, use);
    each_tensor(body.calls[i].results, use);
  }
  for (const ContentUse& output : body.writes) last[output.inside.index()] = -1;
  std::vector<std::vector<TensorId>> out(body.calls.size());
  for (size_t t = 0; t < last.size(); ++t)
    if (last[t] >= 0 && body.tensors[t].kind == TensorKind::Result)
      out[static_cast<size_t>(last[t])].push_back(TensorId(t));
  return out;
}

int64_t temporary_bytes(const ChunkIr& body, const std::vector<int64_t>& call_peaks) {
  const std::vector<std::vector<TensorId>> ends = last_uses(body);
  std::vector<int> views(body.storages.size(), 0);  // tensors that hold the storage
  std::vector<char> held(body.tensors.size(), 0);
  int64_t outputs = 0, now = 0, peak = 0;
  for (const ContentUse& output : body.writes) outputs += body.storages[body[output.inside].storage.index()].bytes;
  const auto is_own = [&](TensorId id) {
    return body[body.storages[body[id].storage.index()].base].kind == TensorKind::Result;
  };
  for (size_t i = 0; i < body.calls.size(); ++i) {
    const int64_t before = now;
    each_tensor(body.calls[i].results, [&](TensorId id) {
      if (!is_own(id) || held[id.index()]) return;
      held[id.index()] = 1;
      const size_t storage = body[id].storage.index();
      if (views[storage]++ == 0) now += body.storages[storage].bytes;
    });
    peak = std::max({peak, now, i < call_peaks.size() ? before + call_peaks[i] : 0});
    for (const TensorId id : ends[i]) {
      if (!held[id.index()]) continue;
      const size_t storage = body[id].storage.index();
      if (--views[storage] == 0) now -= body.storages[storage].bytes;
    }
  }
  return std::max<int64_t>(0, peak - outputs);
}

}  // namespace piper
