// `piper plot`: metrics of training runs as curves on a page.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace piper {

struct PlotCommand {
  std::vector<std::string> metrics;
  std::string output;
  bool color = false;
};
int run(const PlotCommand& command);

/// Adds the command to the program. If the user chooses it, `chosen` becomes what runs it and returns the exit code.
void add_plot(CLI::App& program, std::function<int()>& chosen, bool color);

}  // namespace piper
