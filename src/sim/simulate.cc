#include "sim/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/invariant.h"

namespace piper {
namespace {

Result<Table<WorkId, double>> seconds_on(const DeviceKind& kind, const Plan& plan, const CostTable* measured) {
  Table<WorkId, double> seconds;
  for (const PlanWork& work : plan.works) {
    if (!measured) {
      seconds.push_back(compute_seconds(kind, work.dtype, work.does));
      continue;
    }
    const std::string& name = plan.names[work.name];
    PIPER_TRY(const double found, measured_seconds(*measured, name, work.pass, work.samples));
    seconds.push_back(found);
  }
  return seconds;
}

Checked check_works(const Plan& plan) {
  for (const PlanTemplate& t : plan.templates)
    for (const OpId i : t.ops.ids())
      if (!is_communication(t.ops[i].kind) && !t.ops[i].work.valid())
        return error(ErrorCode::E408, {}, fmt::format("{} does not say what it computes", describe(plan, t, i)))
            .help("a plan that is simulated needs `work=` on every run and update; the compiler writes it");
  return Ok{};
}

std::vector<LevelUse> level_use(const Cluster& cluster, const sim::Symmetry& symmetry, const sim::Groupings& groupings,
                                const sim::FlowTable& flows) {
  Table<sim::PortId, double> busy(flows.ports.size(), 0), bytes(flows.ports.size(), 0);
  for (const CommunicationId c : groupings.of_communication.ids()) {
    for (const sim::GroupKindId k : symmetry.groups[groupings.of_communication[c]].first.ids()) {
      const sim::Flow& flow = flows.of(c, k);
      for (const sim::PortUse& use : flow.uses) {
        busy[use.port] += use.share * flow.seconds;
        bytes[use.port] += use.bytes;
      }
    }
  }
  std::vector<LevelUse> levels;
  for (const LinkLevel& level : cluster.levels) levels.push_back({level.name, 0, 0});
  for (const sim::PortId p : flows.ports.ids()) {
    const sim::Port& port = flows.ports[p];
    LevelUse& level = levels[static_cast<size_t>(port.level)];
    level.busiest = std::max(level.busiest, busy[p]);
    const std::vector<sim::PortKindId>& kinds = symmetry.ports[static_cast<size_t>(port.level)].of;
    if (port.outward) level.bytes += bytes[p] * static_cast<double>(std::count(kinds.begin(), kinds.end(), port.kind));
  }
  return levels;
}

Table<CommunicationId, int> limiting_levels(const sim::Symmetry& symmetry, const sim::Groupings& groupings,
                                            const sim::FlowTable& flows) {
  Table<CommunicationId, int> levels;
  for (const CommunicationId c : groupings.of_communication.ids()) {
    double most = 0;
    int level = -1;
    for (const sim::GroupKindId k : symmetry.groups[groupings.of_communication[c]].first.ids())
      for (const sim::PortUse& use : flows.of(c, k).uses)
        if (use.share > most) {
          most = use.share;
          level = flows.ports[use.port].level;
        }
    levels.push_back(level);
  }
  return levels;
}

/// Computations on sorted rows take as long as those of the busiest device.
void compute_rows(const Plan& plan, const sim::RowExchanges& rows, std::vector<Table<WorkId, double>>& seconds) {
  std::map<std::pair<PartitionId, int64_t>, double> first;  // by what divides them, and its buffer
  for (const CommunicationId c : plan.communications.ids())
    if (const Communication& of = plan.communications[c]; of.buffer > 0)
      first[{of.over, of.buffer}] = rows.loads[c].first;
  for (const WorkId w : plan.works.ids())
    if (const auto load = first.find({plan.works[w].shards.routed(), plan.works[w].buffer}); load != first.end())
      for (Table<WorkId, double>& of_kind : seconds) of_kind[w] *= load->second;
}

/// What further rounds compute, on the slowest kind of device.
void compute_rounds(const Plan& plan, const std::vector<Table<WorkId, double>>& seconds, sim::RowExchanges& rows) {
  for (const PlanTemplate& t : plan.templates)
    for (const PlannedOp& op : t.ops) {
      if (op.kind != OpKind::Rounds || !op.work.valid()) continue;
      double slowest = 0;
      for (const Table<WorkId, double>& of_kind : seconds) slowest = std::max(slowest, of_kind[op.work]);
      rows.computing[op.communication] = slowest * rows.loads[op.communication].further;
    }
}

}  // namespace

Result<Simulation> simulate(const Plan& plan, const Cluster& cluster, const CostTable* measured,
                            const SimOptions& options) {
  const std::vector<TemplateId> template_of = template_of_device(plan);
  PIPER_CHECK(check_devices(cluster, static_cast<int>(template_of.size()), {}));
  PIPER_CHECK(check_works(plan));
  const sim::Groupings groupings = sim::find_groupings(plan, cluster);
  // devices that share a processor may be alike, but do not do the same at the same time
  const bool all = options.all_devices || std::any_of(cluster.nodes.begin(), cluster.nodes.end(),
                                                      [](const NodeRun& run) { return run.processors > 0; });
  const sim::Symmetry symmetry =
      sim::find_symmetry(plan, cluster, groupings, all ? sim::Reduce::Nothing : sim::Reduce::AlikeDevices);
  std::vector<Table<WorkId, double>> seconds;
  for (const DeviceKind& kind : cluster.kinds) {
    PIPER_TRY(auto of_kind, seconds_on(kind, plan, measured));
    seconds.push_back(std::move(of_kind));
  }
  sim::RowExchanges rows{sim::row_loads(plan, options.routing), {}};
  rows.computing.assign(plan.communications.size(), 0);
  compute_rounds(plan, seconds, rows);
  compute_rows(plan, rows, seconds);
  const sim::FlowTable flows = sim::find_flows(plan, cluster, groupings, symmetry, rows);
  const sim::EventInput input{plan, cluster, groupings, symmetry, flows, std::move(seconds), options.shared_links};
  auto times = sim::run_events(input);
  if (!times)
    return error(ErrorCode::E401, {}, "the devices wait for each other for ever")
        .help("check the plan first: piper check names the operations");
  Simulation out;
  out.times = std::move(*times);
  for (const double end : out.times.end) out.seconds = std::max(out.seconds, end);
  out.seconds += cluster.step;
  out.devices.resize(symmetry.devices.count());
  for (size_t d = 0; d < symmetry.devices.of.size(); ++d)
    if (const sim::LaneId lane = symmetry.devices.of[d]; lane.valid()) out.devices[lane].push_back(static_cast<int>(d));
  for (const DeviceList& devices : out.devices) out.plan_of.push_back(template_of[static_cast<size_t>(devices[0])]);
  out.limited_by = limiting_levels(symmetry, groupings, flows);
  out.levels = level_use(cluster, symmetry, groupings, flows);
  for (const CommunicationId c : plan.communications.ids())
    if (plan.communications[c].buffer > 0) out.rows = std::max(out.rows.value_or(rows.loads[c]), rows.loads[c]);
  return out;
}

}  // namespace piper
