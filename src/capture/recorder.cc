#include "capture/recorder.h"

#include <ATen/SequenceNumber.h>
#include <ATen/ops/ones.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/library.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "capture/gpu_calls.h"
#include "capture/part_operators.h"
#include "capture/shape_rules.h"

namespace piper {
namespace {

using c10::IValue;
using torch::jit::Stack;

/// Where the recorder sits: below autograd, above every backend. libtorch 2.11 does not use this key.
constexpr c10::DispatchKey capture_key = c10::DispatchKey::Fake;
constexpr c10::DispatchKeySet below_capture(c10::DispatchKeySet::FULL_AFTER, capture_key);
/// Without them nothing is fake.
constexpr c10::DispatchKeySet python_keys({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot});

/// What the recorder asks about an operator, found once.
struct OperatorFacts {
  OperatorId id;
  ShapeRule rule = nullptr;
  bool decomposes = false;      // into operators that are recorded instead
  bool data_dependent = false;  // what it returns, or its shape, depends on numbers
  int device = -1;              // index of the argument
  std::vector<char> writes;     // by argument
};

template <class F>
void each_tensor_of(const IValue& value, F f) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) f(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector())
      if (tensor.defined()) f(tensor);
  } else if (value.isOptionalTensorList()) {
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
      if (tensor && tensor->defined()) f(*tensor);
  }
}

class Recorder : public ScopeListener {
 public:
  explicit Recorder(c10::Device device = c10::kMeta, c10::DeviceType target = c10::kCPU) : device_(device) {
    table.target = target;
    begin_segment(ScopeId());
  }

  void enter(std::string_view name, const ScopeAttributes& attributes) override {
    const int index = instances_[{scope_.value, std::string(name)}]++;
    graph.scopes.push_back({scope_, std::string(name), index, attributes});
    scope_ = ScopeId(graph.scopes.size() - 1);
    begin_segment(scope_);
  }
  void leave() override {
    scope_ = graph[scope_].parent;
    begin_segment(scope_);
  }

  TensorId add_external(const at::Tensor& tensor, TensorKind kind, std::string name) {
    const TensorId id = add_tensor(tensor, kind, CallId());
    graph.tensors[id.index()].name = std::move(name);
    return id;
  }

  void start_backward() {
    backward_ = true;
    backward_segment_ = graph.calls.empty() ? 0 : graph.calls.back().segment;  // where the loss was computed
  }
  /// A node of the autograd graph starts: what it calls belongs to the segment that made it.
  void enter_node(int64_t sequence) {
    in_node_ = true;
    const auto after =
        std::upper_bound(first_sequence_.begin(), first_sequence_.end(), static_cast<uint64_t>(sequence));
    backward_segment_ = std::max<int>(0, static_cast<int>(after - first_sequence_.begin()) - 1);
    // a node is made just before the call that it belongs to
    const auto made = std::upper_bound(call_sequence_.begin(), call_sequence_.end(), static_cast<uint64_t>(sequence));
    forward_call_ =
        call_sequence_.empty()
            ? CallId()
            : CallId(std::min<size_t>(static_cast<size_t>(made - call_sequence_.begin()), call_sequence_.size() - 1));
  }
  void leave_node() { in_node_ = false; }

  /// The tensor as the graph knows it; numbers the model wrote down become constants.
  TensorId lookup(const at::Tensor& tensor) {
    c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
    if (const auto found = storage_ids_.find(storage); found != storage_ids_.end()) {
      const std::vector<TensorId>& known = tensors_of_[found->second.index()];
      for (auto id = known.rbegin(); id != known.rend(); ++id)
        if (same_layout(graph[*id].layout, tensor) && (is_traced(tensor) || version_[*id] == tensor._version()))
          return *id;
      if (is_traced(tensor)) refuse_unknown("shows a tensor in a way that no operator made");
    } else if (is_traced(tensor) || tensor.is_meta()) {
      refuse_unknown("uses a tensor that is no parameter, buffer or input and was not made in this forward pass");
    }
    const TensorId id = add_tensor(tensor, TensorKind::Constant, CallId());
    version_[id] = tensor._version();
    const c10::impl::ExcludeDispatchKeyGuard real(python_keys);
    at::Tensor copy = tensor.detach().clone();
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) copy.unsafeGetTensorImpl()->set_wrapped_number(true);
    graph.tensors[id.index()].constant = static_cast<int>(table.constants.size());
    table.constants.push_back(std::move(copy));
    return id;
  }

  void record(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack& stack) {
    if (running_) return op.redispatchBoxed(keys & below_capture, &stack);  // a part of a recorded call
    failed_at_.clear();                                                     // the model goes on
    if (device_.is_cuda() && rewrite_gpu_call(op, stack)) return;
    const OperatorFacts& facts = facts_of(op);
    if (facts.decomposes) return op.redispatchBoxed(keys & below_capture, &stack);
    const size_t count = op.schema().arguments().size(), base = stack.size() - count;
    const c10::impl::ExcludeDispatchKeyGuard off(capture_key);
    if (touches_traced(facts, stack, base)) {
      if (answered_by_identity(op, stack, base)) return;
      if (facts.data_dependent && !is_fake() && !is_plain_index(op, stack, base)) refuse_data_dependent(op);
      Call call = describe(op, facts, stack, base);
      run_for_shapes(op, facts, keys, stack);
      if (device_.is_cuda() && graph[call.op].random && drops_nothing(call)) forget_random_state(op, stack);
      return add(op, std::move(call), stack);
    }
    if (!is_fake()) return op.redispatchBoxed(keys & below_capture, &stack);  // numbers the model writes down
    if (changes_numbers(facts, stack, base)) refuse_foreign_change();
    Stack given(stack.begin() + static_cast<long>(base), stack.end());
    run_for_shapes(op, facts, keys, stack);
    if (!has_traced(stack, stack.size() - op.schema().returns().size())) return;
    add(op, describe(op, facts, given, 0), stack);  // it makes a fake tensor of nothing, or of numbers
  }

  /// An operator that passes themselves put into graphs.
  OperatorId intern(const char* name, const char* overload) {
    return facts_of(c10::Dispatcher::singleton().findSchemaOrThrow(name, overload)).id;
  }

  void note_failure() {
    if (failed_at_.empty()) failed_at_ = where();
  }
  [[noreturn]] void refuse(Diagnostic problem) {
    refused = problem;
    throw Refused(std::move(problem));
  }

  /// Where the model is, or where it was when an operator failed.
  std::string where() const {
    if (!failed_at_.empty()) return failed_at_;
    const int segment = backward_ ? backward_segment_ : static_cast<int>(graph.segments.size()) - 1;
    const ScopeId scope = graph.segments[static_cast<size_t>(segment)].scope;
    return fmt::format("{}, {}", scope_name(graph, scope), backward_ ? "backward" : "forward");
  }

  OperatorGraph graph;
  OperatorTable table;
  bool allow_any_random = false;      // building a model draws its first weights
  std::optional<Diagnostic> refused;  // kept: other languages make other exceptions of it

 private:
  void begin_segment(ScopeId scope) {
    graph.segments.push_back({scope});
    first_sequence_.push_back(at::sequence_number::peek());
  }

  static bool same_layout(const TensorLayout& layout, const at::Tensor& tensor) {
    return layout.offset == tensor.storage_offset() && layout.element == static_cast<int8_t>(tensor.scalar_type()) &&
           tensor.sizes() == c10::IntArrayRef(layout.sizes) && tensor.strides() == c10::IntArrayRef(layout.strides);
  }

  TensorId add_tensor(const at::Tensor& tensor, TensorKind kind, CallId producer) {
    const TensorId id(graph.tensors.size());
    const auto [found, fresh] =
        storage_ids_.try_emplace(tensor.storage().unsafeGetStorageImpl(), StorageId(graph.storages.size()));
    if (fresh) {
      graph.storages.push_back({static_cast<int64_t>(tensor.storage().nbytes()), id});
      tensors_of_.emplace_back();
      kept_.push_back(tensor.storage());
    }
    graph.tensors.push_back({kind, found->second, layout_of(tensor), producer, "", -1});
    tensors_of_[found->second.index()].push_back(id);
    return id;
  }

  const OperatorFacts& facts_of(const c10::OperatorHandle& op) {
    const auto [found, fresh] = facts_.try_emplace(&op.schema());
    OperatorFacts& facts = found->second;
    if (!fresh) return facts;
    Operator described;
    described.name = full_name(op);
    described.pointwise = op.hasTag(at::Tag::pointwise);
    described.random = op.hasTag(at::Tag::nondeterministic_seeded);
    const auto& arguments = op.schema().arguments();
    for (size_t i = 0; i < arguments.size(); ++i) {
      described.arguments.push_back(arguments[i].name());
      if (arguments[i].name() == "device") facts.device = static_cast<int>(i);
      const auto* alias = arguments[i].alias_info();
      facts.writes.push_back(alias && alias->isWrite());
    }
    if (!is_fake()) facts.rule = shape_rule(described.name, table.target);
    facts.decomposes = !facts.rule && op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
                       !op.hasKernelForDispatchKey(c10::DispatchKey::Meta) && !runs_as_one(op);
    facts.data_dependent = op.hasTag(at::Tag::data_dependent_output) || op.hasTag(at::Tag::dynamic_output_shape);
    facts.id = OperatorId(graph.operators.size());
    graph.operators.push_back(std::move(described));
    table.operators.push_back(op);
    return facts;
  }

  /// A GPU has a kernel for what is several operators elsewhere: fused norms.
  bool runs_as_one(const c10::OperatorHandle& op) const {
    return device_.is_cuda() && op.hasKernelForDispatchKey(c10::DispatchKey::CUDA);
  }

  bool is_fake() const { return !device_.is_meta(); }
  /// Has no numbers, only a shape.
  bool is_traced(const at::Tensor& tensor) const {
    return is_fake() ? tensor.key_set().has(c10::DispatchKey::Python) : tensor.is_meta();
  }
  bool has_traced(const Stack& stack, size_t from) const {
    bool any = false;
    for (size_t i = from; i < stack.size(); ++i)
      each_tensor_of(stack[i], [&](const at::Tensor& tensor) { any |= is_traced(tensor); });
    return any;
  }

  /// Whether the call is about tensors without numbers. On meta, factories without a device are.
  bool touches_traced(const OperatorFacts& facts, Stack& stack, size_t base) const {
    if (has_traced(stack, base)) return true;
    if (is_fake() || facts.device < 0) return false;
    bool any = false;
    for (size_t i = base; i < stack.size(); ++i) each_tensor_of(stack[i], [&](const at::Tensor&) { any = true; });
    IValue& device = stack[base + static_cast<size_t>(facts.device)];
    if (device.isNone() && !any) device = c10::Device(c10::kMeta);
    return device.isDevice() && device.toDevice().is_meta();
  }

  /// A tensor with numbers would be changed for good, while everything else is fake.
  static bool changes_numbers(const OperatorFacts& facts, const Stack& stack, size_t base) {
    if (c10::impl::tls_local_dispatch_key_set().excluded_.has(c10::DispatchKey::Python)) return false;
    bool any = false;
    for (size_t i = base; i < stack.size(); ++i)
      if (facts.writes[i - base]) each_tensor_of(stack[i], [&](const at::Tensor& tensor) { any |= !tensor.is_meta(); });
    return any;
  }

  Call describe(const c10::OperatorHandle& op, const OperatorFacts& facts, const Stack& stack, size_t base) {
    Call call;
    call.op = facts.id;
    const size_t count = stack.size() - base;
    call.arguments.reserve(count);
    for (size_t i = 0; i < count; ++i) call.arguments.push_back(to_argument(stack[base + i]));
    tag(call);
    for (size_t i = 0; i < count; ++i)
      if (facts.writes[i])
        each_tensor(call.arguments[i], [&](TensorId id) {
          if (graph[id].kind == TensorKind::Constant) refuse_foreign_change();
          call.writes.push_back(graph[id].storage);
        });
    if (graph[call.op].random && !drops_nothing(call)) make_reproducible(op, call);
    if (is_lift(op)) call.op = intern("aten::lift_fresh_copy", "");  // so that nobody writes to the constant
    return call;
  }
  static bool is_lift(const c10::OperatorHandle& op) {
    return op.operator_name().name == "aten::lift_fresh" || op.operator_name().name == "aten::lift";
  }

  /// `equal` of a tensor with itself is true whatever its numbers.
  bool answered_by_identity(const c10::OperatorHandle& op, Stack& stack, size_t base) {
    if (op.operator_name().name != "aten::equal") return false;
    const at::Tensor &a = stack[base].toTensor(), &b = stack[base + 1].toTensor();
    if (lookup(a) != lookup(b)) return false;
    stack.resize(base);
    stack.emplace_back(true);
    return true;
  }

  /// Indexing by numbers has a shape that does not depend on them; by a mask it does.
  static bool is_plain_index(const c10::OperatorHandle& op, const Stack& stack, size_t base) {
    if (op.operator_name().name != "aten::index") return false;
    bool plain = true;
    each_tensor_of(stack[base + 1], [&](const at::Tensor& index) {
      plain &= index.scalar_type() != at::kBool && index.scalar_type() != at::kByte;
    });
    return plain;
  }

  Argument to_argument(const IValue& value) {
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

  void tag(Call& call) {
    call.backward = backward_;
    call.segment = backward_ ? backward_segment_ : static_cast<int>(graph.segments.size()) - 1;
    call.between_nodes = backward_ && !in_node_;
    if (backward_)
      call.forward = forward_call_;
    else
      call_sequence_.push_back(at::sequence_number::peek());
  }

  void run_for_shapes(const c10::OperatorHandle& op, const OperatorFacts& facts, c10::DispatchKeySet keys,
                      Stack& stack) {
    if (facts.rule) return facts.rule(op, stack);
    const Running running(running_);
    try {
      op.redispatchBoxed(keys & below_capture, &stack);
      if (is_fake()) mend_shapes(op, stack);
    } catch (const c10::NotImplementedError&) {
      refuse(error(ErrorCode::E602, {}, fmt::format("{}: no shape rule for {}", where(), full_name(op)))
                 .help("capture runs the model without numbers; this operator does not say there how large its "
                       "results are")
                 .help("write it with other operators, or add a rule to src/capture/shape_rules.cc"));
    } catch (...) {
      failed_at_ = where();  // scopes are left before anybody hears of it
      if (is_fake() && facts.data_dependent) refuse_data_dependent(op);
      throw;
    }
  }

  /// Where fake tensors are not what the kernel returns: PyTorch 2.11 thinks that attention always sums in float32.
  static void mend_shapes(const c10::OperatorHandle& op, Stack& stack) {
    if (op.operator_name().name != "aten::_scaled_dot_product_flash_attention_for_cpu") return;
    const c10::ScalarType computed = stack[stack.size() - 2].toTensor().scalar_type();
    if (computed == at::kDouble) stack.back() = stack.back().toTensor().to(computed);
  }

  void add(const c10::OperatorHandle& op, Call call, const Stack& stack) {
    add_results(op, call, stack);
    const auto makes = [](const Argument& result) { return !std::holds_alternative<None>(result); };
    if (call.writes.empty() && std::none_of(call.results.begin(), call.results.end(), makes)) return;  // only asks
    graph.calls.push_back(std::move(call));
  }

  void add_results(const c10::OperatorHandle& op, Call& call, const Stack& stack) {
    const auto& returns = op.schema().returns();
    const CallId id(graph.calls.size());
    for (size_t i = 0; i < returns.size(); ++i) {
      const IValue& value = stack[stack.size() - returns.size() + i];
      const bool in_place = returns[i].alias_info() && returns[i].alias_info()->isWrite();
      const auto result = [&](const at::Tensor& tensor) {
        if (!tensor.defined()) return TensorId();
        return in_place ? lookup(tensor) : add_result(tensor, id);
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

  /// A view that was made before is the same tensor.
  TensorId add_result(const at::Tensor& tensor, CallId producer) {
    const auto found = storage_ids_.find(tensor.storage().unsafeGetStorageImpl());
    if (found != storage_ids_.end())
      for (const TensorId id : tensors_of_[found->second.index()])
        if (same_layout(graph[id].layout, tensor)) return id;
    return add_tensor(tensor, TensorKind::Result, producer);
  }

  /// Fused attention counts as random even where it is told to drop nothing.
  bool drops_nothing(const Call& call) const {
    const std::vector<std::string>& names = graph[call.op].arguments;
    const auto found = std::find(names.begin(), names.end(), "dropout_p");
    if (found == names.end()) return false;
    const double* const rate = std::get_if<double>(&call.arguments[static_cast<size_t>(found - names.begin())]);
    return rate && *rate == 0;
  }

  /// A random call is numbered, and drawn from a generator of its own when it runs.
  void make_reproducible(const c10::OperatorHandle& op, Call& call) {
    call.random = random_calls_++;
    const std::vector<std::string> names = graph[call.op].arguments;
    if (std::find(names.begin(), names.end(), "generator") != names.end()) return;
    const auto with = c10::Dispatcher::singleton().findSchema({op.operator_name().name, "generator"});
    if (!with) {
      if (allow_any_random) return;
      refuse(error(ErrorCode::E603, {},
                   fmt::format("{}: {} draws random numbers that cannot be seeded", where(), full_name(op)))
                 .help("use an operator that takes a generator: torch::dropout, bernoulli, rand, randn, normal"));
    }
    const OperatorId id = facts_of(*with).id;
    std::vector<Argument> arguments;
    for (const std::string& name : graph[id].arguments) {
      const auto own = std::find(names.begin(), names.end(), name);
      arguments.push_back(own == names.end() ? Argument(None{})
                                             : call.arguments[static_cast<size_t>(own - names.begin())]);
    }
    call.op = id;
    call.arguments = std::move(arguments);
  }

  [[noreturn]] void refuse_data_dependent(const c10::OperatorHandle& op) {
    refuse(
        error(ErrorCode::E601, {},
              fmt::format("{}: {} depends on numbers that are known only when the model runs", where(), full_name(op)))
            .help("capture runs the model once without numbers; what it computes may depend on shapes only")
            .help(
                "instead of a branch on item(): torch::where on both results; instead of a mask as index or nonzero(): "
                "multiply by the mask, or use a fixed number of slots"));
  }
  [[noreturn]] void refuse_foreign_change() {
    refuse_unknown("changes a tensor that is no parameter or buffer and was not made in this forward pass");
  }
  [[noreturn]] void refuse_unknown(std::string_view what) {
    refuse(error(ErrorCode::E604, {}, fmt::format("{}: the model {}", where(), what))
               .help("make it in forward, or register it: register_parameter, register_buffer"));
  }

  /// While it lives, calls belong to one that is being recorded.
  struct Running {
    explicit Running(bool& set) : flag(set) { flag = true; }
    ~Running() { flag = false; }
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;
    bool& flag;
  };

  const c10::Device device_;  // of tensors without numbers
  bool running_ = false;
  ScopeId scope_;
  std::map<std::pair<int32_t, std::string>, int> instances_;
  std::vector<uint64_t> first_sequence_;  // by segment: of the autograd nodes made in it
  std::unordered_map<const c10::FunctionSchema*, OperatorFacts> facts_;
  std::unordered_map<c10::StorageImpl*, StorageId> storage_ids_;
  std::vector<std::vector<TensorId>> tensors_of_;  // by storage
  std::unordered_map<TensorId, int64_t> version_;  // of constants: numbers that change are other numbers
  std::vector<c10::Storage> kept_;                 // so that no address is used twice
  bool backward_ = false, in_node_ = false;
  std::vector<uint64_t> call_sequence_;  // by forward call: of the next autograd node
  int backward_segment_ = 0;
  CallId forward_call_;
  int random_calls_ = 0;
  std::string failed_at_;
};

thread_local Recorder* recorder = nullptr;

void on_call(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  if (recorder) return recorder->record(op, keys, *stack);
  const c10::impl::ExcludeDispatchKeyGuard off(capture_key);
  op.redispatchBoxed(keys & below_capture, stack);
}

/// While it lives, operators called in this thread go to the recorder.
class CaptureMode {
 public:
  explicit CaptureMode(Recorder& to) : on_(capture_key), scopes_(to), previous_(std::exchange(recorder, &to)) {}
  ~CaptureMode() { recorder = previous_; }
  CaptureMode(const CaptureMode&) = delete;
  CaptureMode& operator=(const CaptureMode&) = delete;

 private:
  c10::impl::IncludeDispatchKeyGuard on_;
  ListenToScopes scopes_;
  Recorder* previous_;
};

/// While it lives, nodes of the autograd graph announce themselves to the recorder.
class ListenToNodes {
 public:
  ListenToNodes()
      : handle_(at::addThreadLocalCallback(
            at::RecordFunctionCallback(
                [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
                  if (recorder) recorder->enter_node(function.seqNr());
                  return nullptr;
                },
                [](const at::RecordFunction&, at::ObserverContext*) {
                  if (recorder) recorder->leave_node();
                })
                .scopes({at::RecordScope::BACKWARD_FUNCTION}))) {}
  ~ListenToNodes() { at::removeCallback(handle_); }
  ListenToNodes(const ListenToNodes&) = delete;
  ListenToNodes& operator=(const ListenToNodes&) = delete;

 private:
  at::CallbackHandle handle_;
};

/// What the user's code throws becomes a diagnostic.
Checked run_guarded(const Recorder& of, const std::function<Checked()>& body) {
  try {
    return body();
  } catch (const Refused& refused) {
    return refused.diagnostic;
  } catch (const InternalError&) {
    throw;
  } catch (const c10::Error& failure) {
    return error(ErrorCode::E605, {}, fmt::format("{}: {}", of.where(), failure.what_without_backtrace()))
        .help("the model's own code failed on meta tensors; does it run on the CPU with inputs of these shapes?");
  } catch (const std::exception& failure) {
    return error(ErrorCode::E605, {}, fmt::format("{}: {}", of.where(), failure.what()))
        .help("the model's own code failed on meta tensors; does it run on the CPU with inputs of these shapes?");
  }
}

Checked check_loss(const Recorder& of, const at::Tensor& loss) {
  if (!loss.defined() || loss.numel() != 1 || loss.dim() != 0 || !loss.is_floating_point())
    return error(ErrorCode::E605, {},
                 fmt::format("{}: the loss is {}, it must be one number", of.where(),
                             loss.defined() ? fmt::format("{} of shape [{}]", c10::toString(loss.scalar_type()),
                                                          fmt::join(loss.sizes(), ", "))
                                            : "undefined"))
        .help("return the mean over the slice: cross_entropy does so, or use loss.mean()");
  if (!loss.requires_grad())
    return error(ErrorCode::E605, {}, fmt::format("{}: the loss depends on no parameter", of.where()))
        .help("is it computed under NoGradGuard, or from detached tensors?");
  return Ok{};
}

Checked record_step(Recorder& to, const MetaModel& model, const std::vector<NamedTensor>& inputs) {
  std::vector<at::Tensor> batch, wanted;
  std::vector<TensorId> wanted_ids;
  for (const NamedTensor& parameter : model.parameters) {
    const TensorId id = to.add_external(parameter.tensor, TensorKind::Parameter, parameter.name);
    if (!parameter.tensor.requires_grad()) continue;
    wanted.push_back(parameter.tensor);
    wanted_ids.push_back(id);
  }
  for (const NamedTensor& buffer : model.buffers) to.add_external(buffer.tensor, TensorKind::Buffer, buffer.name);
  for (const NamedTensor& input : inputs) {
    to.graph.inputs.push_back(to.add_external(input.tensor, TensorKind::Input, input.name));
    batch.push_back(input.tensor);
  }
  const CaptureMode mode(to);
  at::Tensor loss = model.loss(batch);
  PIPER_CHECK(check_loss(to, loss));
  to.graph.loss = to.lookup(loss);
  if (const GraphTensor& seen = to.graph[to.graph.loss];
      seen.kind != TensorKind::Result || to.graph[seen.storage].base != to.graph.loss) {
    loss = loss.clone();  // a number of its own, not a part of something
    to.graph.loss = to.lookup(loss);
  }
  const ListenToNodes nodes;
  to.start_backward();
  const at::Tensor one = at::ones({}, loss.options());
  const auto gradients = torch::autograd::grad({loss}, wanted, {one}, false, false, /*allow_unused=*/true);
  for (size_t i = 0; i < wanted.size(); ++i)
    if (gradients[i].defined()) to.graph.gradients.push_back({wanted_ids[i], to.lookup(gradients[i])});
  return Ok{};
}

}  // namespace

TORCH_LIBRARY_IMPL(_, Fake, m) {  // the key named by capture_key
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&on_call>());
}

void run_around(const MetaModel& model, const std::function<void()>& run) {
  model.around ? model.around(run) : run();
}

RecordingState recording_state() {
  invariant(recorder, "asked while a model is recorded");
  return {recorder->where(), recorder->refused};
}

void note_failure() {
  if (recorder) recorder->note_failure();
}

/// Operators that passes over the graph may use, whether the model does or not.
constexpr std::pair<const char*, const char*> put_in_later[] = {
    {"aten::clone", ""},
    {"aten::add_", "Tensor"},
    {"aten::mm", ""},
    {"aten::add", "Tensor"},
    {"aten::addmm", "dtype_out"},
    {"aten::addmm_", ""},
    {"aten::_to_copy", ""},
    {"aten::amax", ""},
    {"aten::div", "Tensor"},
    {"aten::eq", "Scalar"},
    {"aten::exp", ""},
    {"aten::exp_", ""},
    {"aten::log", ""},
    {"aten::masked_fill", "Scalar"},
    {"aten::mul_", "Tensor"},
    {"aten::ne", "Scalar"},
    {"aten::neg", ""},
    {"aten::sub", "Tensor"},
    {"aten::sub_", "Tensor"},
    {"aten::sum", ""},
    {"aten::sum", "dim_IntList"},
    {"aten::unsqueeze", ""},
    {"piper::add_to_each", ""},
    {"piper::add_sum_of_rows", ""},
    {"piper::take_columns", ""},
    {"piper::take_columns_backward", ""},
    {"piper::take_rows", ""},
    {"piper::take_rows_backward", ""},
};

Result<Recording> record(const MetaModel& model, const std::vector<NamedTensor>& inputs, c10::DeviceType target) {
  Recorder to(model.device, target);
  Checked recorded = Ok{};
  run_around(model, [&] { recorded = run_guarded(to, [&] { return record_step(to, model, inputs); }); });
  PIPER_CHECK(std::move(recorded));
  provide_part_operators();
  for (const auto& [name, overload] : put_in_later) to.intern(name, overload);
  return Recording{std::move(to.graph), std::move(to.table)};
}

Checked build_on_meta(const std::function<void()>& build) {
  Recorder discarded;
  discarded.allow_any_random = true;
  return run_guarded(discarded, [&]() -> Checked {
    const CaptureMode mode(discarded);
    build();
    return Ok{};
  });
}

}  // namespace piper
