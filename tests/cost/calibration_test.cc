// How far the model is from published measurements of collectives: the errors in docs/cluster.md are printed here, and
// must not grow.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>

#include "base/text_table.h"
#include "cost/load_cluster.h"
#include "cost/traffic.h"
#include "read_csv.h"

namespace piper {
namespace {

std::string oracle(const std::string& name) {
  return PIPER_SOURCE_DIR "/../shared/oracles/comm/" + name;
}

Cluster shipped(const std::string& name) {
  auto cluster = load_cluster(name);
  if (!cluster) throw std::runtime_error(render(cluster.error()));
  return *std::move(cluster);
}

/// So many devices, one of every `stride`.
std::vector<int> members(int n, int stride = 1) {
  std::vector<int> out;
  for (int i = 0; i < n; ++i) out.push_back(i * stride);
  return out;
}

double seconds(const Cluster& cluster, CollectiveKind kind, const std::vector<int>& members, double bytes) {
  return alone_seconds(collective_traffic(cluster, kind, spread_of(cluster, members), static_cast<int64_t>(bytes)));
}

/// Relative errors of time, and those of arrays so large that latency hardly counts.
struct Errors {
  std::vector<double> all, large;

  void add(double bytes, double predicted, double measured) {
    all.push_back(predicted / measured - 1);
    if (bytes >= 256e6) large.push_back(all.back());
  }
};

double median(std::vector<double> errors) {
  if (errors.empty()) return 0;
  for (double& e : errors) e = std::abs(e);
  std::sort(errors.begin(), errors.end());
  const size_t half = errors.size() / 2;
  return errors.size() % 2 ? errors[half] : (errors[half - 1] + errors[half]) / 2;
}
/// With its sign: below 0 the model is faster than what was measured.
double worst(const std::vector<double>& errors) {
  if (errors.empty()) return 0;
  return *std::max_element(errors.begin(), errors.end(), [](double a, double b) { return std::abs(a) < std::abs(b); });
}

/// What docs/cluster.md states, as an upper bound.
struct Bound {
  double median = 0, worst = 0, large_median = 0, large_worst = 0;
};

void check(const std::map<std::string, Errors>& found, const std::map<std::string, Bound>& bounds) {
  TextTable table({"measurement", "rows", "median", "worst", "rows from 256 MB", "median", "worst"});
  const auto percent = [](double x) { return fmt::format("{:.1f} %", 100 * x); };
  for (const auto& [name, errors] : found) {
    std::vector<std::string> row = {name, fmt::format("{}", errors.all.size()), percent(median(errors.all)),
                                    percent(worst(errors.all)), fmt::format("{}", errors.large.size())};
    const bool large = !errors.large.empty();
    row.push_back(large ? percent(median(errors.large)) : "-");
    row.push_back(large ? percent(worst(errors.large)) : "-");
    table.add(std::move(row));
    const auto stated = bounds.find(name);
    EXPECT_NE(stated, bounds.end()) << name;
    const Bound bound = stated == bounds.end() ? Bound{} : stated->second;
    EXPECT_LE(median(errors.all), bound.median) << name;
    EXPECT_LE(std::abs(worst(errors.all)), bound.worst) << name;
    EXPECT_LE(median(errors.large), bound.large_median) << name;
    EXPECT_LE(std::abs(worst(errors.large)), bound.large_worst) << name;
  }
  EXPECT_EQ(found.size(), bounds.size());
  fmt::print("{}", table.print());
}

/// H100 with another network out of the node.
Cluster h100_behind(int ports, double bandwidth) {
  Cluster cluster = shipped("h100");
  cluster.levels[1].ports = ports;
  cluster.levels[1].bandwidth = bandwidth;
  return cluster;
}

/// EFA, whose messages must be large: latency and curve are fitted to these very rows.
Cluster aws_p5() {
  Cluster cluster = h100_behind(32, 12.5e9);
  cluster.levels[1].latency = 30e-6;
  cluster.levels[1].efficiency = {{64 << 10, 0.028}, {256 << 10, 0.063}, {1 << 20, 0.131},   {4 << 20, 0.247},
                                  {16 << 20, 0.406}, {64 << 20, 0.562},  {256 << 20, 0.676}, {1 << 30, 0.741}};
  return cluster;
}

Cluster a100_behind(int ports, double bandwidth) {
  Cluster cluster = shipped("a100-40");
  cluster.levels[1].ports = ports;
  cluster.levels[1].bandwidth = bandwidth;
  return cluster;
}

/// Two H100 PCIe joined by a bridge of 600 GB/s in both directions together.
Cluster h100_bridge() {
  Cluster cluster = shipped("h100");
  cluster.levels[0].bandwidth = 300e9;
  cluster.levels[0].reduces = false;
  return cluster;
}

TEST(Calibration, AllReduceOfNcclTests) {
  const auto rows = read_csv(oracle("nccl_tests_published.csv"));
  if (rows.empty()) GTEST_SKIP() << "no published measurements beside the repository";
  const std::vector<std::pair<std::string, Cluster>> hardware = {
      {"AWS p5", aws_p5()},
      {"DGX H100", shipped("h100")},
      {"OCI BM.GPU.H100", h100_behind(16, 25e9)},
      {"HGX H100", shipped("h100")},
      {"NVIDIA/nccl-tests issue #290", shipped("h100")},
      {"OCI A100", a100_behind(16, 12.5e9)},
      {"NVIDIA/nccl-tests issue #119", a100_behind(4, 25e9)},
      {"NVIDIA/nccl issue #1161", h100_bridge()},
  };
  std::map<std::string, Errors> found;
  for (size_t r = 1; r < rows.size(); ++r) {
    const auto& row = rows[r];
    const auto machine =
        std::find_if(hardware.begin(), hardware.end(), [&](const auto& h) { return row[0].starts_with(h.first); });
    ASSERT_NE(machine, hardware.end()) << row[0];
    ASSERT_EQ(row[2], "all_reduce");
    const int n = std::stoi(row[3]);
    const double bytes = std::stod(row[5]), bus = std::stod(row[7]) * 1e9;
    const double measured = row[6].empty() ? 2.0 * (n - 1) / n * bytes / bus : std::stod(row[6]) * 1e-6;
    found[machine->first].add(bytes, seconds(machine->second, CollectiveKind::AllReduce, members(n), bytes), measured);
  }
  check(found, {
                   {"AWS p5", {0.06, 0.46, 0.05, 0.12}},
                   {"DGX H100", {0.12, 0.40, 0.12, 0.40}},
                   {"HGX H100", {0.04, 0.09, 0.04, 0.09}},
                   {"NVIDIA/nccl issue #1161", {0.53, 0.53, 0.53, 0.53}},
                   {"NVIDIA/nccl-tests issue #119", {0.07, 0.07, 0, 0}},
                   {"NVIDIA/nccl-tests issue #290", {0.02, 0.02, 0.02, 0.02}},
                   {"OCI A100", {0.05, 0.05, 0.05, 0.05}},
                   {"OCI BM.GPU.H100", {0.09, 0.11, 0.09, 0.11}},
               });
}

TEST(Calibration, BusBandwidthsOfSimAi) {
  const auto rows = read_csv(oracle("simai_busbw_ratio.csv"));
  if (rows.empty()) GTEST_SKIP() << "no published measurements beside the repository";
  const Cluster h100 = shipped("h100");
  Cluster slow_nvlink = h100;  // as H800, where the links inside the node are what limits
  slow_nvlink.levels[0].bandwidth = 200e9;
  const double nvlink = 450e9, nic = 50e9;
  std::map<std::string, Errors> found;
  for (size_t r = 1; r < rows.size(); ++r) {
    const std::string &table = rows[r][0], &column = rows[r][2];
    const double bytes = std::stod(rows[r][1]), ratio = std::stod(rows[r][3]);
    const bool exchange = table == "ata_ratio";
    const CollectiveKind kind = exchange ? CollectiveKind::AllToAll : CollectiveKind::AllGather;
    if (column == "Multi (NIC)") continue;  // of an unknown number of nodes
    if (column.starts_with("M")) {          // one device of every node
      const int n = std::stoi(column.substr(6));
      const double share = double(n - 1) / n;
      found[table + ", one GPU per node"].add(bytes, seconds(h100, kind, members(n, 8), bytes),
                                              share * bytes / (nic * ratio));
      continue;
    }
    const int nodes = std::stoi(column), n = 8 * nodes;
    const double share = double(n - 1) / n;
    if (nodes == 1) {
      found[table + ", one node"].add(bytes, seconds(h100, kind, members(n), bytes), share * bytes / (nvlink * ratio));
    } else if (exchange) {
      found[table + ", nodes of 8"].add(bytes, seconds(h100, kind, members(n), bytes),
                                        double(n - 8) / n * bytes / (nic * ratio));
    } else {
      const bool inside = table == "nvlink_ratio";
      found[table + ", nodes of 8"].add(bytes, seconds(inside ? slow_nvlink : h100, kind, members(n), bytes),
                                        share * bytes / ((inside ? 200e9 : 8 * nic) * ratio));
    }
  }
  check(found, {
                   {"ata_ratio, nodes of 8", {0.07, 0.32, 0.06, 0.18}},
                   {"ata_ratio, one GPU per node", {0.01, 0.11, 0.01, 0.03}},
                   {"ata_ratio, one node", {0.05, 0.09, 0.04, 0.07}},
                   {"nic_ratio, nodes of 8", {0.05, 0.37, 0.03, 0.30}},
                   {"nic_ratio, one GPU per node", {0.01, 0.18, 0.01, 0.03}},
                   {"nic_ratio, one node", {0.01, 0.13, 0.01, 0.01}},
                   {"nvlink_ratio, nodes of 8", {0.04, 0.44, 0.03, 0.13}},
                   {"nvlink_ratio, one GPU per node", {0.01, 0.18, 0.01, 0.03}},
                   {"nvlink_ratio, one node", {0.01, 0.13, 0.01, 0.01}},
               });
}

TEST(Calibration, AllToAllOfDeepEp) {
  const auto rows = read_csv(oracle("deepep_alltoall.csv"));
  if (rows.empty()) GTEST_SKIP() << "no published measurements beside the repository";
  Cluster h800 = shipped("h100");
  h800.levels[0].bandwidth = 200e9;
  Cluster issued_by_gpu = h800;  // messages cost the GPU a fraction of a microsecond each, not a library call
  issued_by_gpu.levels[1].gap = 0.12e-6;
  const double tokens = 4096, hidden = 7168, copies = 8;
  std::map<std::string, Errors> found;
  for (size_t r = 1; r < rows.size(); ++r) {
    const auto& row = rows[r];
    const double gigabytes = std::stod(row[5]) * 1e9, width = row[3] == "combine" ? 2 : 1;
    const size_t cross = row[4].find('x');
    const int n = cross == std::string::npos ? std::stoi(row[4]) : 8 * std::stoi(row[4].substr(cross + 1));
    if (row[1].starts_with("low-latency")) {  // every message through the network, also inside a node
      const double bytes = 128 * hidden * copies * width;
      found["low latency"].add(bytes, seconds(issued_by_gpu, CollectiveKind::AllToAll, members(n, 8), bytes),
                               std::stod(row[7]) * 1e-6);
      continue;
    }
    const double bytes = tokens * hidden * copies * width;
    const bool all_traffic = row[1].find("logical") != std::string::npos;
    const double moved = row[6] == "NVLink" || all_traffic ? double(n - 1) / n : double(n - 8) / n;
    const Cluster cluster = row[2].starts_with("SM100")  ? shipped("b200")
                            : row[2].starts_with("SM90") ? shipped("h100")
                                                         : h800;
    found["normal, " + row[6]].add(bytes, seconds(cluster, CollectiveKind::AllToAll, members(n), bytes),
                                   moved * bytes / gigabytes);
  }
  check(found, {
                   {"low latency", {0.13, 0.16, 0, 0}},
                   {"normal, NVLink", {0.08, 0.17, 0.08, 0.12}},
                   {"normal, RDMA", {0.03, 0.10, 0.04, 0.10}},
               });
}

}  // namespace
}  // namespace piper
