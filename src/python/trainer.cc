#include "python/trainer.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

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

ObservedLosses::ObservedLosses(Computations& inner, const ModelGraph& model) : inner_(inner) {
  for (const Value& value : model.values)
    if (value.kind == ValueKind::Loss) loss_ = value.name;
}

std::unique_ptr<Computation> ObservedLosses::make(const ComputationSite& site) {
  std::unique_ptr<Computation> made = inner_.make(site);
  const std::vector<std::string> writes = inner_.form(site.name, site.pass).writes;
  const auto found = std::find(writes.begin(), writes.end(), loss_);
  if (found == writes.end()) return made;
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

Trainer::Trainer(Plan plan, Tensors initial, const TrainerOptions& options)
    : plan_(std::move(plan)),
      initial_(std::move(initial)),
      options_(options),
      computations_(*plan_.captured,
                    [this](const std::string& name, at::Tensor& whole) { whole.copy_(initial_.at(name)); }),
      observed_(computations_, *plan_.captured->graph()) {
  const StepConfig& step = plan_.trainable->step;
  unwrap(check_types(element_types(step, step.weights)));
  JobOptions job;
  job.patience = patience_of(options.patience);
  const std::shared_ptr<const piper::Plan> shared(plan_.compiled, &plan_.compiled->plan);
  job_ = std::make_unique<Job>(shared, step, observed_,
                               make_local_world(static_cast<int>(template_of_device(*shared).size())), std::move(job));
  set_parameters(initial_);
  initial_.clear();
}

Trainer::~Trainer() = default;

void Trainer::set_parameters(const Tensors& values) {
  job_->set_parameters([&](const std::string& name, at::Tensor& whole) { whole.copy_(values.at(name)); });
}

at::Tensor Trainer::weight(const std::string& name) {
  if (at::Tensor state = computations_.find_state(name); state.defined()) return state.clone();
  for (const PlanBucket& bucket : plan_.plan().buckets)
    for (const PlanParameter& parameter : bucket.parameters)
      if (plan_.plan().names[static_cast<size_t>(parameter.name)] == name) return job_->parameter(name, Kept::Weight);
  return {};
}

std::vector<DeviceFlight> Trainer::flights() {
  return flights_of(job_->devices());
}

void Trainer::check_inputs(const std::vector<at::Tensor>& inputs) const {
  const TrainableModel& model = *plan_.trainable;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const InputSpec& spec = model.inputs[i];
    std::vector<int64_t> sizes = {model.step.batch};
    sizes.insert(sizes.end(), spec.sample_sizes.begin(), spec.sample_sizes.end());
    if (inputs[i].sizes() != c10::IntArrayRef(sizes) || inputs[i].scalar_type() != scalar_type(spec.dtype))
      throw Raised(error(ErrorCode::E105, {},
                         fmt::format("input {} is {} of shape [{}], the plan is for {} of shape [{}]", spec.name,
                                     c10::toString(inputs[i].scalar_type()), fmt::join(inputs[i].sizes(), ", "),
                                     c10::toString(scalar_type(spec.dtype)), fmt::join(sizes, ", ")))
                       .help("shapes are part of a plan; capture the model with a batch like those it is trained on"));
    if (!inputs[i].device().is_cpu())
      throw Raised(error(ErrorCode::E105, {}, fmt::format("input {} is not on the CPU", spec.name))
                       .help("give the whole batch from the host: every device takes its own part"));
  }
}

std::vector<double> Trainer::microbatch_losses() const {
  const std::map<int64_t, double> slices = observed_.losses();
  size_t microbatches = 1;
  for (const PlanDim& dim : plan_.plan().dims) microbatches *= static_cast<size_t>(dim.parts);
  const size_t each = std::max<size_t>(1, slices.size() / microbatches);  // slices of one are neighbours
  std::vector<double> out(std::min(microbatches, slices.size()), 0.0);
  size_t i = 0;
  for (const auto& [first, loss] : slices)
    out[std::min(i++ / each, out.size() - 1)] += loss / static_cast<double>(each);
  return out;
}

Step Trainer::step(const std::vector<at::Tensor>& inputs, const OptimizerSettings& optimizer) {
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
    into.copy_(inputs[i].narrow(0, first_sample, into.size(0)));
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
