#include "train/loop/evaluation_run.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/invariant.h"
#include "train/data/mix.h"

namespace piper {
namespace {

bool same_holder(const Plan& a, const PlanHolder& of_a, const Plan& b, const PlanHolder& of_b) {
  return a.groups[of_a.group] == b.groups[of_b.group] && a.partitions[of_a.copies] == b.partitions[of_b.copies] &&
         of_a.sharded == of_b.sharded && of_a.shards == of_b.shards;
}

bool same_parameter(const Plan& a, const PlanParameter& of_a, const Plan& b, const PlanParameter& of_b) {
  return a.names[of_a.name] == b.names[of_b.name] && of_a.elements == of_b.elements;
}

/// Whether two plans have the same parameters in the same places, so that their weights may be the same memory.
bool same_weights(const Plan& a, const PlanBucket& of_a, const Plan& b, const PlanBucket& of_b) {
  return of_a.weights == of_b.weights &&
         std::equal(of_a.parameters.begin(), of_a.parameters.end(), of_b.parameters.begin(), of_b.parameters.end(),
                    [&](const auto& p, const auto& q) { return same_parameter(a, p, b, q); }) &&
         std::equal(of_a.holders.begin(), of_a.holders.end(), of_b.holders.begin(), of_b.holders.end(),
                    [&](const auto& p, const auto& q) { return same_holder(a, p, b, q); });
}

const PlanBucket* find_same(const Plan& in, const Plan& of, const PlanBucket& bucket) {
  const auto found = std::find_if(in.buckets.begin(), in.buckets.end(),
                                  [&](const PlanBucket& other) { return same_weights(in, other, of, bucket); });
  return found == in.buckets.end() ? nullptr : &*found;
}

/// While it lives, it is evaluation's turn.
class EvaluationTurn {
 public:
  explicit EvaluationTurn(JobTurns& turns) : turns_(turns) { turns_.now = JobTurns::evaluation; }
  ~EvaluationTurn() { turns_.now = JobTurns::training; }
  EvaluationTurn(const EvaluationTurn&) = delete;
  EvaluationTurn& operator=(const EvaluationTurn&) = delete;

 private:
  JobTurns& turns_;
};

}  // namespace

double Evaluation::perplexity() const {
  return std::exp(loss);
}

EvaluationRun::EvaluationRun(TrainingRun& run, PreparedTraining prepared, const StepConfig& step)
    : run_(run),
      prepared_(std::move(prepared)),
      computations_(
          *prepared_.captured, [](const std::string&, at::Tensor& whole) { whole.zero_(); }, run.processor().device()) {
  JobOptions job;
  job.timeout = run.options().job.timeout;
  job.run.issue = run.options().job.run.issue;
  job.run.processor = &run.processor();
  job.run.weights = [this](int device, const PlanBucket& bucket) { return weights_in_run(device, bucket); };
  auto communicators = run.join_devices(device_count(plan()), JobTurns::evaluation, job);
  job_ = std::make_unique<Job>(prepared_.plan, step, computations_, std::move(communicators), std::move(job));
  run.end_with(*job_);
  for (const BucketId bucket : plan().buckets.ids())
    if (!find_same(run.plan(), plan(), plan().buckets[bucket])) apart_.push_back(bucket);
}

at::Tensor EvaluationRun::weights_in_run(int device, const PlanBucket& bucket) const {
  const PlanBucket* same = find_same(run_.plan(), plan(), bucket);
  if (!same) return {};
  for (DeviceRun* here : run_.job().devices())
    if (here->device() == device) return lasting_weights(*here, *same);
  internal_error("an evaluation has the devices of its run");
}

void EvaluationRun::begin(const std::function<void(const std::string& name, at::Tensor& whole)>& current) {
  std::map<std::string, at::Tensor> values;  // all processes ask for all of them
  const auto ask = [&](const std::string& name) {
    if (const auto [value, fresh] = values.try_emplace(name, computations_.like(name)); fresh)
      current(name, value->second);
  };
  for (const BucketId bucket : apart_)
    for (const PlanParameter& parameter : plan().buckets[bucket].parameters) ask(plan().names[parameter.name]);
  for (size_t chunk = 0; chunk < captured().graph()->chunks.size(); ++chunk)
    for (const std::string& name : captured().states(ChunkId(chunk), Pass::F)) ask(name);
  const auto fill = [&](const std::string& name, at::Tensor& whole) { whole.copy_(values.at(name)); };
  for (const BucketId bucket : apart_)
    set_weights(plan(), plan().buckets[bucket], computations_, job_->devices(), fill);
  computations_.set_states(fill);
  run_.processor().finish();
  sums_ = {};
  sums_.metrics.resize(metrics());
}

void EvaluationRun::add(int64_t batches, FillInput fill) {
  const int64_t batch = captured().graph()->step.batch;
  const FillInput counted = captured().with_batch_counts(std::move(fill), batches);
  for (int64_t b = 0; b < batches; ++b) {
    const StepOutcome outcome = pass([&](std::string_view input, int64_t first_sample,
                                         at::Tensor& into) { counted(input, b * batch + first_sample, into); },
                                     run_.settings().seed);  // for models that are random even then
    sums_.loss += outcome.loss;
    for (const SliceLoss& slice : outcome.losses)
      for (size_t m = 0; m < metrics(); ++m) sums_.metrics[m] += slice.metrics[m] / static_cast<double>(plan().losses);
    sums_.seconds += outcome.seconds;
  }
  sums_.batches += batches;
}

StepOutcome EvaluationRun::pass(FillInput fill, uint64_t seed) {
  StepSettings settings = run_.settings();
  settings.not_finite = NotFinite::Skip;
  settings.accumulation = {};
  settings.step = taken_++;
  settings.seed = seed;
  settings.fill = std::move(fill);
  const EvaluationTurn turn(run_.turns());
  return job_->step(settings);
}

std::vector<int64_t> EvaluationRun::next_tokens(FillInput fill, uint64_t draw) {
  const StepOutcome outcome = pass(captured().with_batch_counts(std::move(fill), 1), mix64(run_.settings().seed, draw));
  std::vector<double> found(static_cast<size_t>(captured().graph()->step.batch));  // by sample, above 0 in one process
  for (const SliceLoss& slice : outcome.losses) {
    const size_t samples = (slice.metrics.size() - metrics()) / 2;
    for (size_t s = 0; s < samples; ++s) {
      const double token = slice.metrics[metrics() + 2 * s + 1];
      found[static_cast<size_t>(slice.metrics[metrics() + 2 * s])] = std::isfinite(token) ? token + 1 : 0;
    }
  }
  run_.sum(std::as_writable_bytes(std::span(found)), DataType::Float64);
  std::vector<int64_t> out;
  for (const double token : found) out.push_back(static_cast<int64_t>(token) - 1);
  return out;
}

Evaluation EvaluationRun::end() {
  Evaluation out = sums_;
  const auto batches = static_cast<double>(sums_.batches);
  run_.sum(std::as_writable_bytes(std::span(out.metrics)), DataType::Float64);
  out.loss /= batches;
  for (double& metric : out.metrics) metric /= batches;
  return out;
}

}  // namespace piper
