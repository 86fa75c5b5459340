// Durations of nodes: the slowest kind of device, the outermost link between two groups, measured costs.
#include <gtest/gtest.h>

#include "compile/compile.h"
#include "cost/traffic.h"
#include "ir/local_size.h"
#include "model/model_text.h"
#include "must.h"
#include "schedule/schedule_text.h"

namespace piper {
namespace {

/// Two layers on four devices, two replicas of each, with so many bytes between them.
TrainingDag two_stages(const std::string& first = "0,1", const std::string& second = "2,3") {
  const auto model = std::make_shared<const ModelGraph>(must(parse_model(make_source("model", R"(model two
step batch=8 sequence=1 weights=float32 gradients=float32 optimizer=sgd
input t int64 [b]
value x float32 [b, 1000]
value d.x float32 [b, 1000]
loss l float32 []
parameter w0 float32 [1000]
parameter w1 float32 [1000]
chunk layer.0 {layer=0}
  F (t) -> (x) parameters(w0) flops=1000000000*b
  B (t, d.x) -> () parameters(w0) gradients(w0) flops=2000000000*b
chunk layer.1 {layer=1}
  F (x) -> (l) parameters(w1) flops=1000000000*b
  B (x) -> (d.x) parameters(w1) gradients(w1) flops=2000000000*b
)"))));
  const std::string schedule = "devices(16)\nplace({layer=0}, devices=[" + first + "])\nplace({layer=1}, devices=[" +
                               second + "])\nreplicate({layer=0}, devices=[" + first +
                               "])\nreplicate({layer=1}, devices=[" + second + "])\n";
  return must(compile(model, must(parse_schedule(make_source("schedule", schedule))))).linear.dag;
}

std::vector<double> durations(const TrainingDag& dag, const Cluster& cluster, const CostTable* table = nullptr) {
  return must(node_seconds(dag, {cluster, table}));
}

Cluster cluster_of(const std::string& text) {
  return must(parse_cluster(make_source("cluster", text)));
}

const std::string nodes_of_4 = R"([[links]]
joins = 4
bandwidth = "100GB/s"
latency = "1us"
[[links]]
bandwidth = "10GB/s"
latency = "7us"
ports = 4
)";

TEST(NodeSeconds, ComputationsAreAsSlowAsTheSlowestDevice) {
  const Cluster cluster = cluster_of(R"([device.fast]
launch = 0
peak.float32 = "10TFLOPS"
[device.slow]
launch = 0
peak.float32 = "1TFLOPS"
[[nodes]]
count = 3
device = "fast"
[[nodes]]
device = "slow"
[[links]]
)");
  const TrainingDag dag = two_stages();
  const std::vector<double> seconds = durations(dag, cluster);
  for (size_t n = 0; n < dag.nodes.size(); ++n) {
    if (!is_compute(dag.nodes[n])) continue;
    const double work = (*dag.nodes[n].tags.pass == Pass::F ? 1e9 : 2e9) * 4;  // four samples on each replica
    EXPECT_DOUBLE_EQ(seconds[n], work / (dag.nodes[n].tags.chunk.index() == 0 ? 10e12 : 1e12));
  }
}

TEST(NodeSeconds, TransfersTakeTheOutermostLinkBetweenTheGroups) {
  for (const auto& [second, level] : {std::pair("2,3", 0), std::pair("3,4", 1), std::pair("8,9", 1)}) {
    const Cluster cluster = cluster_of(nodes_of_4);
    const TrainingDag dag = two_stages("0,1", second);
    const std::vector<double> seconds = durations(dag, cluster);
    int transfers = 0;
    for (size_t n = 0; n < dag.nodes.size(); ++n)
      if (std::holds_alternative<Transfer>(dag.nodes[n].op)) {
        ++transfers;
        EXPECT_DOUBLE_EQ(seconds[n], alone_seconds(transfer_traffic(cluster, level, 16000))) << second;
      }
    EXPECT_EQ(transfers, 2);
  }
}

TEST(NodeSeconds, AGroupThatSendsToMoreDevicesSendsMore) {
  const Cluster cluster = cluster_of(nodes_of_4);
  const TrainingDag dag = two_stages("0,1", "4,5,6,7");
  const std::vector<double> seconds = durations(dag, cluster);
  for (size_t n = 0; n < dag.nodes.size(); ++n)
    if (std::holds_alternative<Transfer>(dag.nodes[n].op)) {
      EXPECT_DOUBLE_EQ(seconds[n], alone_seconds(transfer_traffic(cluster, 1, 16000)));
    }
}

TEST(NodeSeconds, CollectivesAreThoseOfTheirMembers) {
  const Cluster cluster = cluster_of(nodes_of_4);
  const TrainingDag dag = two_stages("0,1", "3,4");
  const std::vector<double> seconds = durations(dag, cluster);
  int reductions = 0;
  for (size_t n = 0; n < dag.nodes.size(); ++n) {
    const auto* collective = std::get_if<Collective>(&dag.nodes[n].op);
    if (!collective) continue;
    ++reductions;
    const Spread spread = spread_of(cluster, dag.groups[collective->over].members);
    EXPECT_DOUBLE_EQ(seconds[n], alone_seconds(collective_traffic(cluster, collective->kind, spread,
                                                                  moved_bytes(dag, dag.nodes[n]))));
    EXPECT_GT(seconds[n], 0);
  }
  EXPECT_GE(reductions, 3);  // two buckets and the scalars
}

TEST(NodeSeconds, MeasuredCostsReplaceFormulas) {
  const TrainingDag dag = two_stages();
  CostTable table;
  for (const char* chunk : {"layer.0", "layer.1"}) {
    table.seconds[{chunk, Pass::F, 4}] = 3;
    table.seconds[{chunk, Pass::B, 4}] = 5;
  }
  table.seconds[{"bucket0.w1", std::nullopt, 0}] = 7;
  table.seconds[{"bucket1.w0", std::nullopt, 0}] = 9;
  const std::vector<double> seconds = durations(dag, {}, &table);
  for (size_t n = 0; n < dag.nodes.size(); ++n) {
    const Node& node = dag.nodes[n];
    if (is_compute(node)) {
      EXPECT_EQ(seconds[n], *node.tags.pass == Pass::F ? 3 : 5);
    }
    if (const auto* update = std::get_if<Update>(&node.op)) {
      EXPECT_EQ(seconds[n], update->bucket.index() == 0 ? 7 : 9);
    }
  }
  table.seconds.erase({"bucket1.w0", std::nullopt, 0});
  const Cluster usual;
  auto lacking = node_seconds(dag, {usual, &table});
  ASSERT_FALSE(lacking);
  EXPECT_EQ(lacking.error().code, ErrorCode::E411);
  EXPECT_EQ(lacking.error().message, "the cost table has no cost of the update of bucket1.w0");
}

}  // namespace
}  // namespace piper
