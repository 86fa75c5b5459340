#include "tools/calibrate_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/read_file.h"
#include "base/text_table.h"
#include "base/write_file.h"
#include "calibrate/measured_steps.h"
#include "calibrate/prediction_errors.h"
#include "cost/load_cluster.h"
#include "tools/commands.h"

namespace piper {
namespace {

/// Everything but the schedule: its plans are alternatives.
std::string job_of(const MeasuredStep& step, const Compiled& compiled) {
  const StepConfig& of = compiled.linear.dag.model->step;
  return fmt::format("{} {} {} {}", step.model, of.batch, of.sequence, device_count(compiled.plan));
}

/// A measured step, the measured computations of one, or a kernel.
Checked observe(const MeasuredStep& step, const std::string& cluster, std::vector<Observation>& out) {
  if (step.kernel) {
    out.push_back(kernel_observation(step));
    return Ok{};
  }
  CompileInput input;
  input.model = step.model;
  input.schedule = step.schedule;
  input.cluster = cluster;
  input.step.batch = step.batch;
  input.step.sequence = step.sequence;
  PIPER_TRY(CompiledInput compiled, compile_input(input));
  const std::string job = job_of(step, compiled.compiled);
  const auto plan = std::make_shared<const Plan>(std::move(compiled.compiled.plan));
  if (step.costs.empty()) {
    out.push_back({step.set, job, plan, {}, step.seconds});
    return Ok{};
  }
  PIPER_TRY(const SourceFilePtr file, read_file(step.costs, "cost table"));
  PIPER_TRY(const CostTable costs, parse_cost_table(file));
  for (const WorkId id : plan->works.ids()) {
    const PlanWork& work = plan->works[id];
    PIPER_TRY(const double seconds, measured_seconds(costs, plan->names[work.name], work.pass, work.samples));
    if (seconds > 0)
      out.push_back({step.set, job + " " + plan->names[work.name], plan, {plan, &work}, seconds});
  }
  return Ok{};
}

Result<std::vector<Observation>> observations_of(const CalibrateCommand& command) {
  PIPER_TRY(const SourceFilePtr file, read_file(command.steps, "table of measured steps"));
  PIPER_TRY(const std::vector<MeasuredStep> steps, parse_measured_steps(file));
  std::vector<Observation> out;
  for (const MeasuredStep& step : steps)
    if (auto seen = observe(step, command.cluster, out); !seen)
      return std::move(seen.error()).note(step.where, "of this step");
  return out;
}

/// What there is to say, in the end.
struct Calibration {
  Cluster before, cluster;
  std::vector<PredictionErrors> errors;
  std::vector<PredictionErrors> validated;  // by cross-validation; none: not asked for
};

Result<Calibration> calibrate(const CalibrateCommand& command, const std::vector<Observation>& observations,
                              const Cluster& given) {
  Calibration out{given, given, {}, {}};
  if (!command.check) {
    out.before = with_operators(given);
    PIPER_TRY(out.cluster, fit_cluster(observations, out.before));
  }
  PIPER_TRY(const std::vector<double> predicted, predict(observations, out.cluster));
  out.errors = errors_of(observations, predicted);
  if (command.folds > 0) {
    PIPER_TRY(out.validated, cross_validate(observations, with_operators(given), command.folds));
  }
  return out;
}

std::string errors_text(const CalibrateCommand& command, const Calibration& found) {
  std::string out = print(found.errors);
  if (!found.validated.empty())
    out +=
        fmt::format("\nfitted to one of {} parts, and the others predicted\n{}", command.folds, print(found.validated));
  return out;
}

std::string parameter_table(const Calibration& found) {
  TextTable table({"parameter", "before", "fitted"});
  for (const FittedParameter& p : parameters_of(found.cluster))
    table.add({p.name, fmt::format("{:.4g}", p.get(found.before)), fmt::format("{:.4g}", p.get(found.cluster))});
  return table.print();
}

using nlohmann::ordered_json;

ordered_json as_json(const std::vector<PredictionErrors>& errors) {
  ordered_json out = ordered_json::array();
  for (const PredictionErrors& e : errors)
    out.push_back({{"set", e.set},
                   {"rows", e.rows},
                   {"mean_error", e.mean},
                   {"bias", e.bias},
                   {"worst_error", e.worst},
                   {"jobs", e.jobs},
                   {"mean_regret", e.regret_mean},
                   {"median_regret", e.regret_median},
                   {"worst_regret", e.regret_worst}});
  return out;
}

std::string print_json(const CalibrateCommand& command, const Calibration& found) {
  ordered_json out;
  out["version"] = 1;
  if (!command.check)
    for (const FittedParameter& p : parameters_of(found.cluster))
      out["parameters"][p.name] = {{"before", p.get(found.before)}, {"fitted", p.get(found.cluster)}};
  out["errors"] = as_json(found.errors);
  if (!found.validated.empty()) out["cross_validation"] = as_json(found.validated);
  return out.dump(2) + "\n";
}

/// Every line behind `#`.
std::string as_comment(const std::string& text) {
  std::string out;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    out += "# " + text.substr(begin, end - begin);
    out = out.substr(0, out.find_last_not_of(' ') + 1) + "\n";
    begin = end + 1;
  }
  return out;
}

Result<std::string> calibrate(const CalibrateCommand& command) {
  PIPER_TRY(const Cluster given, load_cluster(command.cluster));
  if (!command.out.empty()) PIPER_CHECK(check_writable(command.out));
  PIPER_TRY(const std::vector<Observation> observations, observations_of(command));
  PIPER_TRY(const Calibration found, calibrate(command, observations, given));
  if (!command.out.empty())
    PIPER_CHECK(
        write_file(command.out, fmt::format("# Fitted by piper calibrate, beginning with {}. What it predicts of "
                                            "{} measurements:\n#\n{}\n{}",
                                            command.cluster, observations.size(),
                                            as_comment(errors_text(command, found)), print(found.cluster))));
  if (command.format == "json") return print_json(command, found);
  return (command.check ? "" : parameter_table(found) + "\n") + errors_text(command, found);
}

}  // namespace

int run(const CalibrateCommand& command) {
  auto text = calibrate(command);
  if (!text) return report(command.format, command.color, text.error());
  put(*text);
  return fine;
}

}  // namespace piper
