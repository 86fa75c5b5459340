#include "capture/known_cuts.h"

#include <span>
#include <string_view>

namespace piper {
namespace {

/// The end of a parameter's name, how many dimensions it has, and which of them is cut.
struct KnownName {
  std::string_view ending;
  int64_t dims;
  int cut;
};
constexpr KnownName projections[] = {
    {".wo", 2, 1},
    {".w_down", 2, 1},
    {".w_down", 3, 1},  // stored [experts, in, out]
    {".attention.out.weight", 2, 1},
    {".mlp.down.weight", 2, 1},
    {".dispatch.shared_down.weight", 2, 1},
    {".experts.down.weight", 3, 1},
    {".o_proj.weight", 2, 1},
    {".down_proj.weight", 2, 1},
    {".experts.down_proj", 3, 2},
    {".c_proj.weight", 2, 0},  // stored [in, out]
};
constexpr KnownName tables[] = {
    {"embed.weight", 2, 0}, {"head.weight", 2, 0},         {"tok_emb", 2, 0},
    {"head", 2, 0},         {"embed_tokens.weight", 2, 0}, {"wte.weight", 2, 0},
};

std::vector<CutSeed> known_names(const std::vector<NamedTensor>& parameters, std::span<const KnownName> names) {
  std::vector<CutSeed> out;
  for (const NamedTensor& parameter : parameters)
    for (const KnownName& name : names)
      if (parameter.tensor.dim() == name.dims && parameter.name.ends_with(name.ending)) {
        out.push_back({parameter.name, name.cut});
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
