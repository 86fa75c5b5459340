#include "python/trainer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "base/invariant.h"
#include "checkpoint/folder_names.h"
#include "python/raised.h"
#include "sim/simulate.h"
#include "train/devices/use_gpu.h"
#include "train/metrics.h"

namespace piper::python {

namespace {

/// What the processes of a job must have in common.
Identity identity_of(const piper::Plan& plan, const TrainingRunOptions& options) {
  Identity out = piper::identity_of(*options.world, *options.processor, joins_gpus(), options.seed);
  out.emplace_back("the hash of the plan", fmt::format("{:016x}", hash(plan)));
  const auto number = [](const std::optional<double>& given) { return given ? fmt::format("{}", *given) : "none"; };
  out.emplace_back("clip", number(options.clip));
  out.emplace_back("clip_value", number(options.clip_value));
  out.emplace_back("accumulate", fmt::format("{}", options.accumulate));
  out.emplace_back("on_nan", options.not_finite == NotFinite::Skip ? "skip" : "stop");
  return out;
}

/// Whether slices of a batch have different shares in what the loss divides by. `slices`: of equal size.
bool counts_differ(const CapturedSlice& recorded, int64_t slices, int64_t batch, const FillInput& fill) {
  std::optional<std::vector<double>> first;
  if (recorded.counts.counts.empty()) return false;
  for (int64_t slice = 0; slice < slices; ++slice) {
    const int64_t samples = batch / slices, from = slice * samples;
    const auto fill_slice = [&](std::string_view input, int64_t first_sample, at::Tensor& into) {
      fill(input, from + first_sample, into);
    };
    const std::vector<double> counted =
        count_batch(*recorded.recording, recorded.counts.counts, recorded.samples, samples, fill_slice);
    if (counted != first.value_or(counted)) return true;
    first = counted;
  }
  return false;
}

/// The tensors of a batch where devices take their parts from. Those that are given outlive it.
struct OnHost {
  explicit OnHost(std::vector<const at::Tensor*> given) : tensors(std::move(given)) {
    copies.reserve(tensors.size());
    for (const at::Tensor*& tensor : tensors)
      if (!tensor->is_cpu()) tensor = &copies.emplace_back(tensor->cpu());
  }
  std::vector<at::Tensor> copies;
  std::vector<const at::Tensor*> tensors;
};

/// What a run needs of a plan.
PreparedTraining prepared(const Plan& plan) {
  return {plan.captured, {plan.compiled, &plan.compiled->plan}};
}

}  // namespace

Trainer::Trainer(Plan plan, Tensors initial, const TrainerOptions& options, std::shared_ptr<World> world,
                 std::shared_ptr<Processor> processor)
    : plan_(std::move(plan)),
      initial_(std::move(initial)),
      processor_(std::move(processor)),
      world_(std::move(world)),
      timeout_(timeouts_of(options.timeout)),
      seed_(options.seed) {
  const StepConfig& step = plan_.trainable->step;
  TrainingRunOptions run;
  run.seed = options.seed;
  run.clip = options.clip;
  run.clip_value = options.clip_value;
  run.not_finite = options.skip_not_finite ? NotFinite::Skip : NotFinite::Stop;
  run.accumulate = options.accumulate;
  run.job.timeout = timeout_;
  if (processor_) run.processor = processor_.get();
  run.world = world_.get();
  if (world_) unwrap(check_alike(*world_, identity_of(plan_.plan(), run), timeout_));
  unwrap(check_run(plan_.plan(), step, run));
  if (world_) take_from_rank_0(initial_);
  const auto fill = [this](const std::string& name, at::Tensor& whole) { whole.copy_(initial_.at(name)); };
  run_ = std::make_unique<TrainingRun>(prepared(plan_), step, fill, std::move(run));
  run_->job().set_parameters(fill);
  initial_.clear();
  run_->begin();
}

Trainer::~Trainer() = default;

void Trainer::close() {
  if (stuck()) return;
  checkpoints_.reset();
  evaluation_.reset();
  run_.reset();
  world_.reset();
}

void Trainer::take_from_rank_0(Tensors& values) {
  for (auto& [name, value] : values) {
    const at::Tensor whole = value.cpu().contiguous();
    const std::string mine(static_cast<const char*>(whole.const_data_ptr()), world_->rank() == 0 ? whole.nbytes() : 0);
    const std::string given = world_->broadcast(mine, std::chrono::minutes(10));
    if (world_->rank() == 0) continue;
    invariant(given.size() == whole.nbytes(), "plans are equal, so shapes are");
    value = at::empty_like(whole);
    std::memcpy(value.mutable_data_ptr(), given.data(), given.size());
  }
}

void Trainer::sum_everywhere(at::Tensor& tensor) {
  invariant(tensor.scalar_type() == at::kDouble, "counts and buffers are summed in float64");
  run_->sum({static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()}, DataType::Float64);
}

void Trainer::set_parameters(Tensors values) {
  if (world_) take_from_rank_0(values);
  const auto fill = [&](const std::string& name, at::Tensor& whole) { whole.copy_(values.at(name)); };
  run_->job().set_parameters(fill);
  run_->computations().set_states(fill);
}

void Trainer::set_kept(const std::string& name, Kept kept, const at::Tensor& whole) {
  run_->job().set_parameter(name, kept, whole.cpu());
}

at::Tensor Trainer::buffer(const std::string& name, const at::Tensor& like) {
  const auto [mine, first_sample] = run_->computations().find_state(name);
  if (!world_)
    return mine.defined() ? mine.to(at::kCPU, mine.scalar_type(), /*non_blocking=*/false, /*copy=*/true) : mine;
  // by process: more, the earlier the samples that it has seen; 0 where nothing is kept
  at::Tensor earlier = at::zeros({world_->ranks()}, at::kDouble);
  if (mine.defined()) earlier[world_->rank()].fill_(static_cast<double>(plan_.trainable->step.batch - first_sample));
  sum_everywhere(earlier);
  if (earlier.sum().item<double>() == 0) return {};
  // float64 holds every float32 and every count
  at::Tensor whole = earlier.argmax().item<int64_t>() == world_->rank() ? mine.to(at::kCPU, at::kDouble).contiguous()
                                                                        : at::zeros(like.sizes(), at::kDouble);
  sum_everywhere(whole);
  return whole.to(like.scalar_type());
}

const SavedModel& Trainer::saved(const SaveForm& form) {
  if (!saved_) {
    auto made = saved_model(*run_, form);
    unwrap(made ? Checked(Ok{}) : Checked(made.error()));
    saved_ = *std::move(made);
  }
  return *saved_;
}

std::string Trainer::save(const CheckpointOptions& options, const SaveForm& form, RunState state) {
  collect_failures(true);
  if (!checkpoints_ || checkpoints_->options() != options) {
    checkpoints_.reset();
    auto made = Checkpoints::make(*run_, saved(form), options);
    unwrap(made ? Checked(Ok{}) : Checked(made.error()));
    checkpoints_ = *std::move(made);
  }
  state.step = run_->steps();
  state.updates = run_->updates();
  state.samples = run_->samples();
  state.seed = seed_;
  state.plan = hash(plan_.plan());
  state.loss = loss_;
  checkpoints_->save(std::move(state));
  return options.folder + "/" + checkpoint_name(run_->steps());
}

void Trainer::collect_failures(bool wait) {
  if (!checkpoints_) return;
  if (wait) checkpoints_->wait();
  for (SaveReport& report : checkpoints_->take_reports())
    if (!report.result) failed_saves_.push_back(std::move(report.result.error()));
}

std::vector<Diagnostic> Trainer::failed_saves(bool wait) {
  collect_failures(wait);
  return std::exchange(failed_saves_, {});
}

std::optional<Trainer::Resumption> Trainer::resume(const std::string& folder, const SaveForm& form) {
  Resumption out;
  collect_failures(true);  // the checkpoint that is being written may be the newest
  const SavedModel& model = saved(form);
  const RunProgress before = run_->progress();
  bool replaced = false;
  auto resumed = piper::resume(*run_, folder, [&](const FolderReader& reader) -> Checked {
    out.state = reader.state();
    Checked restored = restore(reader, model, *run_);
    replaced |= restored || restored.error().code == ErrorCode::E902;
    return restored;
  });
  half_restored_ = !resumed && run_->anywhere(replaced);
  if (!resumed) run_->set_progress(before);
  unwrap(resumed ? Checked(Ok{}) : Checked(resumed.error()));
  if (!*resumed) return {};
  out.from = **std::move(resumed);
  return out;
}

std::vector<std::string> Trainer::one_at_a_time() {
  const std::set<std::string>& names = run_->computations().one_at_a_time();
  if (run_->job().devices().size() < 2) return {};
  return {names.begin(), names.end()};
}

void Trainer::check_inputs(const std::vector<const at::Tensor*>& inputs, int64_t batch) const {
  const TrainableModel& model = *plan_.trainable;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const InputSpec& spec = model.inputs[i];
    const c10::IntArrayRef given = inputs[i]->sizes();
    if (given.empty() || given[0] != batch || given.slice(1) != c10::IntArrayRef(spec.sample_sizes) ||
        inputs[i]->scalar_type() != scalar_type(spec.dtype)) {
      std::vector<int64_t> sizes = {batch};
      sizes.insert(sizes.end(), spec.sample_sizes.begin(), spec.sample_sizes.end());
      throw Raised(error(ErrorCode::E105, {},
                         fmt::format("input {} is {} of shape [{}], the plan is for {} of shape [{}]", spec.name,
                                     c10::toString(inputs[i]->scalar_type()), fmt::join(given, ", "),
                                     c10::toString(scalar_type(spec.dtype)), fmt::join(sizes, ", ")))
                       .help("shapes are part of a plan; capture the model with a batch like those it is trained on"));
    }
    if (!inputs[i]->is_cpu() && !inputs[i]->is_cuda())
      throw Raised(error(ErrorCode::E105, {}, fmt::format("input {} is on {}", spec.name, inputs[i]->device().str()))
                       .help("give the whole batch from the host or from a GPU: every device takes its own part"));
  }
}

void Trainer::add_losses(const std::vector<SliceLoss>& here, Step& step) {
  int64_t microbatches = 1;
  for (const PlanDim& dim : plan_.plan().dims) microbatches *= dim.parts;
  const auto losses = static_cast<double>(std::max<int64_t>(1, plan_.plan().losses));
  const auto parts = static_cast<double>(std::max<int64_t>(1, plan_.plan().losses / microbatches));
  const size_t first_metric = static_cast<size_t>(microbatches);
  std::vector<double> sums(first_metric + plan_.captured->slices()[0].operators.metrics.size(), 0.0);
  for (const SliceLoss& of : here) {
    sums[static_cast<size_t>(of.slice)] += of.loss / parts;
    for (size_t m = 0; m < of.metrics.size(); ++m) sums[first_metric + m] += of.metrics[m] / losses;
  }
  run_->sum(std::as_writable_bytes(std::span(sums)), DataType::Float64);
  step.metrics.assign(sums.begin() + microbatches, sums.end());
  step.further_rows = run_->further_rows();
  sums.resize(first_metric);
  step.microbatches = std::move(sums);
}

/// Inputs are on the host, and outlive it.
FillInput Trainer::fill_from(const std::vector<const at::Tensor*>& inputs) const {
  return [&specs = plan_.trainable->inputs, inputs](std::string_view input, int64_t first_sample, at::Tensor& into) {
    size_t i = 0;
    while (specs[i].name != input) ++i;
    into.copy_(inputs[i]->narrow(0, first_sample, into.size(0)));
  };
}

StepSettings Trainer::settings(const std::vector<const at::Tensor*>& inputs, const TrainerOptimizer& optimizer) const {
  StepSettings settings = run_->settings();
  settings.optimizer = optimizer.settings;
  settings.groups = optimizer.groups;
  settings.fill = fill_from(inputs);
  return settings;
}

Comparison Trainer::diff(const std::vector<const at::Tensor*>& inputs, const TrainerOptimizer& optimizer,
                         const DiffOptions& how) {
  check_inputs(inputs, plan_.trainable->step.batch);
  const bool here = std::all_of(inputs.begin(), inputs.end(), [](const at::Tensor* input) { return input->is_cpu(); });
  if (world_ || !run_->processor().device().is_cpu() || !here)
    throw Raised(error(ErrorCode::E105, {}, "diff looks at devices of one process, on the CPU")
                     .help("capture the model for the CPU, and make the trainer with backend=\"local\""));
  const auto initial = [&](const std::string& name, at::Tensor& whole) {
    whole.copy_(run_->computations().find_state(name).tensor);
  };
  const PreparedTraining same = prepared(plan_);
  const StepConfig& step = plan_.trainable->step;
  Diff diff(step, same.captured, same.plan, initial, how);
  TrainingRunOptions options;
  options.job.timeout = timeout_;
  options.job.run.after_op = [&](int device, OpId op, Frame& frame) { diff.after(device, op, frame); };
  options.processor = &run_->processor();
  TrainingRun other(same, step, initial, std::move(options));
  const ModelGraph& graph = *plan_.captured->graph();
  copy_state(run_->job(), other.job(), graph);
  StepSettings next = settings(inputs, optimizer);
  next.accumulation = {};  // one step by itself
  diff.step(other.job(), next);
  Comparison out{diff.report(), diff.reference(), {}, false};
  if (how.find_nan) return out;
  out.counts_differ = counts_differ(same.captured->slices().front(), diff.reference().losses, step.batch, next.fill);
  for (const Parameter& parameter : graph.parameters)
    if (!parameter.frozen) out.weights[parameter.name] = other.job().parameter(parameter.name, Kept::Weight);
  return out;
}

std::vector<at::Tensor> Trainer::whole_batch(const std::vector<const at::Tensor*>& parts) {
  const int64_t batch = plan_.trainable->step.batch, processes = world_ ? world_->ranks() : 1;
  if (batch % processes != 0)
    throw Raised(error(ErrorCode::E105, {},
                       fmt::format("a batch of {} samples has no equal parts for {} processes", batch, processes))
                     .help("give the whole batch to every process, without sharded=True"));
  check_inputs(parts, batch / processes);
  std::vector<at::Tensor> out;
  for (const at::Tensor* given : parts) {
    const at::Tensor part = given->cpu().contiguous();
    std::vector<int64_t> sizes = part.sizes().vec();
    sizes[0] = batch;
    at::Tensor whole = at::empty(sizes, part.options());
    run_->all_gather({static_cast<const std::byte*>(part.const_data_ptr()), part.nbytes()},
                     {static_cast<std::byte*>(whole.mutable_data_ptr()), whole.nbytes()});
    out.push_back(std::move(whole));
  }
  return out;
}

Step Trainer::step_on_parts(const std::vector<const at::Tensor*>& parts, const TrainerOptimizer& optimizer) {
  const std::vector<at::Tensor> whole = whole_batch(parts);
  std::vector<const at::Tensor*> inputs;
  for (const at::Tensor& input : whole) inputs.push_back(&input);
  return step(inputs, optimizer);
}

Step Trainer::step(const std::vector<const at::Tensor*>& given, const TrainerOptimizer& optimizer) {
  check_inputs(given, plan_.trainable->step.batch);
  const OnHost inputs(given);
  Step out;
  out.outcome = unwrap(run_->step(settings(inputs.tensors, optimizer)));
  loss_ = out.outcome.loss;
  times_.add(out.outcome.seconds);
  add_losses(out.outcome.losses, out);
  return out;
}

std::string Trainer::prediction() const {
  if (!plan_.predicts) return "";
  const Simulation simulation = unwrap(simulate(plan_.plan(), plan_.cluster, plan_.costs ? &*plan_.costs : nullptr));
  return print_prediction(times_, simulation.seconds);
}

void Trainer::prepare_evaluation(Plan plan, Tensors values) {
  if (evaluation_) return;
  if (world_)
    unwrap(check_alike(*world_, {{"the hash of the plan of evaluation", fmt::format("{:016x}", hash(plan.plan()))}},
                       timeout_));
  only_evaluated_ = std::move(values);
  evaluation_ = std::make_unique<EvaluationRun>(*run_, prepared(plan), plan.trainable->step);
}

void Trainer::begin_evaluation() {
  evaluation_->begin([&](const std::string& name, at::Tensor& whole) {
    at::Tensor current = kept(name, Kept::Weight);
    if (!current.defined()) current = buffer(name, whole);
    whole.copy_(current.defined() ? current : only_evaluated_.at(name));
  });
}

void Trainer::evaluate(const std::vector<std::vector<const at::Tensor*>>& batches) {
  if (batches.empty()) return;
  std::vector<OnHost> inputs;
  inputs.reserve(batches.size());
  std::vector<FillInput> fills;
  for (const auto& batch : batches) {
    check_inputs(batch, plan_.trainable->step.batch);
    fills.push_back(fill_from(inputs.emplace_back(batch).tensors));
  }
  const auto fill = [&, samples = plan_.trainable->step.batch](std::string_view input, int64_t first_sample,
                                                               at::Tensor& into) {
    fills[static_cast<size_t>(first_sample / samples)](input, first_sample % samples, into);
  };
  try {
    evaluation_->add(static_cast<int64_t>(batches.size()), fill);
  } catch (const RunError&) {
    if (!world_ && !stuck()) evaluation_.reset();  // the next one begins anew
    throw;
  }
}

const std::vector<std::string>& Trainer::evaluated_metrics() const {
  return evaluation_->captured().slices()[0].operators.metrics;
}

}  // namespace piper::python
