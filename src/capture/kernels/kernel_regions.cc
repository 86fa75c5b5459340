#include "capture/kernels/kernel_regions.h"

#include <c10/core/ScalarType.h>

#include <algorithm>
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
  std::vector<KernelLevel> levels;
  std::vector<std::vector<size_t>> compiled;
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
