#include "capture/measure_calls.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/zero.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/overloaded.h"
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

int64_t measure(const PassBody& body, const Call& call, const OperatorTable& table, c10::Device device) {
  if (call.divided_dim >= 0 || call.cut_dim >= 0) {  // drawn block by block
    const TensorLayout& layout = body[std::get<TensorId>(call.arguments[0])].layout;
    int64_t blocks = call.gathered_dim >= 0 ? body.parts.layout : 1;
    for (const int dim : {call.divided_dim, call.cut_dim})
      if (dim >= 0) blocks *= layout.sizes[static_cast<size_t>(dim)];
    return element_count(layout) * layout.element_bytes / blocks;
  }
  const c10::OperatorHandle& op = table.operators[call.op.index()];
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
    } else if (call.random >= 0 && op.schema().arguments()[i].name() == "generator") {
      stack.emplace_back(new_generator(device));
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
