#include "calibrate/parameters.h"

#include <fmt/format.h>

#include <algorithm>

namespace piper {
namespace {

void add_device(std::vector<FittedParameter>& out, const DeviceKind& kind, size_t k) {
  const auto add = [&](const char* key, double least, double most, double DeviceKind::*member) {
    out.push_back({fmt::format("{} {}", kind.name, key), least, most,
                   [=](const Cluster& c) { return c.kinds[k].*member; },
                   [=](Cluster& c, double value) { c.kinds[k].*member = value; }});
  };
  const auto add_operators = [&](const char* key, double least, double most, double OperatorCosts::*member) {
    out.push_back({fmt::format("{} operators.{}", kind.name, key), least, most,
                   [=](const Cluster& c) { return (*c.kinds[k].operators).*member; },
                   [=](Cluster& c, double value) { (*c.kinds[k].operators).*member = value; }});
  };
  add("compute_efficiency", 0.1, 1, &DeviceKind::compute_efficiency);
  add("memory_efficiency", 0.1, 1, &DeviceKind::memory_efficiency);
  add_operators("issue", 0, 200e-6, &OperatorCosts::issue);
  add_operators("sharpness", 1, 12, &OperatorCosts::sharpness);
}

void add_level(std::vector<FittedParameter>& out, const LinkLevel& level, size_t l) {
  out.push_back({level.name + " latency", 0, 200e-6, [=](const Cluster& c) { return c.levels[l].latency; },
                 [=](Cluster& c, double value) { c.levels[l].latency = value; }});
  // of the largest messages; a curve keeps its form
  out.push_back(
      {level.name + " efficiency", 0.1, 1,
       [=](const Cluster& c) { return c.levels[l].efficiency.empty() ? 1 : c.levels[l].efficiency.back().share; },
       [=](Cluster& c, double value) {
         auto& points = c.levels[l].efficiency;
         if (points.empty()) points = {{1, 1}};
         const double factor = value / points.back().share;
         for (EfficiencyPoint& point : points) point.share = std::min(1.0, point.share * factor);
       }});
}

}  // namespace

std::vector<FittedParameter> parameters_of(const Cluster& cluster) {
  std::vector<FittedParameter> out;
  for (size_t k = 0; k < cluster.kinds.size(); ++k)
    if (cluster.kinds[k].operators) add_device(out, cluster.kinds[k], k);
  for (size_t l = 0; l < cluster.levels.size(); ++l) add_level(out, cluster.levels[l], l);
  out.push_back(
      {"step", 0, 1, [](const Cluster& c) { return c.step; }, [](Cluster& c, double value) { c.step = value; }});
  return out;
}

Cluster with_operators(Cluster cluster) {
  for (DeviceKind& kind : cluster.kinds) {
    if (kind.operators) continue;
    kind.operators = OperatorCosts{};
    kind.operators->issue = kind.launch + kind.issue;
    kind.launch = kind.issue = 0;
  }
  return cluster;
}

}  // namespace piper
