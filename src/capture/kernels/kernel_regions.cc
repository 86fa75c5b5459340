#include "capture/kernels/kernel_regions.h"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <limits>
#include <set>

#include "capture/kernels/kernel_text.h"
#include "capture/program/one_at_a_time.h"

namespace piper {
namespace {

TensorId whole(const ChunkIr& body, TensorId id) {
  return body.storages[body[id].storage.index()].base;
}

/// One that the model wrote down.
bool is_number(const ChunkIr& body, TensorId id) {
  return body[id].kind == TensorKind::Constant && body[id].layout.sizes.empty() &&
         !c10::isComplexType(static_cast<c10::ScalarType>(body[id].layout.element));
}

/// Nothing in it is unknown to ATen, or differs among devices.
bool can_be_written(const Call& call, const OperatorTable& table) {
  return call.op.valid() && table.operators[call.op.index()].operator_name().name.starts_with("aten::") &&
         has_kernel_text(call, table);
}

bool can_be_compiled(const ChunkIr& body, const std::vector<int>& views, const Call& call, const OperatorTable& table,
                     c10::Device device) {
  if (call.random >= 0 || !can_be_written(call, table)) return false;
  const c10::OperatorHandle& op = table.operators[call.op.index()];
  if (op.operator_name().overload_name.ends_with("out") || runs_one_at_a_time(op, body, call, device)) return false;
  if (device.is_cuda() && op.operator_name().name.find("attention") != std::string::npos) return false;
  bool can = true;
  each_tensor(call.arguments, [&](TensorId id) {
    each_view_to(body, views, id, [&](size_t view) { can &= can_be_written(body.calls[view], table); });
  });
  each_tensor(call.results, [&](TensorId id) { can &= shows_argument(body, call, id) || whole(body, id) == id; });
  return can;
}

/// What a kernel of these calls takes and gives.
KernelRegion region_of(const ChunkIr& body, const std::vector<int>& views, const std::vector<size_t>& calls) {
  KernelRegion out;
  std::set<size_t> inside(calls.begin(), calls.end()), placed;
  std::vector<char> made(body.storages.size(), 0), taken(body.storages.size(), 0);
  const auto take = [&](TensorId id) {
    const size_t storage = body[id].storage.index();
    if (made[storage] || taken[storage]) return;
    taken[storage] = 1;
    (is_number(body, whole(body, id)) ? out.numbers : out.inputs).push_back(whole(body, id));
  };
  for (const size_t i : calls) {
    const Call& call = body.calls[i];
    each_tensor(call.arguments, [&](TensorId id) {
      take(id);
      each_view_to(body, views, id, [&](size_t view) {
        if (placed.insert(view).second) out.calls.push_back(view);
      });
    });
    out.calls.push_back(i);
    each_tensor(call.results, [&](TensorId id) {
      if (!taken[body[id].storage.index()]) made[body[id].storage.index()] = 1;
    });
    for (const StorageId storage : call.writes)
      if (taken[storage.index()] && std::find(out.writes.begin(), out.writes.end(), storage) == out.writes.end())
        out.writes.push_back(storage);
  }
  std::vector<char> wanted(body.storages.size(), 0);
  for (size_t i = 0; i < body.calls.size(); ++i)
    if (!inside.contains(i) && !is_view(body, body.calls[i]))
      each_tensor(body.calls[i].arguments, [&](TensorId id) { wanted[body[id].storage.index()] = 1; });
  for (const ContentUse& output : body.writes) wanted[body[output.inside].storage.index()] = 1;
  for (const size_t i : calls)
    each_tensor(body.calls[i].results, [&](TensorId id) {
      const size_t storage = body[id].storage.index();
      if (!made[storage] || !wanted[storage]) return;
      wanted[storage] = 0;
      out.outputs.push_back(whole(body, id));
    });
  return out;
}

/// The last levels on which something has used a storage, or written it.
struct Uses {
  int kernel = -1, stays = -1;
};

/// A call that is on a level.
struct Placed {
  size_t call = 0;
  int level = 0;
  bool stays = false;
};

/// Element by element, or only moves them.
bool is_pointwise(const c10::OperatorHandle& op) {
  const std::string& name = op.operator_name().name;
  return op.hasTag(at::Tag::pointwise) || name == "aten::_to_copy" || name == "aten::cat";
}

/// What a kernel computes of what the body was given, element by element, it can as well compute later, where it is
/// used: nobody then writes it to memory and reads it again.
void sink_pointwise(const ChunkIr& body, const OperatorTable& table, std::vector<Placed>& placed) {
  std::vector<char> written(body.storages.size(), 0), given(body.storages.size(), 1);
  for (const Call& call : body.calls)
    for (const StorageId storage : call.writes) written[storage.index()] = 1;
  std::vector<char> can_sink(placed.size(), 0);
  for (size_t p = 0; p < placed.size(); ++p) {
    const Call& call = body.calls[placed[p].call];
    bool sinks = !placed[p].stays && call.writes.empty() && is_pointwise(table.operators[call.op.index()]);
    each_tensor(call.arguments,
                [&](TensorId id) { sinks &= given[body[id].storage.index()] && !written[body[id].storage.index()]; });
    each_tensor(call.results, [&](TensorId id) { sinks &= !written[body[id].storage.index()]; });
    can_sink[p] = sinks;
    if (!sinks) each_tensor(call.results, [&](TensorId id) { given[body[id].storage.index()] = 0; });
  }
  constexpr int nowhere = std::numeric_limits<int>::max();
  std::vector<int> needed(body.storages.size(), nowhere);  // by storage: the last kernel that can make it
  for (const ContentUse& output : body.writes) needed[body[output.inside].storage.index()] = 0;
  for (size_t p = placed.size(); p-- > 0;) {
    const Call& call = body.calls[placed[p].call];
    int latest = nowhere;
    each_tensor(call.results, [&](TensorId id) { latest = std::min(latest, needed[body[id].storage.index()]); });
    if (can_sink[p] && latest != nowhere) placed[p].level = std::max(placed[p].level, latest);
    const int before = placed[p].stays ? placed[p].level - 1 : placed[p].level;
    each_tensor(call.arguments, [&](TensorId id) {
      int& of = needed[body[id].storage.index()];
      of = std::min(of, before);
    });
  }
}

}  // namespace

std::vector<int> views_of(const ChunkIr& body) {
  std::vector<int> out(body.tensors.size(), -1);
  for (size_t i = 0; i < body.calls.size(); ++i)
    if (is_view(body, body.calls[i]))
      each_tensor(body.calls[i].results, [&](TensorId id) {
        if (out[id.index()] < 0 && whole(body, id) != id) out[id.index()] = static_cast<int>(i);
      });
  return out;
}

std::vector<KernelLevel> kernel_levels(const ChunkIr& body, const OperatorTable& table, c10::Device device) {
  std::vector<Placed> placed;
  std::vector<Uses> used(body.storages.size()), written(body.storages.size());
  const std::vector<int> views = views_of(body);
  for (size_t i = 0; i < body.calls.size(); ++i) {
    const Call& call = body.calls[i];
    if (is_view(body, call)) continue;
    const bool stays = !can_be_compiled(body, views, call, table, device);
    int level = 0;
    const auto after = [&](const Uses& uses) {
      level = std::max({level, uses.stays, stays ? uses.kernel + 1 : uses.kernel});
    };
    each_tensor(call.arguments, [&](TensorId id) { after(written[body[id].storage.index()]); });
    for (const StorageId storage : call.writes) after(used[storage.index()]);
    const auto note = [&](Uses& uses) {
      int& last = stays ? uses.stays : uses.kernel;
      last = std::max(last, level);
    };
    each_tensor(call.arguments, [&](TensorId id) { note(used[body[id].storage.index()]); });
    each_tensor(call.results, [&](TensorId id) {
      note(used[body[id].storage.index()]);
      note(written[body[id].storage.index()]);
    });
    for (const StorageId storage : call.writes) note(written[storage.index()]);
    placed.push_back({i, level, stays});
  }
  sink_pointwise(body, table, placed);
  std::vector<KernelLevel> levels;
  std::vector<std::vector<size_t>> compiled;
  for (const auto& [i, level, stays] : placed) {
    levels.resize(std::max(levels.size(), static_cast<size_t>(level) + 1));
    compiled.resize(levels.size());
    (stays ? levels[static_cast<size_t>(level)].stays : compiled[static_cast<size_t>(level)]).push_back(i);
  }
  for (size_t l = 0; l < levels.size(); ++l) {
    levels[l].has_kernel = compiled[l].size() > 1;  // alone, an operator is as good
    levels[l].kernel = region_of(body, views, compiled[l]);
  }
  return levels;
}

}  // namespace piper
