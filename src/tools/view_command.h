// `piper view`: traces as a page to look at, a schedule as a picture for papers, or as a card for slides.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace piper {

struct ViewCommand {
  std::vector<std::string> traces;
  std::string output;
  bool card = false;         // one or two traces for a slide, instead of the page
  std::optional<int> width;  // of pictures
  bool color = false;
};
int run(const ViewCommand& command);

}  // namespace piper
