// `piper view`: traces as a page to look at, or a schedule as a picture for papers.
#pragma once

#include <string>
#include <vector>

namespace piper {

struct ViewCommand {
  std::vector<std::string> traces;
  std::string output;
  bool svg = false;
  bool color = false;
};
int run(const ViewCommand& command);

}  // namespace piper
