#include "capture/known_cuts.h"

#include <span>
#include <string_view>

namespace piper {
namespace {

/// The end of a parameter's name, and which of its two dimensions is cut.
struct KnownName {
  std::string_view ending;
  int dim;
};
constexpr KnownName projections[] = {
    {".wo", 1},
    {".w_down", 1},
    {".attention.out.weight", 1},
    {".mlp.down.weight", 1},
    {".o_proj.weight", 1},
    {".down_proj.weight", 1},
    {".c_proj.weight", 0},  // stored [in, out]
};
constexpr KnownName tables[] = {
    {"embed.weight", 0}, {"head.weight", 0}, {"tok_emb", 0}, {"head", 0}, {"embed_tokens.weight", 0}, {"wte.weight", 0},
};

std::vector<CutSeed> known_names(const std::vector<NamedTensor>& parameters, std::span<const KnownName> names) {
  std::vector<CutSeed> out;
  for (const NamedTensor& parameter : parameters)
    for (const KnownName& name : names)
      if (parameter.tensor.dim() == 2 && parameter.name.ends_with(name.ending)) {
        out.push_back({parameter.name, name.dim});
        break;
      }
  return out;
}

}  // namespace

std::vector<CutSeed> known_cuts(const std::vector<NamedTensor>& parameters) {
  return known_names(parameters, projections);
}
std::vector<CutSeed> known_vocabulary(const std::vector<NamedTensor>& parameters) {
  return known_names(parameters, tables);
}

}  // namespace piper
