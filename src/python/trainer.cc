#include "python/trainer.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "base/invariant.h"
#include "comm/local/local_world.h"
#include "python/errors.h"

namespace piper::python {

class ObservedComputation : public Computation {
 public:
  ObservedComputation(ObservedLosses& owner, std::unique_ptr<Computation> inner, size_t loss)
      : owner_(owner), inner_(std::move(inner)), loss_(loss) {}
  void run(const ComputationArguments& arguments) override {
    inner_->run(arguments);
    const double loss = arguments.writes[loss_].item<double>();
    const std::lock_guard lock(owner_.mutex_);
    owner_.seen_[arguments.slice.first_sample] = loss;
  }

 private:
  ObservedLosses& owner_;
  std::unique_ptr<Computation> inner_;
  size_t loss_;  // among what it writes
};

ObservedLosses::ObservedLosses(Computations& inner, const ModelGraph& model, const piper::Plan& plan)
    : inner_(inner), plan_(plan) {
  for (const Value& value : model.values)
    if (value.kind == ValueKind::Loss) loss_ = value.name;
}

std::unique_ptr<Computation> ObservedLosses::make(const ComputationSite& site) {
  std::unique_ptr<Computation> made = inner_.make(site);
  const std::vector<std::string> writes = inner_.form(site.name, site.pass).writes;
  const auto found = std::find(writes.begin(), writes.end(), loss_);
  if (found == writes.end() || sharer_index(plan_, site.device) != 0) return made;
  return std::make_unique<ObservedComputation>(*this, std::move(made), static_cast<size_t>(found - writes.begin()));
}

void ObservedLosses::forget() {
  const std::lock_guard lock(mutex_);
  seen_.clear();
}

std::map<int64_t, double> ObservedLosses::losses() const {
  const std::lock_guard lock(mutex_);
  return seen_;
}

namespace {

int device_count(const piper::Plan& plan) {
  return static_cast<int>(template_of_device(plan).size());
}

const PlanBucket* bucket_of(const piper::Plan& plan, const std::string& name) {
  for (const PlanBucket& bucket : plan.buckets)
    for (const PlanParameter& parameter : bucket.parameters)
      if (plan.names[static_cast<size_t>(parameter.name)] == name) return &bucket;
  return nullptr;
}

/// How it is kept; nothing if it is not.
std::optional<DType> dtype_of(Kept kept, const PlanBucket& bucket, const StepConfig& step) {
  const ElementTypes types = element_types(step, bucket.weights);
  if (kept == Kept::Weight) return bucket.weights;
  if (kept == Kept::Master) return types.master;
  if (kept == Kept::Gradient) return bucket.gradients;
  return moments(step.optimizer) > (kept == Kept::Moment1 ? 0 : 1) ? std::optional(types.moments) : std::nullopt;
}

std::span<std::byte> bytes_of(at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()};
}

/// What the processes of a job must have in common.
Identity identity_of(const piper::Plan& plan, const TrainerOptions& options, const World& world) {
  return {{"piper", PIPER_VERSION},
          {"what carries messages", world.library()},
          {"the hash of the plan", fmt::format("{:016x}", hash(plan))},
          {"the seed", fmt::format("{}", options.seed)},
          {"clip", options.clip ? fmt::format("{}", *options.clip) : "none"},
          {"on_nan", options.skip_not_finite ? "skip" : "stop"}};
}

}  // namespace

Trainer::Trainer(Plan plan, Tensors initial, const TrainerOptions& options, World* world)
    : plan_(std::move(plan)),
      initial_(std::move(initial)),
      options_(options),
      computations_(*plan_.captured,
                    [this](const std::string& name, at::Tensor& whole) { whole.copy_(initial_.at(name)); }),
      observed_(computations_, *plan_.captured->graph(), plan_.plan()),
      world_(world) {
  const StepConfig& step = plan_.trainable->step;
  unwrap(check_types(element_types(step, step.weights)));
  const std::shared_ptr<const piper::Plan> shared(plan_.compiled, &plan_.compiled->plan);
  JobOptions job;
  job.patience = patience_of(options.patience);
  if (world_) {
    unwrap(check_processes(*world_, device_count(*shared), host_processor()));
    unwrap(check_alike(*world_, identity_of(*shared, options, *world_), job.patience));
    take_from_rank_0(initial_);
  }
  std::vector<std::unique_ptr<Communicator>> communicators =
      world_ ? join_job(*world_, device_count(*shared), host_processor(), job) : make_local_world(device_count(*shared));
  job_ = std::make_unique<Job>(shared, step, observed_, std::move(communicators), std::move(job));
  job_->set_parameters([&](const std::string& name, at::Tensor& whole) { whole.copy_(initial_.at(name)); });
  initial_.clear();
  if (world_) job_->watched([&] { together_.emplace(*world_, *job_); });
}

Trainer::~Trainer() = default;

void Trainer::take_from_rank_0(Tensors& values) {
  for (auto& [name, value] : values) {
    at::Tensor whole = value.contiguous();
    const std::string mine(static_cast<const char*>(whole.const_data_ptr()), world_->rank() == 0 ? whole.nbytes() : 0);
    const std::string given = world_->broadcast(mine, std::chrono::minutes(10));
    if (world_->rank() == 0) continue;
    invariant(given.size() == whole.nbytes(), "plans are equal, so shapes are");
    value = at::empty_like(whole);
    std::memcpy(value.mutable_data_ptr(), given.data(), given.size());
  }
}

void Trainer::sum_everywhere(at::Tensor& numbers) {
  const Number of = numbers.scalar_type() == at::kDouble  ? Number::Float64
                    : numbers.scalar_type() == at::kFloat ? Number::Float32
                                                          : Number::BFloat16;
  job_->watched([&] { together_->sum(bytes_of(numbers), of); });
}

void Trainer::set_parameters(Tensors values) {
  if (world_) take_from_rank_0(values);
  job_->set_parameters([&](const std::string& name, at::Tensor& whole) { whole.copy_(values.at(name)); });
}

at::Tensor Trainer::kept(const std::string& name, Kept kept) {
  const PlanBucket* bucket = bucket_of(plan_.plan(), name);
  const auto dtype = bucket ? dtype_of(kept, *bucket, plan_.trainable->step) : std::nullopt;
  if (!dtype) return {};
  at::Tensor whole = job_->parameter(name, kept);
  if (!together_) return whole;
  bool somewhere = false;
  job_->watched([&] { somewhere = together_->anywhere(whole.defined()); });
  if (!somewhere) return {};
  if (!whole.defined()) whole = at::zeros(observed_.parameter(name).sizes, scalar_type(*dtype));
  sum_everywhere(whole);
  return whole;
}

void Trainer::set_kept(const std::string& name, Kept kept, const at::Tensor& whole) {
  job_->set_parameter(name, kept, whole);
}

at::Tensor Trainer::buffer(const std::string& name, const at::Tensor& like) {
  const at::Tensor mine = computations_.find_state(name);
  if (!together_) return mine.defined() ? mine.clone() : mine;
  at::Tensor owners = at::zeros({together_->processes()}, at::kDouble);
  if (mine.defined()) owners[world_->rank()].fill_(1);
  sum_everywhere(owners);
  if (owners.sum().item<double>() == 0) return {};
  // float64 holds every float32 and every count
  at::Tensor whole = owners.argmax().item<int64_t>() == world_->rank() ? mine.to(at::kDouble).contiguous()
                                                                       : at::zeros(like.sizes(), at::kDouble);
  sum_everywhere(whole);
  return whole.to(like.scalar_type());
}

void Trainer::set_progress(int64_t steps, int64_t updates) {
  next_ = steps;
  updates_ = updates;
}

std::vector<DeviceFlight> Trainer::flights() {
  std::vector<DeviceFlight> out = flights_of(job_->devices());
  if (together_) job_->watched([&] { out = together_->gather(out); });
  return out;
}

void Trainer::check_inputs(const std::vector<const at::Tensor*>& inputs) const {
  const TrainableModel& model = *plan_.trainable;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const InputSpec& spec = model.inputs[i];
    const c10::IntArrayRef given = inputs[i]->sizes();
    if (given.empty() || given[0] != model.step.batch || given.slice(1) != c10::IntArrayRef(spec.sample_sizes) ||
        inputs[i]->scalar_type() != scalar_type(spec.dtype)) {
      std::vector<int64_t> sizes = {model.step.batch};
      sizes.insert(sizes.end(), spec.sample_sizes.begin(), spec.sample_sizes.end());
      throw Raised(error(ErrorCode::E105, {},
                         fmt::format("input {} is {} of shape [{}], the plan is for {} of shape [{}]", spec.name,
                                     c10::toString(inputs[i]->scalar_type()), fmt::join(given, ", "),
                                     c10::toString(scalar_type(spec.dtype)), fmt::join(sizes, ", ")))
                       .help("shapes are part of a plan; capture the model with a batch like those it is trained on"));
    }
    if (!inputs[i]->device().is_cpu())
      throw Raised(error(ErrorCode::E105, {}, fmt::format("input {} is not on the CPU", spec.name))
                       .help("give the whole batch from the host: every device takes its own part"));
  }
}

std::vector<double> Trainer::microbatch_losses() {
  int64_t microbatches = 1;
  for (const PlanDim& dim : plan_.plan().dims) microbatches *= dim.parts;
  const int64_t samples =
      std::max<int64_t>(1, plan_.trainable->step.batch / microbatches);  // slices of one are neighbours
  const auto slices = static_cast<double>(std::max<int64_t>(1, plan_.plan().losses / microbatches));
  std::vector<double> out(static_cast<size_t>(microbatches), 0.0);
  for (const auto& [first, loss] : observed_.losses()) out[static_cast<size_t>(first / samples)] += loss / slices;
  if (together_) job_->watched([&] { together_->sum(std::as_writable_bytes(std::span(out)), Number::Float64); });
  return out;
}

Step Trainer::step(const std::vector<const at::Tensor*>& inputs, const OptimizerSettings& optimizer) {
  check_inputs(inputs);
  const std::vector<InputSpec>& specs = plan_.trainable->inputs;
  StepSettings settings;
  settings.step = next_;
  settings.seed = options_.seed * 0x9E3779B97F4A7C15u + static_cast<uint64_t>(next_);
  settings.optimizer = optimizer;
  settings.updates = updates_;
  settings.clip = options_.clip;
  settings.not_finite = options_.skip_not_finite ? NotFinite::Skip : NotFinite::Stop;
  settings.fill = [&](std::string_view input, int64_t first_sample, at::Tensor& into) {
    size_t i = 0;
    while (specs[i].name != input) ++i;
    into.copy_(inputs[i]->narrow(0, first_sample, into.size(0)));
  };
  observed_.forget();
  Step out;
  out.outcome = job_->step(settings);
  ++next_;
  updates_ += out.outcome.skipped ? 0 : 1;
  out.microbatches = microbatch_losses();
  return out;
}

}  // namespace piper::python
