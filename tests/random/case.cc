#include "random/case.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace piper::random {

std::string Case::config() const {
  return fmt::format("[model]\n{}\n[step]\nweights = \"float64\"\ngradients = \"float64\"\n{}\n",
                     fmt::join(model, "\n"), fmt::join(step, "\n"));
}

std::string Case::schedule() const {
  return fmt::format("{}\n", fmt::join(directives, "\n"));
}

std::string Case::shown() const {
  return fmt::format("---- case.toml\n{}[data]\nkind = \"reference\"\n---- case.piper{}\n{}----\n", config(),
                     issue == Issue::Serial ? ", operations one by one" : "", schedule());
}

}  // namespace piper::random
