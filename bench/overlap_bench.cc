// How much of an all-to-all that takes half as long as computation the overlapped pairs of DualPipeV hide, on two
// devices: as simulated, with computations that only wait, and with real ones. Exposed is the time of a pair less its
// computation.
#include <map>

#include "sim/simulate.h"
#include "train/loop/measured.h"
#include "waiting_job.h"

namespace {

using namespace piper;

constexpr const char model_text[] = R"([model]
name = "mixture"
arch = "reference-moe"
layers = 8
hidden = {}
heads = 4
vocab = 256
experts = 4
seq = {}

[step]
batch = 16
)";

constexpr const char* schedule_text = R"(mesh(pp=1, ep=2)
split(batch, parts=8, as=mb)
place({}, along=pp, stages=2, shape=v)
replicate({}, along=ep)
shard({experts=*}, along=ep)
use dualpipev(stages=stage, microbatches=mb)
)";

/// One of the two sides of a pair: the computations of a pass of a stage for a microbatch.
struct Side {
  Pass pass = Pass::F;
  int slice = -1, stage = 0;
  friend auto operator<=>(const Side&, const Side&) = default;
};

int stage_of(const std::string& chunk) {
  return chunk.starts_with("head") || chunk >= "layer.4" ? 1 : 0;
}

struct SideTimes {
  OpId first, last;
  double start = 1e9, end = 0, computation = 0;
};

struct Hidden {
  std::vector<double> shares;  // of every pair
  double computation = 0, exchange = 0;
};

/// The pairs of one device: sides whose computations alternate.
Hidden hidden_on(const Plan& plan, const PlanTemplate& program, const sim::SimulatedTimes& times, sim::LaneId lane,
                 const Table<CommunicationId, double>& exchange_seconds) {
  std::map<Side, SideTimes> sides;
  for (const OpId i : program.ops.ids()) {
    const PlannedOp& op = program.ops[i];
    if (op.kind != OpKind::Run) continue;
    SideTimes& side = sides[{*op.label.pass, op.label.slice, stage_of(plan.names[op.label.name])}];
    if (!side.first.valid()) side.first = i;
    side.last = i;
    const sim::SimulatedOpId here = times.at(lane, i);
    side.start = std::min(side.start, times.start[here]);
    side.end = std::max(side.end, times.end[here]);
    side.computation += times.end[here] - times.start[here];
  }
  Hidden out;
  for (const auto& [forward, f] : sides)
    for (const auto& [backward, b] : sides) {
      if (forward.pass != Pass::F || backward.pass == Pass::F || f.last < b.first || b.last < f.first) continue;
      double exchange = 0;
      for (const OpId i : IdRange<OpId>{std::min(f.first, b.first), std::max(f.last, b.last)})
        if (program.ops[i].kind == OpKind::AllToAll) exchange += exchange_seconds[program.ops[i].communication];
      const double computation = f.computation + b.computation;
      const double time = std::max(f.end, b.end) - std::min(f.start, b.start);
      out.shares.push_back(1 - (time - computation) / exchange);
      out.computation += computation;
      out.exchange += exchange;
    }
  return out;
}

double total_computation(const Plan& plan, const PlanTemplate& program, const CostTable& costs) {
  double total = 0;
  for (const PlannedOp& op : program.ops)
    if (op.kind == OpKind::Run) {
      const PlanWork& work = plan.works[op.work];
      total += must(measured_seconds(costs, plan.names[work.name], work.pass, work.samples));
    }
  return total;
}

/// Links on which the exchanges of the plan take half as long as its computations.
Cluster half_as_long(const Plan& plan, const CostTable& costs) {
  const PlanTemplate& program = plan.templates.front();
  constexpr double latency = 10e-6;
  double bytes = 0, count = 0;
  for (const PlannedOp& op : program.ops)
    if (op.kind == OpKind::AllToAll) {
      bytes += static_cast<double>(plan.communications[op.communication].bytes) / 2;
      ++count;
    }
  return one_level(latency, bytes / (total_computation(plan, program, costs) / 2 - count * latency));
}

/// Of all pairs of five steps.
Hidden measured(const TrainableModel& model, const PreparedTraining& prepared, const CostTable& costs,
                const Cluster& cluster, Computing how) {
  const Table<CommunicationId, double> seconds = communication_seconds(*prepared.plan, cluster);
  WaitingJob job(model, prepared, &costs, &cluster, how);
  for (int i = 0; i < 2; ++i) job.step();
  Hidden out;
  for (int64_t step = 2; step < 7; ++step) {
    job.step();
    const Simulation times = measured_step(*prepared.plan, flights_of(job.job().devices()), step);
    for (size_t d = 0; d < job.job().devices().size(); ++d) {
      const Hidden one =
          hidden_on(*prepared.plan, job.job().devices()[d]->program(), times.times, sim::LaneId(d), seconds);
      out.shares.insert(out.shares.end(), one.shares.begin(), one.shares.end());
      out.computation += one.computation;
      out.exchange += one.exchange;
    }
  }
  return out;
}

void print(const char* what, int width, const Hidden& hidden) {
  const Sample sample = sample_of(hidden.shares);
  fmt::print("{:<10} {:>6} {:>6} {:>24.2f} {:>14.1f} {:>12.1f} .. {:.1f}\n", what, width, hidden.shares.size(),
             hidden.exchange / hidden.computation, 100 * sample.median, 100 * sample.least, 100 * sample.most);
}

/// With this width and length of samples.
void measure(int hidden, int length) {
  const TrainableModel model = model_of(fmt::format(model_text, hidden, length));
  const Schedule schedule = schedule_of(schedule_text);
  CompileOptions options;
  {
    const PreparedTraining first = must(prepare_training(model, schedule, options));
    options.costs = profiled(model, first);
    options.cluster = half_as_long(*first.plan, *options.costs);
  }
  const PreparedTraining prepared = must(prepare_training(model, schedule, options));
  const Plan& plan = *prepared.plan;
  const Table<CommunicationId, double> seconds = communication_seconds(plan, options.cluster);
  SimOptions alone;
  alone.shared_links = false;
  const Simulation predicted = must(simulate(plan, options.cluster, &*options.costs, alone));
  print("simulated", hidden, hidden_on(plan, plan.templates.front(), predicted.times, sim::LaneId(0), seconds));
  for (const Computing how : {Computing::Waits, Computing::Computes})
    print(how == Computing::Waits ? "waiting" : "computing", hidden,
          measured(model, prepared, *options.costs, options.cluster, how));
}

}  // namespace

int main() {
  fmt::print("{:<10} {:>6} {:>6} {:>24} {:>14} {:>20}\n", "", "hidden", "pairs", "exchange / computation", "hidden %",
             "least .. most");
  for (const int size : {1, 2}) measure(128 * size, 64 * size);
}
