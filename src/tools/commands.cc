#include "tools/commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <set>

#include "base/bytes.h"
#include "base/read_file.h"
#include "base/suggest.h"
#include "base/text_table.h"
#include "compile/explain.h"
#include "compile/grid.h"
#include "compile/timeline_of.h"
#include "compile/tried_hints.h"
#include "cost/load_cluster.h"
#include "ir/dag_text.h"
#include "model/load_model.h"
#include "plan/memory_report.h"
#include "plan/plan_text.h"
#include "schedule/load_schedule.h"
#include "schedule/model_form.h"
#include "schedule/replace_directives.h"
#include "schedule/schedule_text.h"
#include "timelines/as_schedule.h"
#include "timelines/load_timeline.h"
#include "tools/hint_line.h"
#include "tools/step_line.h"

namespace piper {
namespace {

/// Plans of one device only, if it exists.
Result<std::string> plan_text(const Plan& plan, std::optional<int> device) {
  if (!device) return print(plan);
  const std::vector<TemplateId> templates = template_of_device(plan);
  if (*device < 0 || static_cast<size_t>(*device) >= templates.size() ||
      !templates[static_cast<size_t>(*device)].valid())
    return error(ErrorCode::E205, {},
                 fmt::format("device {} has no plan; there are devices 0 to {}", *device, templates.size() - 1));
  return print_device(plan, *device);
}

Result<std::string> emit(const CompileCommand& command, const Compiled& compiled) {
  if (command.emit == "schedule") return print(compiled.schedule);
  if (command.emit == "dag") return print(compiled.linear.dag);
  if (command.emit == "plan") return plan_text(compiled.plan, command.device);
  if (command.emit == "timeline") return print_timeline(timed_rows(compiled.linear));
  if (command.emit == "grid")
    return print_grid(timed_rows(compiled.linear),
                      {command.input.columns, command.input.color ? GridColor::Ansi : GridColor::None});
  return summary_json(compiled);
}

std::string time_table(const std::vector<PassTime>& times) {
  TextTable table({"pass", "milliseconds", "nodes", "edges"});
  double total = 0;
  for (const PassTime& time : times) {
    table.add({time.pass, fmt::format("{:.2f}", time.seconds * 1e3), fmt::format("{}", time.nodes),
               fmt::format("{}", time.edges)});
    total += time.seconds;
  }
  table.add({"total", fmt::format("{:.2f}", total * 1e3), "", ""});
  return table.print();
}

bool computes(const PlanTemplate& of) {
  return std::any_of(of.ops.begin(), of.ops.end(), [](const PlannedOp& op) { return op.kind == OpKind::Run; });
}

/// Names of all passes that ran, for a --dump-after that names none of them.
Checked check_dumped(const std::vector<std::string>& wanted, const std::vector<PassTime>& times) {
  std::set<std::string> known;
  for (const PassTime& time : times) known.insert(time.pass);
  for (const std::string& pass : wanted)
    if (!known.contains(pass))
      return error(ErrorCode::E105, {}, fmt::format("--dump-after: no pass called \"{}\" ran", pass))
          .help(did_you_mean(pass, {known.begin(), known.end()}));
  return Ok{};
}

/// The time directive that a timeline would take the place of.
const Directive* find_orders(const Schedule& schedule) {
  for (const Directive& directive : schedule.directives)
    if (std::holds_alternative<Use>(directive.body) || std::holds_alternative<Order>(directive.body)) return &directive;
  return nullptr;
}

/// `use file(…)` for the stages and microbatches of a schedule.
Use use_of(const Schedule& schedule, const std::string& file) {
  Use use;
  use.timeline = "file";
  use.file = file;
  for (const Directive& directive : schedule.directives) {
    if (const auto* split = std::get_if<Split>(&directive.body)) use.microbatches = split->as;
    if (const auto* place = std::get_if<Place>(&directive.body); place && (place->stages > 0 || place->stage))
      use.stages = place->as;
  }
  return use;
}

Checked replace_directives(const CompileInput& input, Schedule& schedule) {
  std::string text;
  for (const std::string& directive : input.instead) text += directive + "\n";
  if (text.empty()) return Ok{};
  PIPER_TRY(const Schedule instead, parse_schedule(make_source("--with", text)));
  PIPER_TRY(schedule, with_directives(std::move(schedule), instead.directives));
  return Ok{};
}

/// The schedule file, ordered by the timeline file if there is one; a timeline alone is a pipeline.
Result<Schedule> load_schedule_of(const CompileInput& input) {
  Schedule schedule;
  if (!input.schedule.empty()) {
    PIPER_TRY(schedule, load_schedule(input.schedule));
  }
  PIPER_CHECK(replace_directives(input, schedule));
  if (input.timeline.empty()) return schedule;
  if (input.schedule.empty()) {
    PIPER_TRY(const ParsedTimeline parsed, load_timeline(input.timeline));
    PIPER_TRY(schedule, pipeline_of(strip(parsed.actions), parsed.source.whole));
  }
  if (const Directive* orders = find_orders(schedule))
    return error(ErrorCode::E303, orders->where,
                 fmt::format("{} orders the step, and so does --timeline {}", verb(orders->body), input.timeline))
        .help("take one of them out");
  schedule.directives.push_back({use_of(schedule, input.timeline), {}});
  return schedule;
}

}  // namespace

void put(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
}

Result<LoadedInput> load_input(const CompileInput& input) {
  LoadedInput out;
  PIPER_TRY(out.schedule, load_schedule_of(input));
  if (!input.cluster.empty()) {
    PIPER_TRY(out.cluster, load_cluster(input.cluster));
  }
  return out;
}

Cluster without_limits(Cluster cluster) {
  for (DeviceKind& kind : cluster.kinds) kind.memory.reset();
  return cluster;
}

Result<CompiledInput> compile_input(const CompileInput& input, const CompileOptions& options) {
  PIPER_TRY(const LoadedInput loaded, load_input(input));
  return compile_input(input, loaded, options);
}

Result<CompiledInput> compile_input(const CompileInput& input, const LoadedInput& loaded, const CompileOptions& given) {
  CompileOptions options = given;
  CompiledInput out;
  const auto load = [&](LayerForm form, TokenForm tokens) -> Result<std::shared_ptr<const ModelGraph>> {
    PIPER_TRY(ModelGraph model, load_model(input.model, input.step, form, tokens));
    return std::make_shared<const ModelGraph>(std::move(model));
  };
  PIPER_TRY(std::shared_ptr<const ModelGraph> model, load_model_for(loaded.schedule, load));
  out.cluster = loaded.cluster;
  options.cluster = without_limits(loaded.cluster);
  if (input.evaluation) options.plan_for = PlanFor::Evaluation;
  if (!input.costs.empty()) {
    PIPER_TRY(const SourceFilePtr file, read_file(input.costs, "cost table"));
    PIPER_TRY(options.costs, parse_cost_table(file));
    out.costs = options.costs;
  }
  out.schedule = loaded.schedule;
  out.plan_for = options.plan_for;
  PIPER_TRY(out.compiled, compile_with_hints(model, loaded.schedule, options));
  return out;
}

bool is_configuration(const CompileInput& input) {
  return input.model.ends_with(".toml");
}

namespace {

CompileOptions options_for(PlanFor plan_for, const Cluster& cluster, const std::optional<CostTable>& costs = {}) {
  CompileOptions out;
  out.plan_for = plan_for;
  out.cluster = cluster;
  out.costs = costs;
  return out;
}

}  // namespace

Checked CompiledInput::fits() const {
  return check_capacity_with_hints(compiled, schedule, options_for(plan_for, cluster, costs));
}

int report_text(const Diagnostic& problem, bool color) {
  std::fputs(render(problem, color ? Color::Always : Color::Never).c_str(), stderr);
  return refused;
}

int report(const std::string& format, bool color, const Diagnostic& problem) {
  if (format != "json") return report_text(problem, color);
  std::fputs(render_json(problem).c_str(), stderr);
  return refused;
}

int report(const CompileInput& input, const Diagnostic& problem) {
  return report(input.format, input.color, problem);
}

int run(const CompileCommand& command) {
  CompileOptions options;
  const std::set<std::string> dumped(command.dump_after.begin(), command.dump_after.end());
  options.after_pass = [&](std::string_view pass, const TrainingDag& dag) {
    if (dumped.contains(std::string(pass))) put(fmt::format("# after {}\n{}", pass, print(dag)));
  };
  auto input = compile_input(command.input, options);
  if (!input) return report(command.input, input.error());
  const Compiled* compiled = &input->compiled;
  if (auto good = check_dumped(command.dump_after, compiled->times); !good) return report(command.input, good.error());
  auto text = emit(command, *compiled);
  if (!text) return report(command.input, text.error());
  put(*text);
  if (command.time_passes) std::fputs(time_table(compiled->times).c_str(), stderr);
  if (auto fits = input->fits(); !fits) return report(command.input, fits.error());
  return fine;
}

namespace {

/// A model that can be trained is refused where training refuses it, for training's reason, and only there. What is
/// shown of it are names and numbers of its analytic form, as in all other commands; those of the captured one, where
/// the analytic form cannot follow the schedule.
struct CheckedInput {
  LoadedInput loaded;
  CompiledInput input;
  TrainingAnswer training;

  Checked fits() const {
    PIPER_CHECK(input.fits());
    const auto captured_fits = [&](const std::optional<Compiled>& captured, PlanFor plan_for) -> Checked {
      if (!captured) return Ok{};
      return check_capacity_with_hints(*captured, input.schedule, options_for(plan_for, input.cluster));
    };
    PIPER_CHECK(captured_fits(training.compiled, PlanFor::Training));
    return captured_fits(training.evaluation, PlanFor::Evaluation);
  }
  /// What a run saves: the captured model, where there is one.
  const Compiled& saved() const { return training.compiled ? *training.compiled : input.compiled; }
};
Result<CheckedInput> check_input(const CheckCommand& command) {
  PIPER_TRY(const LoadedInput loaded, load_input(command.input));
  auto training = ask_training(command, loaded);
  auto analytic = compile_input(command.input, loaded);
  if (!training) {
    const bool same = !analytic && analytic.error().code == training.error().code;
    return same ? analytic.error() : training.error();
  }
  const bool captured = compiles_kernels(command);  // no formula knows what a compiled chunk saves
  if (captured && !training->compiled)
    return error(ErrorCode::E105, {}, "--kernels inductor is for a configuration that can be trained")
        .help("leave it out: sizes come from formulas then");
  if (analytic && !captured) return CheckedInput{loaded, std::move(*analytic), std::move(*training)};
  if (!training->compiled || !command.input.costs.empty()) return analytic.error();  // costs are of the analytic form
  CheckedInput out;
  out.loaded = loaded;
  out.input.cluster = loaded.cluster;
  out.input.schedule = loaded.schedule;
  out.input.compiled = std::move(*training->compiled);
  out.training.evaluation = std::move(training->evaluation);
  return out;
}

/// Only where the cluster is known and the plan is small: the check of a schedule is quick.
constexpr size_t most_hinted_operations = 5'000;
struct Hints {
  std::vector<Hint> all;
  double seconds = 0;  // of a step without them
};
Hints hints_of(const CheckCommand& command, const CheckedInput& checked) {
  const Plan& plan = checked.input.compiled.plan;
  size_t operations = 0;
  for (const PlanTemplate& of : plan.templates) operations += of.ops.size();
  if (command.input.cluster.empty() || command.input.evaluation || operations > most_hinted_operations) return {};
  const auto& costs = checked.input.costs;
  const auto simulation = simulate(plan, checked.loaded.cluster, costs ? &*costs : nullptr);
  if (!simulation) return {};  // piper simulate says why
  const StepReport report =
      step_report(*checked.input.compiled.linear.dag.model, plan, checked.loaded.cluster, *simulation);
  return {hints_of(checked.input, checked.loaded.cluster, report, command.input, checked.loaded, {}), report.seconds};
}

void put_summary(const Compiled& compiled) {
  const Plan& plan = compiled.plan;
  size_t devices = 0, ops = 0;
  int64_t peak = 0;
  for (const PlanTemplate& t : plan.templates) {
    devices += t.devices.size();
    ops += t.ops.size();
    peak = std::max(peak, memory_peak(plan, t).total);
  }
  put(fmt::format("\nsound: {} devices in {} kinds, {} nodes, {} operations, plan {:016x}\n", devices,
                  plan.templates.size(), compiled.linear.dag.nodes.size(), ops, hash(plan)));
  put("proved: every communication is matched and in one order, no deadlock, no race, no use after free, memory in "
      "issue order\n");
  put(fmt::format("peak memory of a device: {} ({} bytes)\n", human_bytes(peak), peak));
}

void put_memory(const Plan& plan) {
  put(memory_table(plan));
  size_t devices = 0, idle = 0;
  for (const PlanTemplate& t : plan.templates) {
    devices += t.devices.size();
    if (!computes(t)) idle += t.devices.size();
  }
  if (idle > 0) put(fmt::format("note: {} of {} devices have nothing to compute\n", idle, devices));
}

}  // namespace

int run(const CheckCommand& command) {
  ask_with_libtorch(command);
  auto checked = check_input(command);
  if (!checked) return report(command.input, checked.error());
  const Plan& saved = checked->saved().plan;
  const StepConfig& step = checked->saved().linear.dag.model->step;
  const int devices = device_count(saved), processes = command.processes.value_or(devices);
  if (processes > devices)
    return report(command.input,
                  error(ErrorCode::E105, {}, fmt::format("--processes {}: there are {} devices", processes, devices))
                      .help("every process of a job has a device at least"));
  const Compiled& compiled = checked->input.compiled;
  const auto fits = checked->fits();
  const bool json = command.input.format == "json";
  const Hints hints = hints_of(command, *checked);
  if (json)
    put(summary_json(compiled,
                     command.checkpoint ? copies_by_process(saved, step, processes) : std::vector<EqualCopies>(),
                     hints.all));
  if (!json) put(step_line(compiled, command.input) + "\n");
  if (!json) put_memory(compiled.plan);
  if (!json && checked->training.evaluation) {
    put("\nwhile it is evaluated:\n");
    put(memory_table(checked->training.evaluation->plan));
  }
  if (!json && command.checkpoint) put("\n" + checkpoint_table(saved, step, processes));
  if (!fits) return report(command.input, fits.error());
  if (json) return fine;
  put_summary(compiled);
  put(hint_lines(hints.all, hints.seconds, command.command_line));
  if (!checked->training.asked)
    std::fputs("note: built without libtorch: whether piper train accepts the model with this schedule is not known\n",
               stderr);
  return fine;
}

int run(const ExplainCommand& command) {
  auto input = compile_input(command.input);
  if (!input) return report(command.input, input.error());
  const Compiled* compiled = &input->compiled;
  auto text = explain(*compiled, command.node);
  if (!text) return report(command.input, text.error());
  put(*text);
  return fine;
}

}  // namespace piper
