#include "capture/program/tried_calls.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zero.h>
#include <fmt/format.h>
#include <fmt/ostream.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/overloaded.h"
#include "capture/program/draws.h"
#include "runtime/memory_meter.h"

namespace piper {
namespace {

using torch::jit::Stack;

/// Every tensor of the results, also those that are not there.
template <class F>
void each_result(const Call& call, F f) {
  for (size_t i = 0; i < call.results.size(); ++i) {
    if (const auto* one = std::get_if<TensorId>(&call.results[i])) {
      f(i, size_t{0}, *one);
    } else if (const auto* list = std::get_if<TensorList>(&call.results[i])) {
      for (size_t j = 0; j < list->tensors.size(); ++j) f(i, j, list->tensors[j]);
    }
  }
}

/// Parameters and their gradients share a storage with others.
bool lies_in_bucket(const ChunkIr& body, TensorId id) {
  const TensorKind kind = body[body.storages[body[id].storage.index()].base].kind;
  return kind == TensorKind::Parameter || kind == TensorKind::Buffer;
}

int64_t count_parts(const ChunkIr& body) {
  return body.shards[kind_of(Mark::Sharded, body.shards)];
}

/// Equal for calls that do the same to tensors of the same layout, with the same results.
std::string signature(const ChunkIr& body, const Call& call, const OperatorTable& table) {
  std::string out = full_name(table.operators[call.op.index()]);
  const auto tensor = [&](TensorId id) {
    if (!id.valid()) {
      out += ";-";
      return;
    }
    const TensorLayout& layout = body[id].layout;
    out += fmt::format(";{}[{}][{}]", layout.element, fmt::join(layout.sizes, ","), fmt::join(layout.strides, ","));
    if (body[id].kind == TensorKind::Constant) out += fmt::format("c{}", body[id].constant);
    if (lies_in_bucket(body, id)) out += "b";
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
                   [&](Opaque value) {
                     out += fmt::format(";o{}", fmt::streamed(table.opaque[static_cast<size_t>(value.index)]));
                   },
                   [&](TargetDevice) { out += ";d"; },
                   [&](PartStart start) { out += fmt::format(";p{}x{}", start.size, count_parts(body)); },
                   [&](TensorId id) { tensor(id); },
                   [&](const TensorList& list) {
                     for (const TensorId id : list.tensors) tensor(id);
                   },
               },
               argument);
  }
  out += " -> ";
  each_result(call, [&](size_t, size_t, TensorId id) {
    tensor(id);
    if (!id.valid()) return;
    const GraphStorage& storage = body.storages[body[id].storage.index()];
    out += shows_argument(body, call, id) ? "s" : fmt::format("@{}", storage.base == id ? storage.bytes : -1);
  });
  return out;
}

/// What is tried, in this order. Some kernels look at values: they invert matrices, or count from one.
enum class Trial { Zeros, Identities, Distinct };

at::Tensor values_like(const ChunkIr& body, TensorId id, Trial trial, c10::Device device) {
  const TensorLayout& layout = body[id].layout;
  at::Tensor out = empty_tensor(layout, device);
  if (lies_in_bucket(body, id)) {
    constexpr int64_t others = 64;
    const auto elements = static_cast<int64_t>(out.storage().nbytes() / out.element_size());
    out = at::empty({elements + 2 * others}, out.options()).as_strided(layout.sizes, layout.strides, others);
  }
  if (trial == Trial::Zeros) return out.zero_();
  if (trial == Trial::Distinct)
    return out.copy_(at::arange(out.numel(), out.options().dtype(at::kDouble)).reshape(out.sizes()));
  if (out.dim() < 2 || !out.is_floating_point()) return out.fill_(1);
  out.zero_().diagonal(0, -2, -1).fill_(1);
  return out;
}

Stack arguments_for(const ChunkIr& body, const Call& call, const OperatorTable& table, Trial trial, c10::Device device,
                    int64_t part) {
  const auto make = [&](TensorId id) {
    if (!id.valid()) return at::Tensor();
    if (body[id].kind == TensorKind::Constant) {
      const at::Tensor whole = placed_constant(table, body[id].constant, device);
      if (whole.sizes() == c10::IntArrayRef(body[id].layout.sizes)) return whole;  // otherwise a part of it
    }
    return values_like(body, id, trial, device);
  };
  Stack stack;
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
    } else if (const auto* start = std::get_if<PartStart>(&argument)) {
      stack.emplace_back(part * start->size);
    } else {
      stack.push_back(to_ivalue(table, argument, device));
    }
  }
  return stack;
}

bool has_storage_of(const Stack& arguments, const at::Tensor& tensor) {
  const auto same = [&](const at::Tensor& argument) {
    return argument.defined() && argument.storage().unsafeGetStorageImpl() == tensor.storage().unsafeGetStorageImpl();
  };
  return std::any_of(arguments.begin(), arguments.end(), [&](const c10::IValue& value) {
    if (value.isTensor()) return same(value.toTensor());
    if (!value.isTensorList()) return false;
    const std::vector<at::Tensor> list = value.toTensorVector();
    return std::any_of(list.begin(), list.end(), same);
  });
}

std::string text_of(c10::IntArrayRef sizes, c10::ScalarType type) {
  return fmt::format("[{}] of {}", fmt::join(sizes, ", "), c10::toString(type));
}

/// Compares a result with what was recorded; what the rest of the body cannot live with is a problem.
void compare(const ChunkIr& body, const Call& call, TensorId id, const at::Tensor& given, bool of_argument,
             TriedCall& out) {
  const GraphTensor& recorded = body[id];
  const TensorLayout& layout = recorded.layout;
  const auto type = static_cast<c10::ScalarType>(layout.element);
  const auto differs = [&](std::string what) {
    if (out.problem.empty()) out.problem = std::move(what);
  };
  if (!given.defined()) return differs(fmt::format("gives nothing where {} is expected", text_of(layout.sizes, type)));
  if (given.sizes() != c10::IntArrayRef(layout.sizes) || given.scalar_type() != type)
    return differs(fmt::format("gives {} where {} is expected", text_of(given.sizes(), given.scalar_type()),
                               text_of(layout.sizes, type)));
  if (given.numel() == 0) return;
  bool same = true;
  for (size_t d = 0; d < layout.sizes.size(); ++d)
    same &= layout.sizes[d] == 1 || given.stride(static_cast<int64_t>(d)) == layout.strides[d];
  const GraphStorage& storage = body.storages[recorded.storage.index()];
  if (shows_argument(body, call, id) || storage.base != id) {  // what shows something cannot be replaced by a copy
    if (!same || of_argument != shows_argument(body, call, id))
      differs(fmt::format("gives {} in another storage, or with other strides, than is expected",
                          text_of(layout.sizes, type)));
    return;
  }
  const auto bytes = static_cast<int64_t>(given.storage().nbytes());
  if (same && !of_argument && given.storage_offset() == layout.offset && bytes == storage.bytes) return;
  out.otherwise.back() = GivenTensor{layout_of(given), bytes};
}

TriedCall try_with(const ChunkIr& body, const Call& call, const OperatorTable& table, Trial trial, c10::Device device,
                   int64_t part = 0) {
  TriedCall out;
  const c10::OperatorHandle& op = table.operators[call.op.index()];
  Stack stack = arguments_for(body, call, table, trial, device, part);
  const Stack kept = stack;  // arguments stay alive, as they do when a chunk runs
  if (!device.is_cpu()) {    // what libraries of GPUs take for themselves at their first call is no part of it
    op.callBoxed(&stack);
    stack = kept;
  }
  {
    const MemoryMeter meter(device.type());
    op.callBoxed(&stack);
    out.peak = meter.peak();
  }
  each_result(call, [&](size_t i, size_t j, TensorId id) {
    out.otherwise.emplace_back();
    if (!id.valid()) return;
    const at::Tensor given = stack[i].isTensorList() ? stack[i].toTensorList().get(j) : stack[i].toTensor();
    compare(body, call, id, given, given.defined() && has_storage_of(kept, given), out);
  });
  return out;
}

/// What ChunkRunner takes to draw values: a new tensor is filled, and where every value has its own probability there
/// are random numbers to compare with.
int64_t bytes_to_draw(const ChunkIr& body, const Call& call, const c10::OperatorHandle& op) {
  const TensorLayout& drawn = body[std::get<TensorId>(call.results[0])].layout;
  int64_t bytes =
      call.writes.empty() ? body.storages[body[std::get<TensorId>(call.results[0])].storage.index()].bytes : 0;
  if (const auto by = drawn_by(op, call.arguments); by->probabilities >= 0)
    bytes += element_count(drawn) * (static_cast<int64_t>(sizeof(double)) + 1);
  return bytes;
}

/// Where PyTorch has no rule for the sizes of results they come from a run on zeros, so they may be those of zeros.
/// With one tensor that is seen on other values; with more, values may be places in another one, which nobody checks.
std::string depends_on_values(const ChunkIr& body, const Call& call, const OperatorTable& table, c10::Device device) {
  const c10::OperatorHandle& op = table.operators[call.op.index()];
  for (const auto key :
       {c10::DispatchKey::Meta, c10::DispatchKey::CompositeImplicitAutograd,
        c10::DispatchKey::CompositeExplicitAutograd, c10::DispatchKey::CompositeExplicitAutogradNonFunctional})
    if (op.hasKernelForDispatchKey(key)) return {};
  int tensors = 0;
  each_tensor(call.arguments, [&](TensorId id) { tensors += id.valid(); });
  if (tensors != 1) return {};
  try {
    return try_with(body, call, table, Trial::Distinct, device).problem;
  } catch (const c10::Error&) {
    return {};  // it wants other values
  }
}

/// What it takes grows or falls from the first part to the last.
bool depends_on_part(const Call& call) {
  return std::ranges::any_of(call.arguments,
                             [](const Argument& argument) { return std::holds_alternative<PartStart>(argument); });
}

TriedCall try_call(const ChunkIr& body, const Call& call, const OperatorTable& table, c10::Device device) {
  TriedCall out;
  if (call.random >= 0) {  // is not made
    out.peak = bytes_to_draw(body, call, table.operators[call.op.index()]);
    return out;
  }
  for (const Trial trial : {Trial::Zeros, Trial::Identities}) {
    try {
      out = try_with(body, call, table, trial, device);
      if (count_parts(body) > 1 && depends_on_part(call))
        out.peak = std::max(out.peak, try_with(body, call, table, trial, device, count_parts(body) - 1).peak);
      if (out.problem.empty()) out.problem = depends_on_values(body, call, table, device);
      return out;
    } catch (const c10::Error& failure) {
      if (out.problem.empty()) out.problem = fmt::format("cannot be tried: {}", failure.what_without_backtrace());
    }
  }
  return out;
}

}  // namespace

const TriedCall& TriedCalls::find(const ChunkIr& body, const Call& call, const OperatorTable& table) {
  const std::lock_guard lock(mutex_);
  const auto [found, fresh] = known_.try_emplace(signature(body, call, table));
  if (fresh) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    found->second = try_call(body, call, table, device_);
  }
  return found->second;
}

std::vector<int64_t> TriedCalls::peaks(const ChunkIr& body, const OperatorTable& table) {
  std::vector<int64_t> out;
  for (const Call& call : body.calls)
    out.push_back(call.op.valid() ? find(body, call, table).peak : 0);  // a view takes nothing
  return out;
}

}  // namespace piper
