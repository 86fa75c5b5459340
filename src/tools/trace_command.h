// `piper trace diff`: where a prediction and a run differ.
#pragma once

#include <string>

namespace piper {

struct TraceDiffCommand {
  std::string predicted, measured;
  std::string format = "text";
  bool color = false;
};
int run(const TraceDiffCommand& command);

}  // namespace piper
