// `piper search`: which schedule to use.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/commands.h"

namespace piper {

struct SearchCommand {
  CompileInput input;  // without a schedule
  int devices = 0;
  std::optional<int64_t> memory;   // bytes that may be used of each device; absent: all it has
  double budget = 30;              // seconds of work
  std::optional<double> time;      // seconds of the clock; absent: the budget
  std::vector<std::string> fixed;  // directives
  std::vector<std::string> tried;  // schedule files
  std::string output;              // file for the best schedule
  std::string plot;                // file for time against memory
};
int run(const SearchCommand& command);

}  // namespace piper
