#include "capture/known_cuts.h"

namespace piper {
namespace {

/// The end of a parameter's name, and which of its two dimensions is summed over.
struct KnownName {
  const char* ending;
  int summed;
};
constexpr KnownName known[] = {
    {".wo", 1},
    {".w_down", 1},
    {".attention.out.weight", 1},
    {".mlp.down.weight", 1},
    {".o_proj.weight", 1},
    {".down_proj.weight", 1},
    {".c_proj.weight", 0},  // stored [in, out]
};

}  // namespace

std::vector<CutSeed> known_cuts(const std::vector<NamedTensor>& parameters) {
  std::vector<CutSeed> out;
  for (const NamedTensor& parameter : parameters)
    for (const KnownName& name : known)
      if (parameter.tensor.dim() == 2 && parameter.name.ends_with(name.ending))
        out.push_back({parameter.name, name.summed});
  return out;
}

}  // namespace piper
