#include "model/analytic/builtin_models.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "base/suggest.h"

namespace piper {
namespace {

struct DenseRow {
  const char* name;
  Architecture arch;
  int64_t hidden, layers, heads, kv_heads, head_dim, ffn, vocab;
  bool tie_embeddings;
  double rope_theta;
};
constexpr DenseRow dense_rows[] = {
    {"Qwen3-0.6B", Architecture::Qwen3Dense, 1024, 28, 16, 8, 128, 3072, 151936, true, 1e6},
    {"Qwen3-1.7B", Architecture::Qwen3Dense, 2048, 28, 16, 8, 128, 6144, 151936, true, 1e6},
    {"Qwen3-4B", Architecture::Qwen3Dense, 2560, 36, 32, 8, 128, 9728, 151936, true, 1e6},
    {"Qwen3-8B", Architecture::Qwen3Dense, 4096, 36, 32, 8, 128, 12288, 151936, false, 1e6},
    {"Qwen3-14B", Architecture::Qwen3Dense, 5120, 40, 40, 8, 128, 17408, 151936, false, 1e6},
    {"Qwen3-32B", Architecture::Qwen3Dense, 5120, 64, 64, 8, 128, 25600, 151936, false, 1e6},
    {"Llama-3-8B", Architecture::Llama3, 4096, 32, 32, 8, 128, 14336, 128256, false, 5e5},
    {"Llama-3-70B", Architecture::Llama3, 8192, 80, 64, 8, 128, 28672, 128256, false, 5e5},
    {"Llama-3.1-405B", Architecture::Llama3, 16384, 126, 128, 8, 128, 53248, 128256, false, 5e5},
};

struct MixtureRow {
  const char* name;
  Architecture arch;
  int64_t hidden, layers, heads, kv_heads, head_dim, moe_ffn, experts, top_k, vocab;
  double rope_theta;  // 0: not published with the configuration
};
constexpr MixtureRow mixture_rows[] = {
    {"Qwen3-30B-A3B", Architecture::Qwen3Moe, 2048, 48, 32, 4, 128, 768, 128, 8, 151936, 0},
    {"Qwen3-235B-A22B", Architecture::Qwen3Moe, 4096, 94, 64, 4, 128, 1536, 128, 8, 151936, 0},
    {"Piper-qwen3_1b (1B-A0.7B)", Architecture::Qwen3Moe, 1024, 16, 16, 8, 64, 3584, 4, 2, 151936, 0},
    {"Piper-qwen3_9b (9B-A3B)", Architecture::Qwen3Moe, 2048, 24, 32, 8, 64, 7168, 8, 2, 151936, 0},
    {"Mixtral-8x7B", Architecture::Mixtral, 4096, 32, 32, 8, 128, 14336, 8, 2, 32000, 1e6},
    {"Mixtral-8x22B", Architecture::Mixtral, 6144, 56, 48, 8, 128, 16384, 8, 2, 32768, 0},
};

ModelConfig from_row(const DenseRow& row) {
  ModelConfig c = usual_config(row.arch);
  c.name = row.name;
  c.hidden = row.hidden, c.layers = row.layers, c.vocab = row.vocab;
  c.heads = row.heads, c.kv_heads = row.kv_heads, c.head_dim = row.head_dim;
  c.ffn = row.ffn;
  c.tie_embeddings = row.tie_embeddings;
  c.rope_theta = row.rope_theta;
  return c;
}

ModelConfig from_row(const MixtureRow& row) {
  ModelConfig c = usual_config(row.arch);
  c.name = row.name;
  c.hidden = row.hidden, c.layers = row.layers, c.vocab = row.vocab;
  c.heads = row.heads, c.kv_heads = row.kv_heads, c.head_dim = row.head_dim;
  c.moe_ffn = row.moe_ffn, c.experts = row.experts, c.top_k = row.top_k;
  c.rope_theta = row.rope_theta;
  return c;
}

ModelConfig deepseek_v3() {
  ModelConfig c = usual_config(Architecture::DeepSeekV3);
  c.name = "DeepSeek-V3";
  c.hidden = 7168, c.layers = 61, c.vocab = 129280, c.heads = 128;
  c.q_lora_rank = 1536, c.kv_lora_rank = 512;
  c.qk_nope_head_dim = 128, c.qk_rope_head_dim = 64, c.v_head_dim = 128;
  c.dense_layers = 3, c.dense_ffn = 18432;
  c.moe_ffn = 2048, c.experts = 256, c.top_k = 8, c.shared_experts = 1;
  c.n_group = 8, c.topk_group = 4;
  c.scoring_func = RouterScores::Sigmoid, c.routed_scaling_factor = 2.5, c.router_bias_rate = 1e-3;
  return c;
}

ModelConfig gpt3_175b() {
  ModelConfig c = usual_config(Architecture::Gpt);
  c.name = "GPT-3-175B";
  c.hidden = 12288, c.layers = 96, c.vocab = 51200, c.seq = 2048;
  c.heads = 96, c.head_dim = 128, c.ffn = 49152;
  return c;
}

std::vector<ModelConfig> all_models() {
  std::vector<ModelConfig> models;
  for (const DenseRow& row : dense_rows) models.push_back(from_row(row));
  for (const MixtureRow& row : mixture_rows) models.push_back(from_row(row));
  models.push_back(deepseek_v3());
  models.push_back(gpt3_175b());
  return models;
}

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::string without_brackets(const std::string& name) {
  return name.substr(0, name.find(" ("));
}

}  // namespace

std::vector<std::string> builtin_model_names() {
  std::vector<std::string> names;
  for (const ModelConfig& model : all_models()) names.push_back(model.name);
  return names;
}

Result<ModelConfig> builtin_model(std::string_view name, SourceRange where) {
  const std::string wanted = lower_case(name);
  std::vector<ModelConfig> starting;
  for (const ModelConfig& model : all_models()) {
    const std::string full = lower_case(model.name);
    if (wanted == full || wanted == without_brackets(full)) return model;
    if (!wanted.empty() && full.starts_with(wanted)) starting.push_back(model);
  }
  if (starting.size() == 1) return starting.front();
  if (starting.size() > 1) {
    std::vector<std::string> names;
    for (const ModelConfig& model : starting) names.push_back(model.name);
    return error(ErrorCode::E112, std::move(where), fmt::format("several models start with \"{}\"", name))
        .help(fmt::format("one of {}", fmt::join(names, ", ")));
  }
  std::vector<std::string> candidates;
  for (const std::string& known : builtin_model_names()) candidates.push_back(without_brackets(known));
  return error(ErrorCode::E112, std::move(where), fmt::format("unknown model \"{}\"", name))
      .help(did_you_mean(name, candidates));
}

}  // namespace piper
