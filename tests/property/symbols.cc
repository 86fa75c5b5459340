#include "property/symbols.h"

#include <fmt/format.h>

namespace piper::property {

std::string describe(const TrainingDag& dag, const Tensor& tensor) {
  std::string out = (*dag.model)[tensor.value].name;
  for (const Samples& s : tensor.slots) out += fmt::format(" [{}, {})", s.first, s.first + s.count);
  if (tensor.experts > 0)
    out += fmt::format(" experts {}..{}", tensor.first_expert, tensor.first_expert + tensor.experts - 1);
  return out;
}

std::string difference(const TrainingDag& dag, const Sum& found, const Sum& wanted) {
  std::string out;
  int shown = 0;
  const auto show = [&](const Contribution& c, int times) {
    if (++shown > 3) return;
    out += fmt::format(" {} {} [{}, {}) block {}: {} times;", (*dag.model)[c.chunk].name, name(c.pass), c.samples.first,
                       c.samples.first + c.samples.count, c.block, times);
  };
  for (const auto& [contribution, times] : found)
    if (const auto w = wanted.find(contribution); w == wanted.end() || w->second != times) show(contribution, times);
  for (const auto& [contribution, times] : wanted)
    if (!found.contains(contribution)) show(contribution, 0);
  return out;
}

}  // namespace piper::property
