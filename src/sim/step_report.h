// The numbers of a simulated step that people compare.
#pragma once

#include "model/model_graph.h"
#include "sim/critical_path.h"
#include "sim/device_use.h"

namespace piper {

struct DeviceReport {
  DeviceList devices;
  TimeUse use;
  int64_t peak_bytes = 0;
};

struct StepReport {
  double seconds = 0;
  double tokens_per_second = 0;
  double mfu = 0;          // floating-point operations of the model, without recomputation, over the devices' peak
  double bubble = 0;       // share of the devices' time without computation
  double exposed = 0;      // the part of it in which communication was in progress
  int64_t peak_bytes = 0;  // of the fullest device
  std::vector<DeviceReport> devices;
  std::vector<LevelUse> levels;
  std::vector<PathShare> path,
      path_operations;  // the critical path: by category; by operation, the first ten
};

StepReport step_report(const ModelGraph& model, const Plan& plan, const Cluster& cluster, const Simulation& simulation);

/// A page for people.
std::string print(const StepReport& report);

}  // namespace piper
