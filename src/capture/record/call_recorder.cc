#include "capture/record/call_recorder.h"

#include <ATen/ops/_conj.h>
#include <ATen/ops/_conj_physical.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/neg.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <fmt/format.h>

#include <algorithm>

#include "capture/program/draws.h"
#include "capture/record/gpu_calls.h"
#include "capture/record/recorder.h"
#include "capture/record/rewritten_calls.h"
#include "capture/record/running_statistics.h"
#include "capture/record/stack_tensors.h"

namespace piper {
namespace {

using c10::IValue;
using torch::jit::Stack;

/// A tensor with values would be changed for good, while everything else is fake.
bool changes_values(const std::vector<char>& writes, const Stack& stack, size_t base) {
  if (c10::impl::tls_local_dispatch_key_set().excluded_.has(c10::DispatchKey::Python)) return false;
  bool any = false;
  for (size_t i = base; i < stack.size(); ++i)
    if (writes[i - base]) each_tensor_of(stack[i], [&](const at::Tensor& tensor) { any |= !tensor.is_meta(); });
  return any;
}

bool is_lift(const c10::OperatorHandle& op) {
  return op.operator_name().name == "aten::lift_fresh" || op.operator_name().name == "aten::lift";
}

/// Indexing by places has a shape that does not depend on them; by a mask it does.
bool is_plain_index(const c10::OperatorHandle& op, const Stack& stack, size_t base) {
  if (op.operator_name().name != "aten::index") return false;
  bool plain = true;
  each_tensor_of(stack[base + 1], [&](const at::Tensor& index) {
    plain &= index.scalar_type() != at::kBool && index.scalar_type() != at::kByte;
  });
  return plain;
}

/// Where fake tensors are not what the kernel returns: PyTorch 2.11 thinks that attention always sums in float32.
void mend_shapes(const c10::OperatorHandle& op, Stack& stack) {
  if (op.operator_name().name != "aten::_scaled_dot_product_flash_attention_for_cpu") return;
  const c10::ScalarType computed = stack[stack.size() - 2].toTensor().scalar_type();
  if (computed == at::kDouble) stack.back() = stack.back().toTensor().to(computed);
}

/// While it lives, calls belong to one that is being recorded.
struct Running {
  explicit Running(bool& set) : flag(set) { flag = true; }
  ~Running() { flag = false; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  bool& flag;
};

}  // namespace

Recorder::Recorder(c10::Device device, c10::DeviceType target)
    : position_(graph), operators_(graph, table, device), bounds_(graph), tensors_(graph), device_(device) {
  table.target = target;
}

TensorId Recorder::add_external(const at::Tensor& tensor, TensorKind kind, std::string name) {
  const TensorId id = tensors_.add(tensor, kind, CallId());
  graph.tensors[id.index()].name = std::move(name);
  return id;
}

void Recorder::add_original(const at::Tensor& tensor, std::string name) {
  if (tensor.has_storage() && tensor.numel() > 0)
    originals_.emplace(tensor.storage().unsafeGetStorageImpl(), std::move(name));
}

TensorId Recorder::lookup(const at::Tensor& tensor) {
  const bool traced = is_traced(tensor);
  if (traced && tensor.numel() == 0) return constant_without_elements(tensor);
  if (const auto known = tensors_.find(tensor, !traced)) return *known;
  if (tensors_.has_storage_of(tensor)) {
    if (traced) refuse_unknown("shows a tensor in a way that no operator made");
  } else if (traced || tensor.is_meta()) {
    refuse_unknown("uses a tensor that is no parameter, buffer or input and was not made in this forward pass");
  }
  if (const auto own =
          tensor.has_storage() ? originals_.find(tensor.storage().unsafeGetStorageImpl()) : originals_.end();
      own != originals_.end())
    refuse(error(ErrorCode::E604, {}, fmt::format("{}: {} is used past the module that has it", where(), own->second))
               .help("a variable or a closure holds the tensor itself; use it as an attribute of its module, so that "
                     "capture knows it"));
  return add_constant(tensor);
}

TensorId Recorder::constant_without_elements(const at::Tensor& tensor) {
  const auto [known, fresh] = without_elements_.try_emplace({tensor.scalar_type(), tensor.sizes().vec()});
  if (!fresh) return known->second;
  const c10::impl::ExcludeDispatchKeyGuard real(python_keys | c10::DispatchKeySet(capture_key));
  return known->second = add_constant(at::empty(tensor.sizes(), tensor.scalar_type()));
}

TensorId Recorder::add_constant(const at::Tensor& tensor) {
  const TensorId id = tensors_.add_constant(tensor);
  const c10::impl::ExcludeDispatchKeyGuard real(python_keys);
  at::Tensor copy = tensor.detach().clone();
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) copy.unsafeGetTensorImpl()->set_wrapped_number(true);
  graph.tensors[id.index()].constant = static_cast<int>(table.constants.size());
  table.constants.push_back(std::move(copy));
  return id;
}

void Recorder::record(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack& stack) {
  if (running_) return op.redispatchBoxed(keys & below_capture, &stack);  // a part of a recorded call
  failed_at_.clear();                                                     // the model goes on
  if (rewrite_dropout(op, stack)) return;
  if (device_.is_cuda()) complete_gpu_call(op, stack);
  const OperatorFacts& facts = operators_.facts(op);
  if (facts.decomposes) return op.redispatchBoxed(keys & below_capture, &stack);
  const size_t count = op.schema().arguments().size(), base = stack.size() - count;
  if (has_traced(stack, base) && rewrite_call(op, stack)) return;
  make_physical(facts, stack, base);
  const c10::impl::ExcludeDispatchKeyGuard off(capture_key);
  if (touches_traced(facts, stack, base)) {
    if (answered_by_identity(op, stack, base) || answered_by_bounds(op, stack, base)) return;
    if (facts.data_dependent && !is_fake() && !is_plain_index(op, stack, base)) refuse_data_dependent(op);
    Call call = describe(op, facts, stack, base);
    run_for_shapes(op, facts, keys, stack);
    if (device_.is_cuda() && graph[call.op].random && drops_nothing(call)) forget_random_state(op, stack);
    fill_storages(op, stack);
    return add(op, std::move(call), stack);
  }
  if (!is_fake()) return op.redispatchBoxed(keys & below_capture, &stack);  // values that the model states
  if (changes_values(facts.writes, stack, base)) refuse_foreign_change();
  Stack given(stack.begin() + static_cast<long>(base), stack.end());
  run_for_shapes(op, facts, keys, stack);
  if (!has_traced(stack, stack.size() - op.schema().returns().size())) return;
  fill_storages(op, stack);
  add(op, describe(op, facts, given, 0), stack);  // it makes a fake tensor of nothing, or of stated values
}

OperatorId Recorder::intern(const char* name, const char* overload) {
  return operators_.facts(c10::Dispatcher::singleton().findSchemaOrThrow(name, overload)).id;
}

void Recorder::note_failure() {
  if (failed_at_.empty()) failed_at_ = where();
}

void Recorder::refuse(Diagnostic problem) {
  refused = problem;
  throw Refused(std::move(problem));
}

std::string Recorder::where() const {
  return failed_at_.empty() ? position_.describe() : failed_at_;
}

bool Recorder::is_traced(const at::Tensor& tensor) const {
  return is_fake() ? tensor.key_set().has(c10::DispatchKey::Python) : tensor.is_meta();
}

bool Recorder::has_traced(const Stack& stack, size_t from) const {
  bool any = false;
  for (size_t i = from; i < stack.size(); ++i)
    each_tensor_of(stack[i], [&](const at::Tensor& tensor) { any |= is_traced(tensor); });
  return any;
}

bool Recorder::touches_traced(const OperatorFacts& facts, Stack& stack, size_t base) const {
  if (has_traced(stack, base)) return true;
  if (is_fake() || facts.device < 0) return false;
  bool any = false;
  for (size_t i = base; i < stack.size(); ++i) each_tensor_of(stack[i], [&](const at::Tensor&) { any = true; });
  IValue& device = stack[base + static_cast<size_t>(facts.device)];
  if (device.isNone() && !any) device = c10::Device(c10::kMeta);
  return device.isDevice() && device.toDevice().is_meta();
}

Call Recorder::describe(const c10::OperatorHandle& op, const OperatorFacts& facts, const Stack& stack, size_t base) {
  Call call;
  call.op = facts.id;
  const size_t count = stack.size() - base;
  call.arguments.reserve(count);
  for (size_t i = 0; i < count; ++i) call.arguments.push_back(to_argument(stack[base + i]));
  position_.tag(call);
  forget_unread_statistics(graph, call);
  const bool writes = facts.training < 0 || std::get<bool>(call.arguments[static_cast<size_t>(facts.training)]);
  for (size_t i = 0; i < count; ++i)
    if (facts.writes[i] && writes)
      each_tensor(call.arguments[i], [&](TensorId id) {
        if (element_count(graph[id].layout) == 0) return;
        if (graph[id].kind == TensorKind::Constant) refuse_foreign_change();
        call.writes.push_back(graph[id].storage);
      });
  if (graph[call.op].random && !drops_nothing(call)) make_reproducible(op, call);
  if (facts.shows_as.valid()) {
    call.op = facts.shows_as;
    call.writes.clear();
  }
  if (is_lift(op)) call.op = intern("aten::lift_fresh_copy", "");  // so that nobody writes to the constant
  return call;
}

bool Recorder::answered_by_identity(const c10::OperatorHandle& op, Stack& stack, size_t base) {
  if (op.operator_name().name != "aten::equal") return false;
  const at::Tensor &a = stack[base].toTensor(), &b = stack[base + 1].toTensor();
  if (lookup(a) != lookup(b)) return false;
  stack.resize(base);
  stack.emplace_back(true);
  return true;
}

bool Recorder::answered_by_bounds(const c10::OperatorHandle& op, Stack& stack, size_t base) {
  if (op.operator_name().name != "aten::_local_scalar_dense") return false;
  if (!bounds_.is_never_true(graph[lookup(stack[base].toTensor())].storage)) return false;
  stack.resize(base);
  stack.emplace_back(false);
  return true;
}

Argument Recorder::to_argument(const IValue& value) {
  if (value.isTensor()) return value.toTensor().defined() ? lookup(value.toTensor()) : TensorId();
  if (value.isNone()) return None{};
  if (value.isBool()) return value.toBool();
  if (value.isInt()) return value.toInt();
  if (value.isDouble()) return value.toDouble();
  if (value.isIntList()) return value.toIntVector();
  if (value.isTensorList()) {
    TensorList list;
    for (const at::Tensor& tensor : value.toTensorVector())
      list.tensors.push_back(tensor.defined() ? lookup(tensor) : TensorId());
    return list;
  }
  if (value.isOptionalTensorList()) {
    TensorList list;
    list.optional = true;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
      list.tensors.push_back(tensor && tensor->defined() ? lookup(*tensor) : TensorId());
    return list;
  }
  if (value.isBoolList()) {
    Bools bits;
    for (const bool bit : value.toBoolList()) bits.push_back(bit);
    return bits;
  }
  if (value.isDevice() && value.toDevice().type() == device_.type()) return TargetDevice{};
  table.opaque.push_back(value);
  return Opaque{static_cast<int>(table.opaque.size()) - 1};
}

void Recorder::run_for_shapes(const c10::OperatorHandle& op, const OperatorFacts& facts, c10::DispatchKeySet keys,
                              Stack& stack) {
  if (facts.rule) return facts.rule(op, stack);
  const Running running(running_);
  try {
    op.redispatchBoxed(keys & below_capture, &stack);
    if (is_fake()) mend_shapes(op, stack);
  } catch (const c10::NotImplementedError&) {
    refuse(error(ErrorCode::E602, {}, fmt::format("{}: no shape rule for {}", where(), full_name(op)))
               .help("capture runs the model on fake tensors; this operator does not say there how large its "
                     "results are")
               .help("write it with other operators, or add a rule to src/capture/record/shape_rules.cc"));
  } catch (...) {
    failed_at_ = where();  // scopes are left before anybody hears of it
    if (is_fake() && facts.data_dependent) refuse_data_dependent(op);
    throw;
  }
}

void Recorder::make_physical(const OperatorFacts& facts, Stack& stack, size_t base) {
  if (facts.view) return;
  const auto physical = [&](const at::Tensor& tensor, bool written) {
    if (!tensor.defined() || !is_traced(tensor) || (!tensor.is_conj() && !tensor.is_neg())) return tensor;
    if (written) refuse_unknown("writes to a conjugated or negated view");
    at::Tensor out = tensor;
    if (out.is_neg()) out = at::neg(at::_neg_view(out));
    if (out.is_conj()) out = at::_conj_physical(at::_conj(out));
    return out;
  };
  for (size_t i = base; i < stack.size(); ++i)
    replace_tensors(stack[i], [&](const at::Tensor& tensor) { return physical(tensor, facts.writes[i - base]); });
}

void Recorder::fill_storages(const c10::OperatorHandle& op, Stack& stack) {
  const auto& returns = op.schema().returns();
  const auto filled = [&](const at::Tensor& tensor) {
    if (!tensor.defined() || !is_traced(tensor) || is_whole(tensor) || tensors_.has_storage_of(tensor)) return tensor;
    const Running running(running_);
    return tensor.new_empty(tensor.sizes());
  };
  for (size_t i = 0; i < returns.size(); ++i)
    if (!returns[i].alias_info()) replace_tensors(stack[stack.size() - returns.size() + i], filled);
}

void Recorder::add(const c10::OperatorHandle& op, Call call, const Stack& stack) {
  add_results(op, call, stack);
  const auto makes = [&](const Argument& result) {
    bool any = false;
    each_tensor(result, [&](TensorId id) { any |= graph[id].kind != TensorKind::Constant; });
    return any;
  };
  if (call.writes.empty() && std::none_of(call.results.begin(), call.results.end(), makes)) return;      // only asks
  if (op.operator_name().name == "aten::_conj" || op.operator_name().name == "aten::_neg_view") return;  // only marks
  bounds_.note(call);
  position_.added(call);
  graph.calls.push_back(std::move(call));
}

void Recorder::add_results(const c10::OperatorHandle& op, Call& call, const Stack& stack) {
  const auto& returns = op.schema().returns();
  const bool shows = operators_.facts(op).shows_as.valid();
  const CallId id(graph.calls.size());
  for (size_t i = 0; i < returns.size(); ++i) {
    const IValue& value = stack[stack.size() - returns.size() + i];
    const bool in_place = returns[i].alias_info() && returns[i].alias_info()->isWrite() && !shows;
    const auto result = [&](const at::Tensor& tensor) {
      if (!tensor.defined()) return TensorId();
      return in_place ? lookup(tensor) : tensors_.add_result(tensor, id);
    };
    if (value.isTensor()) {
      call.results.emplace_back(result(value.toTensor()));
    } else if (value.isTensorList()) {
      TensorList list;
      for (const at::Tensor& tensor : value.toTensorVector()) list.tensors.push_back(result(tensor));
      call.results.emplace_back(std::move(list));
    } else {
      call.results.emplace_back(None{});  // numbers about shapes: already in the calls that use them
    }
  }
}

bool Recorder::drops_nothing(const Call& call) const {
  const std::vector<std::string>& names = graph[call.op].arguments;
  const auto found = std::find(names.begin(), names.end(), "dropout_p");
  if (found == names.end()) return false;
  const double* const rate = std::get_if<double>(&call.arguments[static_cast<size_t>(found - names.begin())]);
  return rate && *rate == 0;
}

void Recorder::make_reproducible(const c10::OperatorHandle& op, Call& call) {
  call.random = random_calls_++;
  if (allow_any_random || drawn_by(op, call.arguments)) return;
  refuse(error(ErrorCode::E603, {},
               fmt::format("{}: {} draws random numbers that would depend on the plan", where(), full_name(op)))
             .help("use operators whose random numbers are independent: " + drawn_operators()));
}

void Recorder::refuse_data_dependent(const c10::OperatorHandle& op) {
  refuse(error(ErrorCode::E601, {},
               fmt::format("{}: {} depends on values that are known only when the model runs", where(), full_name(op)))
             .help("capture runs the model once on fake tensors; what it computes may depend on shapes only")
             .help(std::string(instead_of(op))));
}

void Recorder::refuse_foreign_change() {
  refuse_unknown("changes a tensor that is no parameter or buffer and was not made in this forward pass");
}

void Recorder::refuse_unknown(std::string_view what) {
  refuse(error(ErrorCode::E604, {}, fmt::format("{}: the model {}", where(), what))
             .help("make it in forward, or register it: register_parameter, register_buffer"));
}

}  // namespace piper
