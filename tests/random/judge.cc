#include "random/judge.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <set>

#include "base/invariant.h"
#include "random/checked.h"
#include "schedule/schedule_text.h"
#include "train/run_problems.h"
#include "train_loop/one_by_one.h"

namespace piper::random {
namespace {

/// Before the first update only the order of sums differs. Steps of AdamW are of the same length where a gradient is
/// mostly rounding errors, and what follows feels it; what is wrong in an update is as large as its learning rate.
constexpr double tolerance = 1e-11, tolerance_of_updates = 1e-8;

/// Narrow models with the usual first values have gradients that are mostly rounding errors.
void enlarge_weights(TrainableModel& model) {
  model.initialize = [usual = model.initialize](const std::string& name, at::Tensor& whole) {
    usual(name, whole);
    if (whole.dim() > 1) whole.mul_(5);
  };
}

Result<const TrainableModel*> model_of(const Case& c) {
  static std::map<std::string, TrainableModel> all;
  const auto found = all.find(c.config());
  if (found != all.end()) return &found->second;
  PIPER_TRY(TrainableModel model, build_model(make_source("case.toml", c.config()), 1));
  enlarge_weights(model);
  return &all.emplace(c.config(), std::move(model)).first->second;
}

TrainSettings settings_of(const TrainableModel& model, Issue issue) {
  TrainSettings out;
  out.optimizer.kind = model.step.optimizer;
  // AdamW: where a gradient nearly vanishes rounding decides on the direction of a step, which is as long as this
  out.optimizer.learning_rate = model.step.optimizer == Optimizer::AdamW ? 1e-4 : 0.01;
  out.job.run.issue = issue;
  out.job.timeout.first = 60;  // for what takes milliseconds
  return out;
}

std::set<int64_t> samples_of_slices(const Plan& plan) {
  std::set<int64_t> out;
  for (const PlanWork& work : plan.works)
    if (work.pass) out.insert(work.samples);
  return out;
}

/// One device that runs so many slices in turn.
const Trained& in_turn_trained(const Case& c, const TrainableModel& model, int64_t slices) {
  static std::map<std::pair<std::string, int64_t>, Trained> all;
  const std::pair key{c.config(), slices};
  const auto found = all.find(key);
  if (found != all.end()) return found->second;
  const TrainSettings settings = settings_of(model, Issue::Ahead);
  return all.emplace(key, without_key_bias(train(model, in_turn(slices), settings))).first->second;
}

/// The same with the model recorded as it is for tensor parallelism, whose loss over the vocabulary is another formula.
const Trained& recorded_alike(const Case& c, const TrainableModel& model, int64_t slices) {
  static std::map<std::pair<std::string, int64_t>, Trained> all;
  std::string shards;
  for (const std::string& directive : c.directives)
    if (directive.starts_with("shard(") && directive.find("along=tp") != std::string::npos) shards += directive + "\n";
  if (shards.empty()) return in_turn_trained(c, model, slices);
  const std::pair key{c.config() + shards, slices};
  const auto found = all.find(key);
  if (found != all.end()) return found->second;
  const std::string schedule =
      fmt::format("mesh(tp=1)\nsplit(batch, parts={}, as=mb)\nplace({{}}, mesh={{}})\n", slices) + shards;
  return all.emplace(key, without_key_bias(train(model, schedule, settings_of(model, Issue::Ahead)))).first->second;
}

/// What is the same whatever the optimizer does: losses and gradients of the first step.
Trained first_gradients(Trained of) {
  of.losses.resize(1);
  of.norms.resize(1);
  of.gradients.resize(1);
  for (Tensors* tensors : {&of.weights, &of.masters, &of.moment1, &of.moment2}) tensors->clear();
  return of;
}

using Plant = std::function<void(TrainSettings&)>;

std::vector<std::string> compared(const Case& c, const TrainableModel& model, const PreparedTraining& prepared,
                                  const Plant& plant) {
  const TrainSettings settings = settings_of(model, c.issue);
  TrainSettings planted = settings;
  if (plant) plant(planted);
  const Trained run = without_key_bias(train(model, *prepared.captured, prepared.plan, planted));
  std::vector<std::string> out;
  for (size_t d = 0; d < run.peak_bytes.size(); ++d)
    if (run.peak_bytes[d] > run.planned_bytes[d])
      out.push_back(
          fmt::format("memory: device {} took {} bytes, planned were {}", d, run.peak_bytes[d], run.planned_bytes[d]));
  const auto complain = [&](const Difference& worst, double bound) {
    if (!(worst.error <= bound)) out.push_back(fmt::format("{}: {:.3g}", worst.where, worst.error));
  };
  if (!run.copies_equal) out.push_back("copies differ");
  const std::set<int64_t> samples = samples_of_slices(*prepared.plan);
  if (samples.size() == 1) {
    const int64_t slices = model.step.batch / *samples.begin();
    const Trained& expected = in_turn_trained(c, model, slices);
    complain(compare(first_gradients(run), first_gradients(expected)), tolerance);
    complain(compare(run, expected), tolerance_of_updates);
    for (const std::string& name : wrongly_ordered(run, recorded_alike(c, model, slices)))
      out.push_back("not in order: " + name);
    return out;
  }
  const Trained expected = without_key_bias(train_one_by_one(model, *prepared.captured, *prepared.plan, settings));
  complain(compare(first_gradients(run), first_gradients(expected)), tolerance);
  if (model.step.optimizer == Optimizer::AdamW)  // which is all that train_one_by_one knows
    complain(compare(run, expected), tolerance_of_updates);
  return out;
}

Verdict fault(std::string what, std::string details) {
  return {Verdict::Kind::Fault, std::move(what), std::move(details)};
}

std::string code_of(const Diagnostic& problem) {
  return std::string(name(problem.code));
}

/// The reason without sizes and names, which other cases with the same fault do not share.
std::string kind_of(const std::string& message) {
  std::string out;
  for (const char c : message.substr(0, message.find('\n')))
    if (c < '0' || c > '9') out += c;
  return out.substr(0, 60);
}

Verdict judge_prepared(const Case& c, const TrainableModel& model, const PreparedTraining& prepared,
                       const Plant& plant) {
  try {
    const std::vector<std::string> wrong = compared(c, model, prepared, plant);
    if (wrong.empty()) return {};
    return fault(wrong[0].substr(0, wrong[0].find(' ')) == "memory:" ? "more memory than planned" : "differs",
                 fmt::format("{}", fmt::join(wrong, "\n")));
  } catch (const RunError& problem) {
    const Diagnostic shown = as_diagnostic(problem);
    return fault("fails at run time: " + code_of(shown), render(shown));
  }
}

Verdict judge_trained(const Case& c, const Plant& plant) {
  Result<Schedule> schedule = parse_schedule(make_source("case.piper", c.schedule()));
  if (!schedule) return {Verdict::Kind::Refused, code_of(schedule.error()), render(schedule.error())};
  Result<const TrainableModel*> model = model_of(c);
  if (!model) return {Verdict::Kind::Refused, code_of(model.error()), render(model.error())};
  Result<PreparedTraining> prepared = prepare_training(**model, *schedule);
  const Verdict trained = prepared
                              ? judge_prepared(c, **model, *prepared, plant)
                              : Verdict{Verdict::Kind::Refused, code_of(prepared.error()), render(prepared.error())};
  if (trained.kind == Verdict::Kind::Fault) return trained;
  const Checked check = checked(c);
  const std::string trains = prepared ? "accepts" : trained.what, checks = check ? "accepts" : code_of(check.error());
  if (trains == checks) return trained;
  return fault(fmt::format("check: {}, train: {}", checks, trains),
               (check ? "" : "check:\n" + render(check.error())) + "train:\n" + trained.details);
}

}  // namespace

Verdict judge(const Case& c, const Plant& plant) {
  try {
    return judge_trained(c, plant);
  } catch (const InternalError& problem) {
    return fault("internal error: " + kind_of(problem.what()), problem.what());
  } catch (const std::exception& problem) {
    return fault("throws: " + kind_of(problem.what()), problem.what());
  }
}

}  // namespace piper::random
