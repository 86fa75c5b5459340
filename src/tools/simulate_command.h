// `piper simulate` and `piper compare`: what a step would take, without running it.
#pragma once

#include <string>
#include <vector>

#include "tools/commands.h"

namespace piper {

/// How plans are run on paper.
struct SimulationInput {
  std::string what_if;  // bandwidth=x2,compute=x0.5
  bool all_devices = false;
  bool free_links = false;  // flows do not slow each other down
};

struct SimulateCommand {
  CompileInput input;
  SimulationInput simulation;
  std::string trace;  // file to write
  std::string costs;  // of its passes: F=1,I=1,W=1,comm=0,overlap=2
};
int run(const SimulateCommand& command);

struct CompareCommand {
  CompileInput input;  // without its schedule
  std::vector<std::string> schedules;
  SimulationInput simulation;
};
int run(const CompareCommand& command);

}  // namespace piper
