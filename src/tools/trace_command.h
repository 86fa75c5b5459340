// `piper trace`: where a prediction and a run differ, and what a run did last that failed.
#pragma once

#include <string>
#include <vector>

namespace piper {

struct TraceDiffCommand {
  std::string predicted, measured;
  std::string format = "text";
  bool color = false;
};
int run(const TraceDiffCommand& command);

struct TraceFlightCommand {
  std::vector<std::string> files;
  std::string output;  // a trace; empty: none
  size_t operations = 8;
  bool color = false;
};
int run(const TraceFlightCommand& command);

}  // namespace piper
