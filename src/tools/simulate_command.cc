#include "tools/simulate_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/text_table.h"
#include "base/time_text.h"
#include "base/write_file.h"
#include "cost/what_if.h"
#include "sim/as_trace.h"
#include "sim/bare_timeline.h"
#include "timelines/load_timeline.h"
#include "tools/hint_line.h"
#include "tools/loss_report.h"
#include "tools/parse_costs.h"
#include "tools/read_routing.h"
#include "tools/step_line.h"
#include "trace/chrome.h"

namespace piper {
namespace {

using nlohmann::ordered_json;

ordered_json as_json(const StepReport& report, const Plan& plan) {
  ordered_json out;
  out["seconds"] = report.seconds;
  out["tokens_per_second"] = report.tokens_per_second;
  out["mfu"] = report.mfu;
  out["bubble"] = report.bubble;
  out["exposed_communication"] = report.exposed;
  out["peak_bytes"] = report.peak_bytes;
  for (const DeviceReport& d : report.devices) {
    ordered_json entry;
    entry["devices"] = d.devices;
    entry["compute_seconds"] = d.use.compute;
    entry["exposed_seconds"] = d.use.exposed;
    entry["idle_seconds"] = d.use.idle;
    entry["communication_seconds"] = d.use.communication;
    for (const PlanStreamId s : plan.streams.ids()) entry["busy_seconds"][plan.streams[s]] = d.use.busy[s.index()];
    entry["peak_bytes"] = d.peak_bytes;
    out["devices"].push_back(std::move(entry));
  }
  for (const LevelUse& level : report.levels)
    out["links"].push_back(
        {{"name", level.name}, {"sent_bytes", level.bytes}, {"busiest_port_seconds", level.busiest}});
  for (const PathShare& share : report.path)
    out["critical_path"].push_back({{"what", share.what}, {"seconds", share.seconds}, {"steps", share.steps}});
  for (const PathShare& share : report.path_operations)
    out["critical_operations"].push_back({{"what", share.what}, {"seconds", share.seconds}, {"steps", share.steps}});
  return out;
}

/// What it costs that some experts get more rows than others.
std::string routing_line(const Simulated& simulated) {
  if (!simulated.balanced_seconds) return "";
  const sim::RowLoad& rows = *simulated.simulation.rows;
  const double step = simulated.simulation.seconds, balanced = *simulated.balanced_seconds;
  return fmt::format(
      "routing: {:.2f} times the balanced load on the busiest device, {:.2f} of it in further rounds (at most {} "
      "rounds); a balanced step takes {}, so skew costs {:+.1f} %\n",
      rows.first + rows.further, rows.further, rows.rounds, human_seconds(balanced), 100 * (step / balanced - 1));
}

std::string print_json(const Simulated& simulated, const std::vector<Hint>& hints) {
  ordered_json out;
  out["version"] = 1;
  out["model"] = simulated.input.compiled.plan.model;
  add_step_to(out, simulated.input.compiled);
  out["cluster"] = simulated.cluster.name;
  out["hash"] = fmt::format("{:016x}", hash(simulated.input.compiled.plan));
  out.update(as_json(simulated.report, simulated.input.compiled.plan));
  if (simulated.balanced_seconds) {
    const sim::RowLoad& rows = *simulated.simulation.rows;
    out["routing"] = {{"busiest_load", rows.first + rows.further},
                      {"further_rounds_load", rows.further},
                      {"rounds", rows.rounds},
                      {"balanced_seconds", *simulated.balanced_seconds}};
  }
  add_hints_to(out, hints);
  return out.dump(2) + "\n";
}

/// One schedule of a comparison: its report, or why there is none.
struct Row {
  std::string schedule;
  std::optional<Simulated> simulated;
  std::optional<Diagnostic> refused;  // also of a plan that runs but does not fit

  bool fits() const { return simulated && !refused; }
  /// Those that fit first, then those that do not, each by time; last what cannot be simulated.
  std::pair<int, double> order() const {
    return {fits() ? 0 : simulated ? 1 : 2, simulated ? simulated->report.seconds : 0};
  }
};

/// A schedule that is refused is a result; a file that cannot be read is none.
Result<std::vector<Row>> simulate_all(const CompareCommand& command) {
  std::vector<Row> rows;
  for (const std::string& schedule : command.schedules) {
    Row row{schedule, {}, {}};
    CompileInput input = command.input;
    input.schedule = schedule;
    const auto loaded = load_input(input);
    auto simulated = loaded ? simulate_input(input, *loaded, command.simulation) : Result<Simulated>(loaded.error());
    if (!simulated) {
      if (simulated.error().code == ErrorCode::E108) return std::move(simulated.error());
      row.refused = simulated.error();
    } else {
      if (auto fits = simulated->input.fits(); !fits) row.refused = fits.error();
      row.simulated = std::move(*simulated);
    }
    rows.push_back(std::move(row));
  }
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.order() < b.order(); });
  return rows;
}

/// The fastest of those that fit, or none.
const Row* best_of(const std::vector<Row>& rows) {
  return rows.empty() || !rows[0].fits() ? nullptr : &rows[0];
}

/// How much longer a step takes than the fastest that fits; nothing where there is none.
std::optional<double> difference(const Row& row, const Row* best) {
  if (!best || !row.simulated) return std::nullopt;
  return row.simulated->report.seconds / best->simulated->report.seconds - 1;
}

std::string comparison_table(const std::vector<Row>& rows) {
  std::vector<std::string> header = {"",    "schedule", "step",    "difference", "tokens/s",
                                     "MFU", "bubble",   "exposed", "peak memory"};
  for (const Row& row : rows)
    if (row.simulated) {
      for (const LevelUse& level : row.simulated->report.levels) header.push_back("sent by " + level.name);
      break;
    }
  header.emplace_back("");
  TextTable table(header);
  const Row* best = best_of(rows);
  for (const Row& row : rows) {
    std::vector<std::string> cells = {&row == best ? "*" : "", row.schedule};
    if (row.simulated) {
      const StepReport& r = row.simulated->report;
      const std::optional<double> slower = difference(row, best);
      for (std::string cell :
           {human_seconds(r.seconds), slower && &row != best ? fmt::format("{:+.1f} %", 100 * *slower) : std::string(),
            fmt::format("{:.0f}", r.tokens_per_second), fmt::format("{:.1f} %", 100 * r.mfu),
            fmt::format("{:.1f} %", 100 * r.bubble), fmt::format("{:.1f} %", 100 * r.exposed),
            human_bytes(r.peak_bytes)})
        cells.push_back(std::move(cell));
      for (const LevelUse& level : r.levels) cells.push_back(human_bytes(static_cast<int64_t>(level.bytes)));
    }
    cells.resize(header.size() - 1);
    cells.push_back(row.refused ? fmt::format("{}: {}", name(row.refused->code), row.refused->message) : "");
    table.add(std::move(cells));
  }
  std::string out = table.print();
  if (best) out += "* the fastest that fits\n";
  return out;
}

std::string comparison_json(const std::vector<Row>& rows) {
  ordered_json out;
  out["version"] = 1;
  const Row* best = best_of(rows);
  for (const Row& row : rows) {
    ordered_json entry;
    entry["schedule"] = row.schedule;
    entry["best"] = &row == best;
    entry["fits"] = row.fits();
    if (const auto slower = difference(row, best)) entry["difference"] = *slower;
    if (row.refused) entry["refused"] = ordered_json::parse(render_json(*row.refused));
    if (row.simulated) entry.update(as_json(row.simulated->report, row.simulated->input.compiled.plan));
    out["schedules"].push_back(std::move(entry));
  }
  return out.dump(2) + "\n";
}

Result<std::string> simulate_bare(const SimulateCommand& command) {
  PIPER_TRY(const ParsedTimeline parsed, load_timeline(command.input.timeline));
  CostOption costs;
  if (!command.costs.empty()) {
    PIPER_TRY(costs, parse_costs(command.costs, OverlapCost::Taken));
  }
  const Timeline timeline = strip(parsed.actions);
  PIPER_CHECK(check_costs(timeline, costs.costs, {}));
  const TimelineReport report = timeline_report(timeline, costs.costs, costs.overlap);
  if (command.input.format == "json") {
    ordered_json out;
    out["version"] = 1;
    out["makespan"] = report.makespan;
    out["busy"] = report.busy;
    out["idle"] = report.bubble;  // all of it: no communication fills any
    out["span"] = report.span;
    out["span_bubble"] = report.span_bubble;
    out["peak_until_w"] = report.peak_until_w;
    out["peak_until_i"] = report.peak_until_i;
    return out.dump(2) + "\n";
  }
  TextTable table({"rank", "busy", "bubble", "span", "bubble in span", "peak until W", "peak until I"});
  for (size_t r = 0; r < report.busy.size(); ++r)
    table.add({fmt::format("{}", r), fmt::format("{:.6g}", report.busy[r]), fmt::format("{:.6g}", report.bubble[r]),
               fmt::format("{:.6g}", report.span[r]), fmt::format("{:.6g}", report.span_bubble[r]),
               fmt::format("{}", report.peak_until_w[r]), fmt::format("{}", report.peak_until_i[r])});
  return fmt::format("makespan {:.6g}\n{}", report.makespan, table.print());
}

}  // namespace

Result<Simulated> simulate_input(const CompileInput& input, const LoadedInput& loaded, const SimulationInput& how) {
  Simulated out;
  PIPER_TRY(out.input, compile_input(input, loaded));
  out.cluster = out.input.cluster;
  std::optional<CostTable> costs = out.input.costs;
  if (!how.what_if.empty()) {
    PIPER_TRY(const WhatIf what_if, parse_what_if(how.what_if, out.cluster));
    out.cluster = changed(std::move(out.cluster), what_if);
    if (costs)
      for (auto& [key, seconds] : costs->seconds) seconds /= what_if.compute;
  }
  const Plan& plan = out.input.compiled.plan;
  SimOptions options{how.all_devices, !how.free_links, {}};
  if (!how.routing.empty()) {
    PIPER_TRY(options.routing, read_routing(how.routing));
    PIPER_CHECK(check_routing(plan, options.routing));
  }
  PIPER_TRY(out.simulation, simulate(plan, out.cluster, costs ? &*costs : nullptr, options));
  if (!options.routing.balanced() && out.simulation.rows) {
    options.routing = {};
    PIPER_TRY(const Simulation balanced, simulate(plan, out.cluster, costs ? &*costs : nullptr, options));
    out.balanced_seconds = balanced.seconds;
  }
  out.report = step_report(*out.input.compiled.linear.dag.model, plan, out.cluster, out.simulation);
  return out;
}

std::vector<Hint> hints_of(const CompiledInput& compiled, const Cluster& cluster, const StepReport& report,
                           const CompileInput& input, const LoadedInput& loaded, const SimulationInput& how) {
  const HintedStep step{loaded.schedule, compiled.compiled, cluster, report, static_cast<bool>(compiled.fits())};
  return hints(step, [&](const Schedule& schedule) -> Result<TriedStep> {
    LoadedInput changed = loaded;
    changed.schedule = schedule;
    PIPER_TRY(const Simulated tried, simulate_input(input, changed, how));
    return TriedStep{tried.report.seconds, static_cast<bool>(tried.input.fits())};
  });
}

namespace {

/// What it costs to go on without the devices that fail.
Result<std::string> fail(const SimulateCommand& command, const LoadedInput& loaded, const Simulated& simulated) {
  PIPER_TRY(const DeviceList lost, parse_lost(command.fail));
  const Compiled& compiled = simulated.input.compiled;
  const RunningStep step{loaded.schedule, compiled.linear.dag.model, simulated.cluster, simulated.input.costs};
  PIPER_TRY(const Evaluated before, evaluate(step.model, step.schedule, step.cluster, step.costs));
  std::vector<SingleLoss> losses;
  if (lost.empty()) {
    losses = single_losses(step, {simulated.simulation.devices.begin(), simulated.simulation.devices.end()});
  } else {
    PIPER_TRY(Evaluated without, shrink(step, lost));
    losses.push_back({lost, std::move(without)});
  }
  if (command.input.format == "json") return losses_json(compiled.plan.model, simulated.cluster, before, losses);
  return step_line(compiled, command.input) + "\n" +
         (lost.empty() ? print_losses(before, losses) : print_loss(before, lost, *losses[0].without));
}

}  // namespace

int run(const SimulateCommand& command) {
  if (command.input.model.empty()) {
    auto text = simulate_bare(command);
    if (!text) return report(command.input, text.error());
    put(*text);
    return fine;
  }
  const auto loaded = load_input(command.input);
  if (!loaded) return report(command.input, loaded.error());
  auto simulated = simulate_input(command.input, *loaded, command.simulation);
  if (!simulated) return report(command.input, simulated.error());
  if (!command.fail.empty()) {
    const auto text = fail(command, *loaded, *simulated);
    if (!text) return report(command.input, text.error());
    put(*text);
    return fine;
  }
  std::vector<Hint> hints;
  if (command.hints && !command.input.evaluation)
    hints =
        hints_of(simulated->input, simulated->cluster, simulated->report, command.input, *loaded, command.simulation);
  put(command.input.format == "json"
          ? print_json(*simulated, hints)
          : step_line(simulated->input.compiled, command.input) + "\n" + print(simulated->report) +
                routing_line(*simulated) + hint_lines(hints, simulated->report.seconds, command.command_line));
  if (!command.trace.empty()) {
    Trace trace = as_trace(simulated->input.compiled.plan, simulated->cluster, simulated->simulation);
    const StepConfig& step = simulated->input.compiled.linear.dag.model->step;
    trace.tokens = step.batch * step.sequence;
    trace.seconds_at_peak = simulated->report.mfu * simulated->report.seconds;
    if (auto written = write_file(command.trace, print_chrome(trace)); !written) {
      report(command.input, written.error());
      return run_failed;
    }
  }
  if (auto fits = simulated->input.fits(); !fits) return report(command.input, fits.error());
  return fine;
}

int run(const CompareCommand& command) {
  auto rows = simulate_all(command);
  if (!rows) return report(command.input, rows.error());
  const auto first = std::ranges::find_if(*rows, [](const Row& row) { return row.simulated.has_value(); });
  if (command.input.format != "json" && first != rows->end())
    put(model_line(first->simulated->input.compiled, command.input));
  put(command.input.format == "json" ? comparison_json(*rows) : comparison_table(*rows));
  return std::ranges::all_of(*rows, &Row::fits) ? fine : refused;
}

}  // namespace piper
