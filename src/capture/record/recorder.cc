#include "capture/record/recorder.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/record_function.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/library.h>

#include "capture/loss/logits_operators.h"
#include "capture/program/lay_out_results.h"
#include "capture/record/call_recorder.h"
#include "capture/record/gradient_hooks.h"
#include "capture/record/origin.h"
#include "capture/sharding/part_operators.h"
#include "kernels/run_kernel.h"

namespace piper {
namespace {

thread_local Recorder* recorder = nullptr;

void on_call(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
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
                  if (recorder) recorder->position().enter_node(function.seqNr());
                  return nullptr;
                },
                [](const at::RecordFunction&, at::ObserverContext*) {
                  if (recorder) recorder->position().leave_node();
                })
                .scopes({at::RecordScope::BACKWARD_FUNCTION}))) {}
  ~ListenToNodes() { at::removeCallback(handle_); }
  ListenToNodes(const ListenToNodes&) = delete;
  ListenToNodes& operator=(const ListenToNodes&) = delete;

 private:
  at::CallbackHandle handle_;
};

/// While it lives, operators of this thread compute on values, and nobody writes them down.
struct WithNumbers {
  const c10::impl::ExcludeDispatchKeyGuard off{python_keys.add(capture_key)};
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
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

Checked check_metric(const NamedTensor& metric) {
  if (metric.tensor.defined() && metric.tensor.dim() <= 1 && !metric.tensor.is_complex()) return Ok{};
  return error(ErrorCode::E605, {}, fmt::format("metric {} must be one number", metric.name))
      .help("report a mean over the slice, such as accuracy.mean()");
}

/// The loss with the metrics behind it, and the numbers of the samples behind those, in one tensor: made where the loss
/// is.
Result<at::Tensor> with_metrics(Recorder& to, const at::Tensor& loss, const std::vector<NamedTensor>& metrics,
                                const at::Tensor& of_samples) {
  std::vector<at::Tensor> numbers = {loss.detach()}, lists;
  std::vector<std::string> of_lists;
  const size_t before = to.graph.calls.size();
  for (const NamedTensor& metric : metrics) {
    PIPER_CHECK(check_metric(metric));
    const at::Tensor value = metric.tensor.detach().to(loss.scalar_type());
    if (value.dim() == 0) {
      numbers.push_back(value);
      to.graph.metrics.push_back(metric.name);
      continue;
    }
    lists.push_back(value);
    for (int64_t i = 0; i < value.size(0); ++i) of_lists.push_back(fmt::format("{}.{}", metric.name, i));
  }
  to.graph.metrics.insert(to.graph.metrics.end(), of_lists.begin(), of_lists.end());
  if (of_samples.defined() && !lists.empty()) lists.push_back(of_samples.detach().to(loss.scalar_type()).flatten());
  if (of_samples.defined() && lists.empty())
    for (const at::Tensor& number : of_samples.detach().to(loss.scalar_type()).flatten().unbind())
      numbers.push_back(number);
  at::Tensor all = at::stack(numbers);
  if (!lists.empty()) {
    lists.insert(lists.begin(), all);
    all = at::cat(lists);
  }
  const CallId producer = to.graph[to.lookup(loss)].producer;
  for (size_t c = before; producer.valid() && c < to.graph.calls.size(); ++c)
    to.graph.calls[c].segment = to.graph[producer].segment;
  return all;
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
  for (const NamedTensor& original : model.originals) to.add_original(original.tensor, original.name);
  for (const NamedTensor& input : inputs) {
    to.graph.inputs.push_back(to.add_external(input.tensor, TensorKind::Input, input.name));
    batch.push_back(input.tensor);
  }
  const CaptureMode mode(to);
  at::Tensor loss = model.loss(batch);
  PIPER_CHECK(check_loss(to, loss));
  PIPER_CHECK(check_hooks(loss, model));
  to.graph.loss = to.lookup(loss);
  if (const GraphTensor& seen = to.graph[to.graph.loss];
      seen.kind != TensorKind::Result || to.graph[seen.storage].base != to.graph.loss) {
    loss = loss.clone();  // a number of its own, not a part of something
    to.graph.loss = to.lookup(loss);
  }
  at::Tensor reported;
  const auto metrics = model.metrics ? model.metrics() : std::vector<NamedTensor>();
  const at::Tensor of_samples = model.of_samples ? model.of_samples() : at::Tensor();
  if (!metrics.empty() || of_samples.defined()) {
    PIPER_TRY(reported, with_metrics(to, loss, metrics, of_samples));
    to.graph.loss = to.lookup(reported);
    to.graph.reports = true;
  }
  const ListenToNodes nodes;
  to.position().start_backward();
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

bool is_recording() {
  return recorder != nullptr;
}

std::optional<double> fixed_number(const at::Tensor& tensor) {
  invariant(recorder, "asked while a model is recorded");
  const TensorId id = recorder->lookup(tensor);
  const WithNumbers real;
  const auto found = fixed_values(recorder->graph, recorder->table, id);
  return found ? std::optional(found->to(at::kDouble).item<double>()) : std::nullopt;
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
    {"aten::_scaled_mm", ""},
    {"aten::abs", ""},
    {"aten::amax", ""},
    {"aten::ceil", ""},
    {"aten::clamp", ""},
    {"aten::clamp_min", ""},
    {"aten::div", "Scalar"},
    {"aten::div", "Tensor"},
    {"aten::eq", "Scalar"},
    {"aten::exp", ""},
    {"aten::exp2", ""},
    {"aten::exp_", ""},
    {"aten::log", ""},
    {"aten::log2", ""},
    {"aten::masked_fill", "Scalar"},
    {"aten::mean", ""},
    {"aten::mul", "Tensor"},
    {"aten::mul_", "Tensor"},
    {"aten::ne", "Scalar"},
    {"aten::neg", ""},
    {"aten::slice", "Tensor"},
    {"aten::sub", "Tensor"},
    {"aten::sub_", "Tensor"},
    {"aten::sum", ""},
    {"aten::sum", "dim_IntList"},
    {"aten::t", ""},
    {"aten::unsqueeze", ""},
    {"piper::add_to_each", ""},
    {"piper::add_sum_of_rows", ""},
    {"piper::lay_out", ""},
    {"piper::context_attention", ""},
    {"piper::context_attention_backward", ""},
    {"piper::heads_attention", ""},
    {"piper::heads_attention_backward", ""},
    {"piper::repeat_heads", ""},
    {"piper::add_repeated", ""},
    {"piper::counted_share", ""},
    {"piper::local_slice", ""},
    {"piper::local_slice_backward", ""},
    {"piper::logits_in_blocks", ""},
    {"piper::logits_in_blocks_backward", ""},
    {"piper::logits_in_blocks_backward_add", ""},
    {"piper::logits_in_blocks_max", ""},
    {"piper::logits_in_blocks_sum", ""},
    {"piper::run_kernel", ""},
    {"piper::take_columns", ""},
    {"piper::times_parts", ""},
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
  provide_context_operators();
  provide_lay_out();
  provide_logits_operators();
  provide_run_kernel();
  for (const auto& [name, overload] : put_in_later) to.intern(name, overload);
  return Recording{std::move(to.graph), std::move(to.table)};
}

Result<std::shared_ptr<const Recording>> Recordings::find_or_record(const MetaModel& model,
                                                                    const std::vector<NamedTensor>& inputs,
                                                                    c10::DeviceType target) {
  std::string key = c10::DeviceTypeName(target) + (model.version ? model.version() : "");
  for (const auto& [name, tensor] : inputs)
    key += fmt::format("; {} {} {}", name, c10::toString(tensor.scalar_type()), tensor.sizes().vec());
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = known_.find(key); found != known_.end()) return found->second;
  }
  PIPER_TRY(Recording recording, record(model, inputs, target));
  const std::lock_guard lock(mutex_);
  return known_[key] = std::make_shared<const Recording>(std::move(recording));
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
