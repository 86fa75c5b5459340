#include "capture/sharding/known_projections.h"

#include <span>
#include <string_view>

namespace piper {
namespace {

constexpr int longest = -1;

/// The end of a parameter's name, how many dimensions it has, and which of them is sharded.
struct KnownName {
  std::string_view ending;
  int64_t dims;
  int dim;
};
constexpr KnownName projections[] = {
    {".wo", 2, 1},
    {".w_down", 2, 1},
    {".w_down", 3, 1},  // stored [experts, in, out]
    {".attention.out.weight", 2, 1},
    {".mlp.down.weight", 2, 1},
    {".dispatch.shared_down.weight", 2, 1},
    {".experts.down.weight", 3, 2},
    {".o_proj.weight", 2, 1},  // of transformers, from here on
    {".down_proj.weight", 2, 1},
    {".experts.down_proj", 3, 2},
    {".mlp.c_proj.weight", 2, longest},      // stored [in, out] by GPT-2, [out, in] by StarCoder2
    {".c_proj.weight", 2, 0},                // stored [in, out]
    {".attention.dense.weight", 2, 1},       // NeoX
    {".self_attention.dense.weight", 2, 1},  // Falcon
    {".dense_4h_to_h.weight", 2, 1},
    {".self_attn.dense.weight", 2, 1},  // Phi
    {".out_proj.weight", 2, 1},         // OPT, GPT-J, BART, Whisper
    {".fc2.weight", 2, 1},
    {".fc_out.weight", 2, 1},
    {".output.dense.weight", 2, 1},     // BERT
    {".SelfAttention.o.weight", 2, 1},  // T5
    {".EncDecAttention.o.weight", 2, 1},
    {".wo.weight", 2, 1},
    {".output_linear.weight", 2, 1},  // Granite
    {".out_lin.weight", 2, 1},        // DistilBERT, XLM
    {".lin2.weight", 2, 1},
    {".Wo.weight", 2, 1},  // ModernBERT
};
constexpr KnownName tables[] = {
    {"embed.weight", 2, 0},
    {"head.weight", 2, 0},
    {"tok_emb", 2, 0},
    {"head", 2, 0},
    {"embed_tokens.weight", 2, 0},
    {"wte.weight", 2, 0},
    {"word_embeddings.weight", 2, 0},
    {"embed_in.weight", 2, 0},
    {"embed_out.weight", 2, 0},
};

/// Of experts: stored [experts, in, out], as gpt-oss does. Then the fused projection before it, of the same name but
/// for its end, has twice its second dimension as its last.
bool is_stored_by_inputs(const std::vector<NamedTensor>& parameters, const NamedTensor& down) {
  const std::string_view end = "down_proj";
  if (!down.name.ends_with(end)) return false;
  const std::string fused = down.name.substr(0, down.name.size() - end.size()) + "gate_up_proj";
  for (const NamedTensor& other : parameters)
    if (other.name == fused && other.tensor.dim() == 3) return other.tensor.size(2) == 2 * down.tensor.size(1);
  return false;
}

std::vector<ShardSeed> known_names(const std::vector<NamedTensor>& parameters, std::span<const KnownName> names) {
  std::vector<ShardSeed> out;
  for (const NamedTensor& parameter : parameters)
    for (const KnownName& name : names)
      if (parameter.tensor.dim() == name.dims && parameter.name.ends_with(name.ending)) {
        int dim = name.dim;
        if (dim == longest) dim = parameter.tensor.size(1) > parameter.tensor.size(0) ? 1 : 0;
        if (dim == 2 && is_stored_by_inputs(parameters, parameter)) dim = 1;
        out.push_back({parameter.name, dim});
        break;
      }
  return out;
}

}  // namespace

std::vector<ShardSeed> known_projections(const std::vector<NamedTensor>& parameters) {
  return known_names(parameters, projections);
}
std::vector<ShardSeed> known_vocabulary(const std::vector<NamedTensor>& parameters) {
  return known_names(parameters, tables);
}

}  // namespace piper
