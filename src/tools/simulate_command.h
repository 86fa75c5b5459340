// `piper simulate` and `piper compare`: what a step would take, without running it.
#pragma once

#include <string>
#include <vector>

#include "sim/simulate.h"
#include "sim/step_report.h"
#include "tools/commands.h"

namespace piper {

/// How plans are run on paper.
struct SimulationInput {
  std::string what_if;  // bandwidth=x2,compute=x0.5
  bool all_devices = false;
  bool free_links = false;   // flows do not slow each other down
  std::string routing = {};  // balanced, zipf:1.2, trace:FILE
};

/// A schedule that was compiled and run on paper.
struct Simulated {
  CompiledInput input;
  Cluster cluster;
  Simulation simulation;
  StepReport report;
  std::optional<double> balanced_seconds;  // of the same step, where some experts get more rows than others
};
Result<Simulated> simulate_input(const CompileInput& input, const LoadedInput& loaded, const SimulationInput& how);

struct SimulateCommand {
  CompileInput input;
  SimulationInput simulation = {};
  std::string trace = {};                      // file to write
  std::string costs = {};                      // of its passes: F=1,I=1,W=1,comm=0,overlap=2
  std::string fail = {};                       // devices that are lost: 6,7; or each
  bool hints = true;                           // what would make the step faster
  std::vector<std::string> command_line = {};  // from the name of the program on
};
int run(const SimulateCommand& command);

struct CompareCommand {
  CompileInput input;  // without its schedule
  std::vector<std::string> schedules;
  SimulationInput simulation;
};
int run(const CompareCommand& command);

}  // namespace piper
