// The balance of causal attention whose tokens are divided: in zigzag order every device takes a part of the time of
// one device, in the order of the tokens the last one takes 2 - 1/P times as long.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "compile/compile.h"
#include "cost/load_cluster.h"
#include "model/load_model.h"
#include "model/model_text.h"
#include "must.h"
#include "schedule/model_form.h"
#include "schedule/schedule_text.h"
#include "sim/simulate.h"

namespace piper {
namespace {

constexpr int devices = 4;

struct Simulated {
  double seconds = 0;
  std::vector<double> attention;  // by device: seconds of its cores
};

Simulated simulated(const ModelGraph& model, int parts, const std::string& order,
                    const std::string& sequence = "gather") {
  CompileOptions options;
  options.cluster = must(load_cluster("h100"));
  options.cluster.kinds[0].memory.reset();  // of one device too, which would need more
  const std::string schedule = fmt::format(
      "mesh(cp={})\nplace({{}}, mesh={{}})\nreplicate({{}}, along=cp)\nshard({{}}, along=cp, sequence={}, "
      "order={})\n",
      parts, sequence, order);
  const Plan plan = must(compile(std::make_shared<const ModelGraph>(model),
                                 must(parse_schedule(make_source("schedule.piper", schedule))), options))
                        .plan;
  const Simulation simulation = must(simulate(plan, options.cluster));
  Simulated out;
  out.seconds = simulation.seconds;
  out.attention.resize(static_cast<size_t>(parts));
  size_t at = 0;
  for (const sim::LaneId lane : simulation.devices.ids()) {
    double seconds = 0;
    for (const PlannedOp& op : plan.templates[simulation.plan_of[lane]].ops) {
      const sim::SimulatedOpId id(at++);
      if (op.kind == OpKind::Run && plan.names[op.label.name].find("core") != std::string::npos)
        seconds += simulation.times.end[id] - simulation.times.start[id];
    }
    for (const int device : simulation.devices[lane]) out.attention[static_cast<size_t>(device)] = seconds;
  }
  return out;
}

/// The last device of the ring, and every other one, as if nobody waited.
void expect_known_balance_of_ring(const ModelGraph& model, double part) {
  const Simulated zigzag = simulated(model, devices, "zigzag", "ring"),
                  contiguous = simulated(model, devices, "contiguous", "ring");
  for (int d = 0; d < devices; ++d) {
    EXPECT_NEAR(zigzag.attention[static_cast<size_t>(d)], part, 0.05 * part) << d;
    const double known = (2.0 * d + 1) / devices * part;
    EXPECT_NEAR(contiguous.attention[static_cast<size_t>(d)], known, 0.05 * part) << d;
  }
}

void expect_known_balance(const ModelGraph& model) {
  const double part = simulated(model, 1, "zigzag").attention[0] / devices;
  const Simulated zigzag = simulated(model, devices, "zigzag"), contiguous = simulated(model, devices, "contiguous");
  for (int d = 0; d < devices; ++d) {
    EXPECT_NEAR(zigzag.attention[static_cast<size_t>(d)], part, 0.05 * part) << d;
    const double known = (2.0 * d + 1) / devices * part;
    EXPECT_NEAR(contiguous.attention[static_cast<size_t>(d)], known, 0.05 * known) << d;
  }
  for (const char* order : {"zigzag", "contiguous"})  // all tokens of a part of the heads
    for (const double attention : simulated(model, devices, order, "heads").attention)
      EXPECT_NEAR(attention, part, 0.05 * part);
}

/// Of a step that is attention and nothing else.
TEST(ContextBalance, OfTheWholeStep) {
  const ModelGraph model = must(parse_model(make_source("attention", R"(model attention
context
step batch=1 sequence=64 weights=bfloat16 gradients=float32 optimizer=sgd
input tokens int64 [b, sequence=64]
value q bfloat16 [b, sequence=64, tp=16]
value k bfloat16 [b, sequence=64, tp=16]
value y bfloat16 [b, sequence=64, tp=16]
value d.y bfloat16 [b, sequence=64, tp=16]
value d.q bfloat16 [b, sequence=64, tp=16]
value d.k bfloat16 [b, sequence=64, tp=16]
loss loss float32 []
chunk project {embed=0}
  F (tokens) -> (q, k)
  B (tokens, d.q, d.k) -> ()
chunk core {core=0} all_tokens(k, d.k) causal
  F (q, k) -> (y) flops=1000000000000*b
  B (q, k, d.y) -> (d.q, d.k) flops=2500000000000*b
chunk head {head=0}
  F (y) -> (loss)
  B (y) -> (d.y)
)")));
  expect_known_balance(model);
  const double part = simulated(model, 1, "zigzag").seconds / devices;
  EXPECT_NEAR(simulated(model, devices, "zigzag").seconds, part, 0.05 * part);
  EXPECT_NEAR(simulated(model, devices, "contiguous").seconds, 1.75 * part, 0.05 * part);
}

/// Of the attention of a model of today, with what operators of these sizes reach.
TEST(ContextBalance, OfLlama) {
  StepOverrides step;
  step.batch = 1;
  step.sequence = 65536;
  const ModelGraph model =
      must(load_model("analytic:Llama-3-8B", step, LayerForm::Sharded, TokenForm{.divided = true}));
  expect_known_balance(model);
  expect_known_balance_of_ring(
      must(load_model("analytic:Llama-3-8B", step, LayerForm::Sharded, TokenForm{.divided = true, .ring = devices})),
      simulated(model, 1, "zigzag").attention[0] / devices);
}

// ---- of Llama-3-8B

constexpr int64_t tokens = 65536, queries = 32, keys = 8, width = 128, layers = 32, bytes = 2;

/// Divided among so many devices as users have it.
Plan plan_of_llama(int64_t ranks, const std::string& sequence) {
  StepOverrides step;
  step.batch = 1;
  step.sequence = tokens;
  const Schedule schedule = must(parse_schedule(
      make_source("schedule.piper", fmt::format("mesh(cp={})\nplace({{}}, mesh={{}})\nreplicate({{}}, along=cp)\n"
                                                "shard({{}}, along=cp, sequence={})\n",
                                                ranks, sequence))));
  const auto model = must(load_model_for(schedule, [&](LayerForm form, TokenForm token_form) {
    auto loaded = load_model("analytic:Llama-3-8B", step, form, token_form);
    return loaded ? Result(std::make_shared<const ModelGraph>(*std::move(loaded)))
                  : Result<std::shared_ptr<const ModelGraph>>(std::move(loaded.error()));
  }));
  return must(compile(model, schedule, CompileOptions())).plan;
}

/// What a rank receives in forward of one layer: (2 h + 2 max(k, P)) S b d (P - 1) / P^2 numbers.
TEST(ContextVolume, OfHeads) {
  for (const int64_t ranks : {2, 8, 16, 32}) {
    const Plan plan = plan_of_llama(ranks, "heads");
    int64_t received = 0;  // of what each rank has afterwards, all but what was its own
    for (const PlannedOp& op : plan.templates.front().ops)
      if (op.kind == OpKind::AllToAll && op.label.pass == Pass::F)
        received += plan.communications[op.communication].bytes / ranks * (ranks - 1);
    EXPECT_EQ(received,
              (2 * queries + 2 * std::max(keys, ranks)) * tokens * width * (ranks - 1) / ranks / ranks * bytes * layers)
        << ranks;
  }
}

/// 2 S b k d (P - 1) / P numbers in forward. In backward the same again, and gradients of keys and values, which are
/// added up in float32 from the second step on.
TEST(ContextVolume, OfRing) {
  for (const int64_t ranks : {2, 4, 8}) {
    const Plan plan = plan_of_llama(ranks, "ring");
    const int64_t hop = 2 * keys * tokens * width / ranks * layers;
    std::map<Pass, int64_t> received;
    for (const PlannedOp& op : plan.templates.front().ops)
      if (op.kind == OpKind::Shift) received[*op.label.pass] += plan.communications[op.communication].bytes;
    EXPECT_EQ(received[Pass::F], hop * (ranks - 1) * bytes) << ranks;
    EXPECT_EQ(received[Pass::B], received[Pass::F] + hop * (bytes + (ranks - 2) * 4)) << ranks;
  }
}

/// Besides its own a device has the keys and values that it works on, and those that come next.
TEST(ContextMemory, OfRingHoldsTwoBlocks) {
  const Plan plan = plan_of_llama(8, "ring");
  const PlanTemplate& device = plan.templates.front();
  std::set<BufferId> held;
  size_t most = 0;
  for (const PlannedOp& op : device.ops) {
    if (op.kind == OpKind::Shift && plan.names[op.label.name].ends_with("kv.out")) {
      held.insert(op.writes[0]);
      EXPECT_EQ(device.buffers[op.writes[0]].bytes, 2 * keys * tokens * width / 8 * bytes);
    }
    most = std::max(most, held.size());
    for (const BufferId freed : op.frees) held.erase(freed);
  }
  EXPECT_EQ(most, 2u);
}

/// What attention of a layer takes forward and backward on the device with the most to do, from its first step to its
/// last merge, or until gradients of keys and values have come home: the share that a part of all attention is of that.
double share_of_ideal(const std::string& order) {
  StepOverrides step;
  step.batch = 1;
  step.sequence = tokens;
  constexpr int ranks = 8;
  const Plan plan = plan_of_llama(ranks, "ring, order=" + order);
  Cluster cluster = must(load_cluster("h100"));
  cluster.kinds[0].memory.reset();
  cluster.levels[0].bandwidth = 200e9;  // of an H800
  const Simulation simulation = must(simulate(plan, cluster));
  std::map<std::pair<std::string, Pass>, std::pair<double, double>> spans;  // by layer
  size_t at = 0;
  for (const sim::LaneId lane : simulation.devices.ids())
    for (const PlannedOp& op : plan.templates[simulation.plan_of[lane]].ops) {
      const sim::SimulatedOpId id(at++);
      const std::string& name = plan.names[op.label.name];
      const size_t core = name.find(".core.");
      if (simulation.devices[lane].back() != ranks - 1 || core == std::string::npos || !op.label.pass) continue;
      const std::string layer = name.substr(name.find("layer."), core - name.find("layer."));
      const double start = simulation.times.start[id], end = simulation.times.end[id];
      const auto [span, fresh] = spans.try_emplace({layer, *op.label.pass}, start, end);
      if (fresh) continue;
      span->second = {std::min(span->second.first, start), std::max(span->second.second, end)};
    }
  double seconds = 0;
  for (const auto& [what, span] : spans) seconds += span.second - span.first;
  const ModelGraph whole =
      must(load_model("analytic:Llama-3-8B", step, LayerForm::Sharded, TokenForm{.divided = true}));
  return simulated(whole, 1, "zigzag").attention[0] / ranks / seconds;
}

/// github.com/zhuzilin/ring-flash-attention: attention of Llama-3-8B, 8 x 8K tokens, 8 H800, forward and backward.
TEST(Published, RingAttention) {
  const auto off_by = [](const char* order, double published) {
    const double share = share_of_ideal(order);
    fmt::print("{:<42} published {:>7.4g}  simulated {:>7.4g}  error {:>+6.1f} %\n",
               fmt::format("ring attention, {}: share of ideal", order), published, share,
               100 * (share / published - 1));
    return std::abs(share / published - 1);
  };
  EXPECT_LT(off_by("contiguous", 0.539), 0.10);
  EXPECT_LT(off_by("zigzag", 0.902), 0.10);
}

/// On one node every step of a ring is longer than what comes for the next: at most the first and the last hop of a
/// layer are waited for.
TEST(ContextOverlap, OfRing) {
  const Plan plan = plan_of_llama(8, "ring");
  Cluster cluster = must(load_cluster("h100"));
  cluster.kinds[0].memory.reset();
  const Simulation simulation = must(simulate(plan, cluster));
  const PlanTemplate& device = plan.templates.front();
  double hops = 0, hidden = 0;
  std::vector<std::pair<double, double>> computing;
  for (const OpId op : device.ops.ids())
    if (const sim::SimulatedOpId id(op.index()); device.ops[op].kind == OpKind::Run)
      computing.emplace_back(simulation.times.start[id], simulation.times.end[id]);
  for (const OpId op : device.ops.ids()) {
    if (device.ops[op].kind != OpKind::Shift) continue;
    const sim::SimulatedOpId id(op.index());
    const double start = simulation.times.start[id], end = simulation.times.end[id];
    hops += end - start;
    for (const auto& [from, to] : computing) hidden += std::max(0.0, std::min(end, to) - std::max(start, from));
  }
  EXPECT_GE(hidden, 0.8 * hops);
}

}  // namespace
}  // namespace piper
