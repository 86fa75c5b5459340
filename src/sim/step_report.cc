#include "sim/step_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/text_table.h"
#include "base/time_text.h"
#include "plan/issue_order_memory.h"

namespace piper {
namespace {

/// Forward and backward once for the whole batch.
double model_flops(const ModelGraph& model) {
  double flops = 0;
  for (const Chunk& chunk : model.chunks) {
    const bool whole = chunk.find(Pass::B) != nullptr;
    for (const Pass pass : {Pass::F, Pass::B, Pass::BI, Pass::BW})
      if (const PassWork* work = chunk.find(pass); work && (whole ? pass == Pass::F || pass == Pass::B : true))
        flops += static_cast<double>(work->flops.at(model.step.batch));
  }
  return flops;
}

std::string percent(double share) {
  return fmt::format("{:.1f} %", 100 * share);
}

}  // namespace

StepReport step_report(const ModelGraph& model, const Plan& plan, const Cluster& cluster,
                       const Simulation& simulation) {
  StepReport report;
  report.seconds = simulation.seconds;
  const Table<sim::LaneId, TimeUse> uses = device_use(plan, simulation);
  double time = 0, computing = 0, exposed = 0, peak_flops = 0;
  for (const sim::LaneId lane : simulation.devices.ids()) {
    const DeviceList& devices = simulation.devices[lane];
    const auto count = static_cast<double>(devices.size());
    time += count * simulation.seconds;
    computing += count * uses[lane].compute;
    exposed += count * uses[lane].exposed;
    peak_flops += count * kind_of(cluster, devices[0]).peak[static_cast<size_t>(model.step.weights)];
    const PlanTemplate& t = plan.templates[simulation.plan_of[lane]];
    report.devices.push_back({devices, uses[lane], issue_order_use(t).peak});
    report.peak_bytes = std::max(report.peak_bytes, report.devices.back().peak_bytes);
  }
  if (time > 0) {
    report.bubble = 1 - computing / time;
    report.exposed = exposed / time;
    report.tokens_per_second =
        static_cast<double>(model.step.batch) * static_cast<double>(model.step.sequence) / simulation.seconds;
    report.mfu = model_flops(model) / (peak_flops * simulation.seconds);
  }
  report.levels = simulation.levels;
  const std::vector<CriticalStep> path = critical_path(simulation);
  report.path = path_shares(plan, simulation, path);
  if (cluster.step > 0) report.path.push_back({"every step", cluster.step, 1});
  report.path_operations = path_operations(plan, simulation, path);
  report.path_operations.resize(std::min<size_t>(10, report.path_operations.size()));
  return report;
}

std::string print(const StepReport& report) {
  std::string out;
  out += fmt::format("step               {}\n", human_seconds(report.seconds));
  out += fmt::format("tokens per second  {:.0f}\n", report.tokens_per_second);
  out += fmt::format("MFU                {}\n", percent(report.mfu));
  out += fmt::format("bubble             {} of the devices' time is without computation\n", percent(report.bubble));
  out +=
      fmt::format("exposed            {} of their time waits for communication in progress\n", percent(report.exposed));
  out += fmt::format("peak memory        {}\n\n", human_bytes(report.peak_bytes));

  TextTable devices({"devices", "computes", "exposed", "idle", "peak memory"});
  for (const DeviceReport& d : report.devices) {
    const double step = std::max(report.seconds, 1e-300);
    devices.add({print_devices(d.devices), percent(d.use.compute / step), percent(d.use.exposed / step),
                 percent(d.use.idle / step), human_bytes(d.peak_bytes)});
  }
  out += devices.print() + "\n";

  TextTable links({"links", "sent", "busiest port"});
  for (const LevelUse& level : report.levels)
    links.add({level.name, human_bytes(static_cast<int64_t>(level.bytes)),
               percent(level.busiest / std::max(report.seconds, 1e-300))});
  out += links.print() + "\n";

  TextTable path({"critical path", "share", "of these mostly", "share"});
  const auto cells = [&](const std::vector<PathShare>& shares, size_t row) -> std::vector<std::string> {
    if (row >= shares.size()) return {"", ""};
    return {shares[row].what, percent(shares[row].seconds / std::max(report.seconds, 1e-300))};
  };
  size_t rows = 0;  // what matters
  while (rows < report.path.size() && report.path[rows].seconds >= 5e-4 * report.seconds) ++rows;
  for (size_t row = 0; row < std::max(rows, std::min<size_t>(5, report.path_operations.size())); ++row) {
    std::vector<std::string> line = row < rows ? cells(report.path, row) : std::vector<std::string>{"", ""};
    for (std::string& cell : cells(report.path_operations, row)) line.push_back(std::move(cell));
    path.add(std::move(line));
  }
  out += path.print();
  return out;
}

}  // namespace piper
