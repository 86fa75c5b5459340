#include "capture/gpu/side_stream.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

namespace piper {
namespace {

template <class F>
void each_storage(const ChunkIr& body, const Call& call, F f) {
  for (const auto* list : {&call.arguments, &call.results})
    each_tensor(*list, [&](TensorId id) { f(body[id].storage.index()); });
  for (const StorageId storage : call.writes) f(storage.index());
}

/// By call: something that the pass gives depends on it.
std::vector<char> needed_for_outputs(const ChunkIr& body) {
  std::vector<char> needed(body.calls.size(), 0);
  for (size_t before = 0, now = 1; before != now;) {
    before = static_cast<size_t>(std::count(needed.begin(), needed.end(), 1));
    std::vector<char> wanted(body.storages.size(), 0), changed(wanted);  // by what comes later and is needed
    for (const ContentUse& output : body.writes) wanted[body[output.inside].storage.index()] = 1;
    for (size_t i = body.calls.size(); i-- > 0;) {
      const Call& call = body.calls[i];
      bool need = needed[i];
      each_tensor(call.results, [&](TensorId id) { need |= wanted[body[id].storage.index()] != 0; });
      for (const StorageId storage : call.writes) need |= wanted[storage.index()] != 0;
      // it must see, or write, a storage before somebody changes it who does not wait
      each_storage(body, call, [&](size_t storage) { need |= changed[storage] != 0; });
      if (!need) continue;
      needed[i] = 1;
      for (const StorageId storage : call.writes) changed[storage.index()] = 1;
      each_tensor(call.arguments, [&](TensorId id) { wanted[body[id].storage.index()] = 1; });
    }
    now = static_cast<size_t>(std::count(needed.begin(), needed.end(), 1));
  }
  return needed;
}

}  // namespace

ChunkIr compute_apart(ChunkIr body, const OperatorGraph& graph) {
  const std::vector<char> needed = needed_for_outputs(body);
  std::vector<char> wanted(body.storages.size(), 0);
  for (const ContentUse& output : body.writes) wanted[body[output.inside].storage.index()] = 1;
  for (size_t i = 0; i < body.calls.size(); ++i)
    if (needed[i]) each_tensor(body.calls[i].arguments, [&](TensorId id) { wanted[body[id].storage.index()] = 1; });
  std::vector<Call> calls;
  for (size_t i = 0; i < body.calls.size(); ++i) {
    auto halves = needed[i] ? halves_of(graph, body.calls[i]) : std::nullopt;
    if (halves)
      each_tensor(halves->second.results, [&](TensorId id) {
        if (wanted[body[id].storage.index()]) halves.reset();
      });
    if (halves) {
      calls.push_back(std::move(halves->first));
      calls.push_back(std::move(halves->second));
    } else {
      calls.push_back(std::move(body.calls[i]));
    }
  }
  body.calls = std::move(calls);
  find_producers(body.tensors, body.calls);
  return body;
}

ChunkIr mark_side_stream(ChunkIr body) {
  if (body.writes.empty()) return body;
  const std::vector<char> needed = needed_for_outputs(body);
  for (size_t i = 0; i < body.calls.size(); ++i) body.calls[i].side_stream = !needed[i];
  return body;
}

std::vector<int> side_lanes(const ChunkIr& body, size_t lanes) {
  std::vector<char> theirs(body.storages.size(), 0);  // made or written by calls on side streams
  for (const Call& call : body.calls) {
    if (!call.side_stream || !call.op.valid()) continue;
    each_tensor(call.results, [&](TensorId id) { theirs[body[id].storage.index()] = 1; });
    for (const StorageId storage : call.writes) theirs[storage.index()] = 1;
  }
  std::vector<size_t> group(body.storages.size());  // of those: each points to one of its group, the first to itself
  std::iota(group.begin(), group.end(), size_t{0});
  const auto first_of = [&](size_t storage) {
    while (group[storage] != storage) storage = group[storage];
    return storage;
  };
  const auto first_touched = [&](const Call& call) {
    std::optional<size_t> first;
    each_storage(body, call, [&](size_t storage) {
      if (!theirs[storage]) return;
      if (!first) first = first_of(storage);
      group[first_of(storage)] = *first;
    });
    return first;
  };
  for (const Call& call : body.calls)
    if (call.side_stream) first_touched(call);
  std::map<size_t, int> lane_of;  // by the first of a group
  std::vector<int> out(body.calls.size(), -1);
  for (size_t i = 0; i < body.calls.size(); ++i) {
    if (!body.calls[i].side_stream || !body.calls[i].op.valid()) continue;
    const auto first = first_touched(body.calls[i]);
    out[i] = first ? lane_of.try_emplace(first_of(*first), static_cast<int>(lane_of.size() % lanes)).first->second : 0;
  }
  return out;
}

std::vector<int> awaited_by_side_stream(const ChunkIr& body) {
  std::vector<int> out(body.calls.size(), -1), made(body.storages.size(), -1), used(body.storages.size(), -1);
  for (size_t i = 0; i < body.calls.size(); ++i) {
    const Call& call = body.calls[i];
    if (!call.op.valid()) continue;
    if (call.side_stream) {
      each_tensor(call.arguments, [&](TensorId id) { out[i] = std::max(out[i], made[body[id].storage.index()]); });
      for (const StorageId storage : call.writes) out[i] = std::max(out[i], used[storage.index()]);
      continue;
    }
    each_tensor(call.results, [&](TensorId id) { made[body[id].storage.index()] = static_cast<int>(i); });
    for (const StorageId storage : call.writes) made[storage.index()] = static_cast<int>(i);
    each_storage(body, call, [&](size_t storage) { used[storage] = static_cast<int>(i); });
  }
  return out;
}

}  // namespace piper
