#include "capture/measure_calls.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/zero.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/overloaded.h"
#include "capture/draws.h"
#include "runtime/memory_meter.h"

namespace piper {
namespace {

/// Equal for calls that do the same to tensors of the same layout.
std::string signature(const PassBody& body, const Call& call) {
  std::string out = fmt::format("{}", call.op.value);
  const auto tensor = [&](TensorId id) {
    if (!id.valid()) {
      out += ";-";
      return;
    }
    const TensorLayout& layout = body[id].layout;
    out += fmt::format(";{}[{}][{}]", layout.element, fmt::join(layout.sizes, ","), fmt::join(layout.strides, ","));
  };
  for (const Argument& argument : call.arguments) {
    std::visit(overloaded{
                   [&](None) { out += ";n"; },
                   [&](bool value) { out += fmt::format(";{}", value); },
                   [&](int64_t value) { out += fmt::format(";{}", value); },
                   [&](double value) { out += fmt::format(";{}", value); },
                   [&](const Ints& values) { out += fmt::format(";i{}", fmt::join(values, ",")); },
                   [&](const Bools& values) {
                     for (const bool value : values) out += value ? '1' : '0';
                   },
                   [&](Opaque value) { out += fmt::format(";o{}", value.index); },
                   [&](TargetDevice) { out += ";d"; },
                   [&](PartStart) { out += ";p"; },
                   [&](TensorId id) { tensor(id); },
                   [&](const TensorList& list) {
                     for (const TensorId id : list.tensors) tensor(id);
                   },
               },
               argument);
  }
  return out;
}

/// What ChunkRunner takes to draw numbers: a new tensor is filled, and where every number has its own probability there
/// are numbers to compare with.
int64_t bytes_to_draw(const PassBody& body, const Call& call, const c10::OperatorHandle& op) {
  const TensorLayout& drawn = body[std::get<TensorId>(call.results[0])].layout;
  int64_t bytes =
      call.writes.empty() ? body.storages[body[std::get<TensorId>(call.results[0])].storage.index()].bytes : 0;
  if (const auto by = drawn_by(op, call.arguments); by->probabilities >= 0)
    bytes += element_count(drawn) * (static_cast<int64_t>(sizeof(double)) + 1);
  return bytes;
}

int64_t measure(const PassBody& body, const Call& call, const OperatorTable& table, c10::Device device) {
  const c10::OperatorHandle& op = table.operators[call.op.index()];
  if (call.random >= 0) return bytes_to_draw(body, call, op);
  const auto make = [&](TensorId id) {
    if (!id.valid()) return at::Tensor();
    if (body[id].kind == TensorKind::Constant) return placed_constant(table, body[id].constant, device);
    at::Tensor tensor = empty_tensor(body[id].layout, device);
    return tensor.zero_();
  };
  torch::jit::Stack stack;
  for (size_t i = 0; i < call.arguments.size(); ++i) {
    const Argument& argument = call.arguments[i];
    if (const auto* id = std::get_if<TensorId>(&argument)) {
      stack.emplace_back(make(*id));
    } else if (const auto* list = std::get_if<TensorList>(&argument)) {
      if (list->optional) {
        c10::List<std::optional<at::Tensor>> tensors;
        for (const TensorId id : list->tensors) tensors.push_back(id.valid() ? std::optional(make(id)) : std::nullopt);
        stack.emplace_back(std::move(tensors));
      } else {
        c10::List<at::Tensor> tensors;
        for (const TensorId id : list->tensors) tensors.push_back(make(id));
        stack.emplace_back(std::move(tensors));
      }
    } else {
      stack.push_back(to_ivalue(table, argument, device));
    }
  }
  const torch::jit::Stack kept = stack;  // arguments stay alive, as they do when a chunk runs
  if (!device.is_cpu()) {  // what libraries of GPUs take for themselves at their first call is no part of it
    op.callBoxed(&stack);
    stack = kept;
  }
  const MemoryMeter meter(device.type());
  op.callBoxed(&stack);
  return meter.peak();
}

}  // namespace

std::vector<int64_t> CallMeter::peaks(const PassBody& body, const OperatorTable& table) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  std::vector<int64_t> out;
  for (const Call& call : body.calls) {
    if (!call.op.valid()) {  // a view, which takes nothing
      out.push_back(0);
      continue;
    }
    const auto [found, fresh] = known_.try_emplace(signature(body, call), 0);
    if (fresh) found->second = measure(body, call, table, device_);
    out.push_back(found->second);
  }
  return out;
}

}  // namespace piper
