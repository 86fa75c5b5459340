#include "random/random_model_lines.h"

#include <fmt/format.h>

namespace piper::random {
namespace {

using Lines = std::vector<std::string>;

void append(Lines& lines, const Lines& more) {
  lines.insert(lines.end(), more.begin(), more.end());
}

}  // namespace

/// Few values of each size: references are trained once for each model and number of slices.
SmallModel random_small_model(property::Random& random) {
  const std::string arch = random.pick<std::string>({"reference", "reference-moe", "gpt", "llama3", "llama3",
                                                     "qwen3-dense", "qwen3-moe", "qwen3-moe", "mixtral", "two-branch"});
  SmallModel out;
  const bool reference = arch.starts_with("reference");
  out.experts = arch == "reference-moe" || arch == "qwen3-moe" || arch == "mixtral";
  out.branches = arch == "two-branch";
  out.lines = {fmt::format("arch = \"{}\"", arch), "hidden = 16", "heads = 4", "vocab = 32", "seq = 4"};
  out.dropless = out.experts && random.percent(50);
  if (out.experts)
    append(out.lines, {"experts = 4", "top_k = 2", out.dropless ? "dropless = true" : "capacity_factor = 1.25"});
  if (out.branches) append(out.lines, {"encoder_layers = 2"});
  if (reference) return out;
  out.lines.push_back(out.experts ? "moe_ffn = 8" : "ffn = 12");
  if (!out.branches && arch != "gpt") out.lines.push_back(fmt::format("kv_heads = {}", random.pick<int>({1, 2, 4})));
  if (arch == "gpt" || out.branches)
    out.lines.push_back(fmt::format("dropout = {}", random.percent(50)));  // masks are those of one device
  if (arch == "qwen3-moe" && random.percent(30)) out.lines.push_back("shared_experts = 1");
  if (arch == "mixtral" && out.dropless && random.percent(20)) out.lines.push_back("bias = true");
  if (out.experts && random.percent(50)) out.lines.push_back("router_aux_loss_coef = 0.01");
  out.tied = arch == "gpt";
  if (arch == "llama3" || out.experts) {
    out.tied = random.percent(30);
    if (out.tied) out.lines.push_back("tie_embeddings = true");
  }
  return out;
}

}  // namespace piper::random
