// Analytic models: parameter counts and activation memory against published numbers, the shape of the graph, and
// every way a configuration can be refused.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "model/analytic/analytic_model.h"
#include "model/analytic/builtin_models.h"
#include "model/analytic/config_file.h"
#include "model/analytic/parameter_counts.h"
#include "model/load_model.h"
#include "model/model_text.h"
#include "model/verify_model.h"

namespace piper {
namespace {

const std::filesystem::path root = PIPER_SOURCE_DIR;
const std::filesystem::path oracles = root / ".." / "shared" / "oracles";

ModelConfig builtin(std::string_view name) {
  return *builtin_model(name);
}

ModelGraph built(const ModelConfig& config, const StepOverrides& overrides = {}) {
  auto model = analytic_model(config, resolve(overrides, config));
  EXPECT_TRUE(model) << (model ? "" : render(model.error()));
  return model ? *std::move(model) : ModelGraph{};
}

const Chunk& chunk_named(const ModelGraph& model, std::string_view name) {
  for (const Chunk& chunk : model.chunks)
    if (chunk.name == name) return chunk;
  throw std::runtime_error("no chunk " + std::string(name));
}

const Value& value_named(const ModelGraph& model, std::string_view name) {
  for (const Value& value : model.values)
    if (value.name == name) return value;
  throw std::runtime_error("no value " + std::string(name));
}

int64_t bytes(const Value& value, int64_t samples) {
  return elements(value.shape, samples) * bytes_of(value.dtype);
}

bool in_layer(const Chunk& chunk, int index) {
  return !chunk.scopes.empty() && chunk.scopes.front() == ScopeTag{"layer", index};
}

/// What lives between forward and backward of one layer: written by some F, read by some B of the layer.
int64_t kept_bytes(const ModelGraph& model, int layer, int64_t samples) {
  std::set<ValueId> forward, kept;
  for (const Chunk& chunk : model.chunks)
    forward.insert(chunk.find(Pass::F)->writes.begin(), chunk.find(Pass::F)->writes.end());
  for (const Chunk& chunk : model.chunks)
    if (in_layer(chunk, layer))
      for (const ValueId value : chunk.find(Pass::B)->reads)
        if (forward.contains(value)) kept.insert(value);
  int64_t total = 0;
  for (const ValueId value : kept) total += bytes(model[value], samples);
  return total;
}

ModelConfig gpt(int64_t heads, int64_t hidden, int64_t layers, int64_t seq, int64_t vocab) {
  ModelConfig config = usual_config(Architecture::Gpt);
  config.heads = heads, config.hidden = hidden, config.layers = layers, config.seq = seq, config.vocab = vocab;
  config.ffn = 4 * hidden;
  return config;
}

/// Text of the diagnostic of a refused configuration, or what was wrong with the test.
std::string refusal(const std::string& toml) {
  auto config = parse_config(make_source("c.toml", toml));
  return config ? "accepted" : render(config.error());
}

testing::AssertionResult contains(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    if (text.find(part) == std::string::npos) return testing::AssertionFailure() << "no '" << part << "' in\n" << text;
  return testing::AssertionSuccess();
}

// ---- parameters

TEST(Analytic, ParameterCountsAsPublished) {
  EXPECT_EQ(parameter_count(built(builtin("Qwen3-0.6B"))), 596'049'920);
  EXPECT_EQ(parameter_count(built(builtin("Llama-3.1-405B"))), 405'853'388'800);
  EXPECT_EQ(parameter_count(built(builtin("Mixtral-8x7B"))), 46'702'792'704);
  EXPECT_EQ(active_parameters(builtin("Mixtral-8x7B")), 12'879'925'248);
  EXPECT_EQ(parameter_count(built(builtin("DeepSeek-V3"))), 671'026'419'200);
  EXPECT_EQ(active_parameters(builtin("DeepSeek-V3")), 37'552'297'472);
  EXPECT_EQ(parameter_count(built(builtin("GPT-3-175B"))), 174'615'822'336);
}

TEST(Analytic, EveryBuiltInModelEqualsTheOracle) {
  std::ifstream in(oracles / "models.json");
  if (!in) GTEST_SKIP() << "no oracles beside the project";
  const auto models = nlohmann::json::parse(in);
  EXPECT_EQ(models.size(), builtin_model_names().size());
  for (const auto& [name, row] : models.items()) {
    SCOPED_TRACE(name);
    const ModelConfig config = builtin(name);
    EXPECT_EQ(piper::name(config.arch), row["arch"].get<std::string>());
    EXPECT_EQ(total_parameters(config), row["params"]);
    EXPECT_EQ(parameter_count(built(config)), row["params"]);
    if (row.contains("active_params")) {
      EXPECT_EQ(active_parameters(config), row["active_params"]);
    }
  }
}

TEST(Analytic, CountsFollowEverySwitch) {
  for (const char* base : {"Qwen3-0.6B", "Piper-qwen3_1b", "DeepSeek-V3", "GPT-3-175B"})
    for (int bits = 0; bits < 32; ++bits) {
      ModelConfig config = builtin(base);
      config.layers = 4;
      config.bias = bits & 1;
      config.tie_embeddings = bits & 2;
      config.qk_norm = (bits & 4) && !has_latent_attention(config.arch);
      config.act = bits & 8 ? Activation::Gelu : Activation::Swiglu;
      config.norm = bits & 16 ? Norm::LayerNorm : Norm::RmsNorm;
      if (has_latent_attention(config.arch) && (bits & 4)) config.q_lora_rank = 0;
      EXPECT_EQ(parameter_count(built(config)), total_parameters(config)) << base << " " << bits;
    }
}

// ---- memory

TEST(Analytic, GptActivationsAsKorthikanti) {
  // 175B: s*b*h*(34 + 5*a*s/h) and 2*s*b*h
  const ModelGraph model = built(gpt(96, 12288, 3, 2048, 51200));
  for (int layer = 0; layer < 3; ++layer) EXPECT_EQ(kept_bytes(model, layer, 1), 2'868'903'936);
  EXPECT_EQ(bytes(value_named(model, "layer.0.mlp.out"), 1), 50'331'648);
  EXPECT_EQ(bytes(value_named(model, "embed.out"), 1), 50'331'648);
}

TEST(Analytic, GptActivationsEqualTheOracle) {
  std::ifstream in(oracles / "memory" / "korthikanti_activation_memory.csv");
  if (!in) GTEST_SKIP() << "no oracles beside the project";
  std::string line;
  std::getline(in, line);
  int rows = 0;
  for (; std::getline(in, line); ++rows) {
    std::vector<std::string> cells;
    std::istringstream row(line);
    for (std::string cell; std::getline(row, cell, ',');) cells.push_back(cell);
    const auto number = [&](size_t column) { return static_cast<int64_t>(std::llround(std::stod(cells.at(column)))); };
    const ModelGraph model = built(gpt(number(1), number(2), 2, number(7), number(9)));
    const int64_t micro_batch = number(8);
    EXPECT_EQ(kept_bytes(model, 1, micro_batch), number(10)) << line;
    EXPECT_EQ(bytes(value_named(model, "layer.0.mlp.out"), micro_batch), number(15)) << line;
  }
  EXPECT_EQ(rows, 4);
}

TEST(Analytic, FlashAttentionKeepsNoScores) {
  ModelConfig config = builtin("Llama-3-8B");
  config.layers = 1;
  const int64_t h = 4096, kv = 1024, ffn = 14336;
  for (const int64_t s : {1024, 8192}) {
    StepOverrides step;
    step.sequence = s;
    // x, norm, q, k, v, log-sum-exp, attention's result; x1, norm, gate, up, product
    const int64_t expected = 2 * s * (h + h + h + 2 * kv + h) + 4 * s * 32 + 2 * s * (h + h + 3 * ffn);
    EXPECT_EQ(kept_bytes(built(config, step), 0, 1), expected);
  }
}

// ---- work

TEST(Analytic, OperationsByTheUsualCounts) {
  ModelConfig config = builtin("Llama-3-8B");
  config.layers = 1;
  const ModelGraph model = built(config);
  const int64_t s = 4096, h = 4096, kv = 1024, ffn = 14336;
  const int64_t linear = 2 * s * (2 * h * h + 2 * h * kv), scores = 4 * s * s * 32 * 128;
  const Chunk& attention = chunk_named(model, "layer.0.attention");
  EXPECT_EQ(attention.find(Pass::F)->flops, (Amount{0, linear + scores}));
  EXPECT_EQ(attention.find(Pass::BI)->flops, (Amount{0, linear + 2 * scores}));
  EXPECT_EQ(attention.find(Pass::BW)->flops, (Amount{0, linear}));
  EXPECT_EQ(attention.find(Pass::B)->flops, (Amount{0, 2 * linear + 2 * scores}));
  EXPECT_EQ(chunk_named(model, "layer.0.mlp").find(Pass::F)->flops, (Amount{0, 2 * s * 3 * h * ffn}));
  EXPECT_EQ(chunk_named(model, "head").find(Pass::B)->flops, (Amount{0, 2 * 2 * s * h * 128256}));
  EXPECT_EQ(chunk_named(model, "embed").find(Pass::B)->flops, (Amount{0, 0}));
}

TEST(Analytic, TemporariesLiveOnlyInsideTheChunk) {
  const ModelGraph model = built(builtin("Mixtral-8x7B"));
  const Chunk& experts = chunk_named(model, "layer.0.experts");
  EXPECT_EQ(experts.find(Pass::F)->temporaries, (Amount{0, 2 * 4096 * 14336 * 2}));
  EXPECT_EQ(experts.find(Pass::BI)->temporaries, (Amount{0, 2 * 2 * 4096 * 14336 * 2}));
  EXPECT_EQ(experts.find(Pass::BW)->temporaries, Amount{});
  EXPECT_EQ(chunk_named(model, "layer.0.combine").find(Pass::F)->temporaries, Amount{});
}

TEST(Analytic, ExpertsDoTheWorkOfTheChosenOnes) {
  const ModelGraph model = built(builtin("Mixtral-8x7B"));
  const int64_t slots = 2 * 4096;
  EXPECT_EQ(chunk_named(model, "layer.0.experts").find(Pass::F)->flops, (Amount{0, 2 * slots * 3 * 4096 * 14336}));
}

// ---- the graph

/// However finely chunks are told apart, parameters and products are those of the model.
TEST(Analytic, PartsOfACutAddUp) {
  for (const std::string_view name : builtin_model_names()) {
    SCOPED_TRACE(name);
    ModelConfig config = builtin(name);
    config.layers = std::min<int64_t>(config.layers, 5);
    const StepConfig step = resolve({}, config);
    const ModelGraph whole = built(config);
    const auto flops = [](const ModelGraph& model, Pass pass) {
      int64_t sum = 0;
      for (const Chunk& chunk : model.chunks)
        if (const PassWork* work = chunk.find(pass)) sum += work->flops.per_sample;
      return sum;
    };
    const auto count = [](const ModelGraph& model) {
      int64_t sum = 0;
      for (const Parameter& parameter : model.parameters) sum += elements(parameter.shape, 0);
      return sum;
    };
    for (const LayerForm form : {LayerForm::Sharded, LayerForm::ShardedVocabulary}) {
      auto parts = analytic_model(config, step, form);
      ASSERT_TRUE(parts) << render(parts.error());
      EXPECT_TRUE(*parse_model(make_source(std::string(name), print(*parts))) == *parts);
      EXPECT_EQ(count(*parts), count(whole));
      for (const Pass pass : {Pass::F, Pass::B, Pass::BI, Pass::BW}) EXPECT_EQ(flops(*parts, pass), flops(whole, pass));
      for (const Parameter& parameter : parts->parameters)
        if (parameter.name == "embed.weight" || parameter.name == "head.weight") {
          EXPECT_EQ(labelled(parameter.shape, tp_label) != nullptr, form == LayerForm::ShardedVocabulary)
              << parameter.name;
        } else if (parameter.name.find("experts.") != std::string::npos ||
                   parameter.name.find("shared_") != std::string::npos) {
          EXPECT_TRUE(labelled(parameter.shape, tp_label)) << parameter.name;  // none has a bias
        }
    }
  }
}

TEST(Analytic, EveryBuiltInModelVerifiesAndRoundTrips) {
  for (const std::string& name : builtin_model_names()) {
    ModelConfig config = builtin(name);
    config.layers = std::min<int64_t>(config.layers, 5);
    const ModelGraph model = built(config);
    EXPECT_TRUE(verify(model)) << name;
    auto again = parse_model(make_source(name, print(model)));
    ASSERT_TRUE(again) << render(again.error());
    EXPECT_TRUE(*again == model) << name;
  }
}

TEST(Analytic, ScopesOfADenseModel) {
  ModelConfig config = builtin("Qwen3-8B");
  config.layers = 2;
  const ModelGraph model = built(config);
  std::vector<std::string> names;
  for (const Chunk& chunk : model.chunks) names.push_back(chunk.name);
  EXPECT_EQ(names, (std::vector<std::string>{"embed", "layer.0.attention", "layer.0.mlp", "layer.1.attention",
                                             "layer.1.mlp", "head"}));
  EXPECT_EQ(chunk_named(model, "layer.1.attention").scopes, (std::vector<ScopeTag>{{"layer", 1}, {"attention", 0}}));
  EXPECT_EQ(chunk_named(model, "layer.1.mlp").scopes, (std::vector<ScopeTag>{{"layer", 1}}));
  EXPECT_EQ(chunk_named(model, "embed").scopes, (std::vector<ScopeTag>{{"embed", 0}}));
  EXPECT_EQ(chunk_named(model, "head").scopes, (std::vector<ScopeTag>{{"head", 0}}));
  EXPECT_EQ(chunk_named(model, "embed").find(Pass::BI), nullptr);
  EXPECT_EQ(*chunk_named(model, "embed").find(Pass::BW), *chunk_named(model, "embed").find(Pass::B));
}

TEST(Analytic, ScopesOfAMixture) {
  ModelConfig config = builtin("DeepSeek-V3");
  config.layers = 4;
  const ModelGraph model = built(config);
  EXPECT_EQ(model.chunks.size(), 1u + 3 * 2 + 4 + 1);
  EXPECT_EQ(chunk_named(model, "layer.2.mlp").scopes, (std::vector<ScopeTag>{{"layer", 2}}));
  EXPECT_EQ(chunk_named(model, "layer.3.experts").scopes, (std::vector<ScopeTag>{{"layer", 3}, {"experts", 0}}));
  EXPECT_EQ(chunk_named(model, "layer.3.dispatch").scopes, (std::vector<ScopeTag>{{"layer", 3}}));
  EXPECT_EQ(chunk_named(model, "layer.3.combine").scopes, (std::vector<ScopeTag>{{"layer", 3}}));
  EXPECT_EQ(chunk_named(model, "layer.3.combine").find(Pass::BW), nullptr);
}

/// Keys and values of latent attention are made inside of its chunk, so nobody could gather or exchange them. Without
/// experts nothing else would refuse it.
TEST(Analytic, LatentAttentionNeedsAllTokens) {
  ModelConfig config = builtin("DeepSeek-V3");
  config.layers = config.dense_layers;
  const StepConfig step = resolve({}, config);
  EXPECT_TRUE(analytic_model(config, step, LayerForm::Sharded, TokenForm{}));
  const auto model = analytic_model(config, step, LayerForm::Sharded, TokenForm{.divided = true});
  ASSERT_FALSE(model);
  EXPECT_TRUE(contains(render(model.error()), {"E317", "latent attention", "DeepSeek-V3"}));
}

TEST(Analytic, WhatTouchesTheExpertsIsLabelled) {
  for (const char* name : {"Piper-qwen3_1b", "DeepSeek-V3", "Mixtral-8x22B"}) {
    const ModelGraph model = built(builtin(name));
    const Chunk& experts = chunk_named(model, "layer.4.experts");
    for (const Pass pass : {Pass::F, Pass::B, Pass::BI, Pass::BW}) {
      const PassWork& work = *experts.find(pass);
      for (const auto& list : {work.reads, work.writes})
        for (const ValueId value : list) {
          EXPECT_NE(labelled(model[value].shape, "expert"), nullptr) << model[value].name;
          EXPECT_NE(labelled(model[value].shape, "capacity"), nullptr) << model[value].name;
        }
      for (const ParameterId parameter : work.parameters)
        EXPECT_EQ(model[parameter].shape.front().label, "expert") << model[parameter].name;
    }
    EXPECT_EQ(experts.find(Pass::BW)->gradients.size(), 3u);
  }
}

TEST(Analytic, CapacityIsRoundedUpPerSlice) {
  ModelConfig config = builtin("Piper-qwen3_1b");
  config.capacity_factor = 1.25;
  StepOverrides step;
  step.sequence = 7;
  const ModelGraph model = built(config, step);
  const Dim& capacity = *labelled(value_named(model, "layer.0.dispatch.out").shape, "capacity");
  for (int64_t samples = 1; samples < 10; ++samples)  // 1.25 * 2 * 7 * samples / 4
    EXPECT_EQ(capacity.extent(samples), static_cast<int64_t>(std::ceil(1.25 * 2 * 7 * samples / 4)));
}

/// Without slots: a row for every choice, sorted by expert, and products of so many rows in every pass.
TEST(Analytic, DroplessExpertsWorkOnTheChoices) {
  ModelConfig config = builtin("Piper-qwen3_1b");
  config.capacity_factor = static_cast<double>(config.experts) / static_cast<double>(config.top_k);
  const ModelGraph slots = built(config);
  config.dropless = true;
  const ModelGraph model = built(config);
  const int64_t rows = config.top_k * model.step.sequence;
  EXPECT_EQ(value_named(model, "layer.0.experts.out").shape,
            (Shape{{rows, true, 1, "routed"}, {config.hidden, false, 1, {}}}));
  const Chunk& experts = chunk_named(model, "layer.0.experts");
  EXPECT_TRUE(experts.experts);
  for (const ParameterId parameter : experts.find(Pass::F)->parameters)
    EXPECT_EQ(model[parameter].shape.front(), (Dim{config.experts, false, 1, "expert"}));
  ASSERT_TRUE(experts.routed_by);
  EXPECT_EQ(model[*experts.routed_by].shape, (Shape{{config.experts, false, 1, "expert"}}));
  for (const Pass pass : {Pass::F, Pass::B, Pass::BI, Pass::BW}) {
    const std::vector<ValueId>& reads = experts.find(pass)->reads;
    EXPECT_TRUE(std::ranges::find(reads, *experts.routed_by) != reads.end()) << name(pass);
  }
  for (const Pass pass : {Pass::F, Pass::BI, Pass::BW}) {
    EXPECT_EQ(experts.find(pass)->flops.at(3), 3 * 2 * 3 * rows * config.hidden * config.moe_ffn);
    EXPECT_EQ(chunk_named(slots, "layer.0.experts").find(pass)->flops.at(3),
              experts.find(pass)->flops.at(3) * config.experts / config.top_k);
  }
}

TEST(Analytic, TiedWeightsAreOneParameterWithTwoContributions) {
  ModelConfig config = builtin("Qwen3-0.6B");
  const ModelGraph model = built(config);
  const ParameterId tied = chunk_named(model, "embed").find(Pass::F)->parameters.front();
  const auto has = [&](const std::vector<ParameterId>& list) {
    return std::find(list.begin(), list.end(), tied) != list.end();
  };
  EXPECT_TRUE(has(chunk_named(model, "head").find(Pass::F)->parameters));
  EXPECT_TRUE(has(chunk_named(model, "head").find(Pass::BW)->gradients));
  EXPECT_TRUE(has(chunk_named(model, "embed").find(Pass::BW)->gradients));
}

TEST(Analytic, EveryParameterIsUsedAndGetsAGradient) {
  for (const std::string& name : builtin_model_names()) {
    const ModelGraph model = built(builtin(name));
    std::set<ParameterId> used, trained;
    for (const Chunk& chunk : model.chunks) {
      used.insert(chunk.find(Pass::F)->parameters.begin(), chunk.find(Pass::F)->parameters.end());
      trained.insert(chunk.find(Pass::B)->gradients.begin(), chunk.find(Pass::B)->gradients.end());
    }
    EXPECT_EQ(used.size(), model.parameters.size()) << name;
    EXPECT_EQ(trained.size(), model.parameters.size()) << name;
  }
}

TEST(Analytic, EveryValueIsReadExceptTheLoss) {
  for (const std::string& name : builtin_model_names()) {
    const ModelGraph model = built(builtin(name));
    std::set<ValueId> read;
    for (const Chunk& chunk : model.chunks)
      for (const auto& work : chunk.work)
        if (work) read.insert(work->reads.begin(), work->reads.end());
    for (size_t i = 0; i < model.values.size(); ++i) {
      EXPECT_EQ(read.contains(ValueId(i)), model.values[i].kind != ValueKind::Loss) << name << model.values[i].name;
    }
  }
}

// ---- names

TEST(Analytic, NamesWithAndWithoutBracketsAndBeginnings) {
  EXPECT_EQ(builtin("Piper-qwen3_9b").hidden, 2048);
  EXPECT_EQ(builtin("Piper-qwen3_9b (9B-A3B)").hidden, 2048);
  EXPECT_EQ(builtin("deepseek").layers, 61);
  EXPECT_EQ(builtin("qwen3-8b").layers, 36);
  auto ambiguous = builtin_model("Qwen3-1");
  ASSERT_FALSE(ambiguous);
  EXPECT_TRUE(contains(render(ambiguous.error()), {"E112", "several models", "Qwen3-1.7B, Qwen3-14B"}));
  auto unknown = load_model("analytic:Qwen3-9B");
  ASSERT_FALSE(unknown);
  EXPECT_TRUE(contains(render(unknown.error()), {"E112", "unknown model \"Qwen3-9B\"", "did you mean \"Qwen3-"}));
  EXPECT_FALSE(builtin_model(""));
}

// ---- configuration files

TEST(AnalyticConfig, ExampleIsAsItSays) {
  auto model = load_model((root / "examples" / "moe.toml").string());
  ASSERT_TRUE(model) << render(model.error());
  EXPECT_EQ(model->name, "small-moe");
  EXPECT_EQ(model->chunks.size(), 1u + 16 * 4 + 1);
  EXPECT_EQ(model->step.batch, 32);
  EXPECT_EQ(model->step.sequence, 2048);
  EXPECT_EQ(model->step.weights, DType::BFloat16);
  EXPECT_EQ(model->step.master, DType::Float32);
  EXPECT_EQ(print(value_named(*model, "layer.0.dispatch.out").shape), "[expert=8, capacity=b*640, 1024]");
}

TEST(AnalyticConfig, BuiltInWithOverrides) {
  auto config = parse_config(make_source("c.toml", "[model]\nname = \"Qwen3-8B\"\nlayers = 4\n[step]\nbatch = 7\n"));
  ASSERT_TRUE(config) << render(config.error());
  ModelConfig expected = builtin("Qwen3-8B");
  expected.layers = 4;
  EXPECT_EQ(config->model, expected);
  EXPECT_EQ(config->step.batch, 7);
}

TEST(AnalyticConfig, DefaultsOfTheStep) {
  const StepConfig usual = resolve({}, builtin("Qwen3-8B"));
  EXPECT_EQ(usual, (StepConfig{1, 4096, DType::BFloat16, DType::Float32, DType::Float32, {}, Optimizer::AdamW, {}}));
  EXPECT_EQ(resolve({}, builtin("GPT-3-175B")).sequence, 2048);
  auto whole = parse_config(make_source("c.toml", "[model]\nname=\"Qwen3-8B\"\n[step]\nweights=\"float32\"\n"));
  EXPECT_EQ(resolve(whole->step, whole->model).master, std::nullopt);
  auto none = parse_config(make_source("c.toml", "[model]\nname=\"Qwen3-8B\"\n[step]\nmaster=\"none\"\n"));
  EXPECT_EQ(resolve(none->step, none->model).master, std::nullopt);
}

TEST(AnalyticConfig, RefusalsPointAtTheKey) {
  const std::string model = "[model]\nname = \"Qwen3-8B\"\n";
  const auto refused = [](const std::string& toml, const std::vector<std::string>& parts) {
    EXPECT_TRUE(contains(refusal(toml), parts)) << toml;
  };
  refused(model + "layer = 4\n", {"c.toml:3:1", "E111", "unknown key \"layer\" in [model]", "did you mean \"layers\""});
  refused(model + "layers = \"four\"\n", {"c.toml:3:10", "E111", "layers must be a whole number"});
  refused(model + "layers = 4.5\n", {"c.toml:3:10", "E111", "layers must be a whole number"});
  refused(model + "layers = 0\n", {"c.toml:3:10", "E111", "layers = 0 must be between 1 and 10000"});
  refused(model + "hidden = -1\n", {"c.toml:3:10", "E111", "hidden = -1 must be"});
  refused(model + "vocab = 99999999999999\n", {"c.toml:3:9", "E111", "vocab"});
  refused(model + "vocab = 99999999999999999999999\n", {"c.toml:3:", "E111"});
  refused(model + "kv_heads = 5\n", {"c.toml:3:12", "E111", "heads = 32 is not a multiple of kv_heads = 5"});
  refused(model + "experts = 8\n", {"c.toml:3:11", "E111", "experts means nothing for architecture qwen3-dense"});
  refused(model + "tie_embeddings = 1\n", {"c.toml:3:18", "E111", "true or false"});
  refused(model + "act = \"swigl\"\n", {"c.toml:3:7", "E111", "unknown act", "did you mean \"swiglu\""});
  refused("[model]\nname = \"Mixtral-8x7B\"\ntop_k = 9\n", {"c.toml:3:9", "top_k = 9 is more than experts = 8"});
  refused("[model]\nname = \"Mixtral-8x7B\"\ncapacity_factor = nan\n", {"c.toml:3:19", "E111", "capacity_factor"});
  refused("[model]\nname = \"Mixtral-8x7B\"\ncapacity_factor = -1\n", {"c.toml:3:19", "E111", "capacity_factor"});
  refused("[model]\nname = \"Qwen3-9B\"\n", {"c.toml:2:8", "E112", "did you mean"});
  refused("[model]\narch = \"lama3\"\n", {"c.toml:2:8", "E112", "did you mean \"llama3\""});
  refused("[model]\nlayers = 2\n", {"c.toml:1:1", "E111", "needs arch"});
  refused("[model]\narch = \"llama3\"\n", {"c.toml:1:1", "E111", "hidden is missing"});
  refused("[model]\narch = \"qwen3-dense\"\nname = \"Qwen3-8B\"\nlayers = 2\n", {"leave out arch"});
}

TEST(AnalyticConfig, RefusalsOfTheStepAndTheFile) {
  const std::string step = "[model]\nname = \"GPT-3-175B\"\n[step]\n";
  const auto refused = [](const std::string& toml, const std::vector<std::string>& parts) {
    EXPECT_TRUE(contains(refusal(toml), parts)) << toml;
  };
  refused(step + "bach = 4\n", {"c.toml:4:1", "E111", "did you mean \"batch\""});
  refused(step + "batch = 0\n", {"c.toml:4:9", "E111", "batch = 0"});
  refused(step + "batch = 10000000000\n", {"c.toml:4:9", "E111"});
  refused(step + "sequence = 4096\n", {"c.toml:4:12", "E111", "longer than the 2048 positions"});
  refused(step + "weights = \"bf16\"\n", {"c.toml:4:11", "E111", "unknown dtype"});
  refused(step + "weights = \"int64\"\n", {"c.toml:4:11", "E111", "floating-point"});
  refused(step + "optimizer = \"adam\"\n", {"c.toml:4:13", "E111", "did you mean \"adamw\""});
  refused("[model\n", {"c.toml:1:", "E111"});
  refused("", {"E111", "no [model]"});
  refused("model = 3\n", {"c.toml:1:9", "E111", "model must be a section"});
  refused("[modl]\n", {"c.toml:1:2", "E111", "unknown section [modl]", "did you mean \"model\""});
  refused("# \xc3\xa4\n[model]\nname = \"\xc3\xa4\" x\n", {"c.toml:3:", "E111"});
}

TEST(AnalyticConfig, TheLargestNumbersAreRefusedNotOverflowed) {
  for (const char* base : {"GPT-3-175B", "DeepSeek-V3", "Mixtral-8x7B"}) {
    ModelConfig config = builtin(base);
    config.hidden = 1 << 20, config.heads = 1 << 14, config.vocab = 1 << 24, config.layers = 4;
    if (config.seq > 0) config.seq = 1 << 24;
    if (config.experts > 0) config.experts = 1 << 16, config.moe_ffn = 1 << 22, config.capacity_factor = 1000;
    StepOverrides step;
    step.sequence = 1 << 24;
    step.batch = 1'000'000'000;
    auto model = analytic_model(config, resolve(step, config));
    ASSERT_FALSE(model);
    EXPECT_EQ(model.error().code, ErrorCode::E111);
  }
}

// ---- files

TEST(LoadModel, TextFormAndItsOverrides) {
  ModelConfig config = builtin("Piper-qwen3_1b");
  config.layers = 2;
  const ModelGraph model = built(config);
  const std::string path = (std::filesystem::path(testing::TempDir()) / "analytic_test.model").string();
  std::ofstream(path) << print(model);
  auto same = load_model(path);
  ASSERT_TRUE(same) << render(same.error());
  EXPECT_TRUE(*same == model);
  StepOverrides step;
  step.batch = 64;
  step.optimizer = Optimizer::Sgd;
  auto changed = load_model(path, step);
  ASSERT_TRUE(changed);
  EXPECT_EQ(changed->step.batch, 64);
  EXPECT_EQ(changed->step.optimizer, Optimizer::Sgd);
  step.sequence = 8;
  auto refused = load_model(path, step);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::E105);
  std::filesystem::remove(path);
}

TEST(LoadModel, OverridesWinOverTheFile) {
  StepOverrides step;
  step.batch = 5;
  step.sequence = 128;
  auto model = load_model((root / "examples" / "moe.toml").string(), step);
  ASSERT_TRUE(model);
  EXPECT_EQ(model->step.batch, 5);
  EXPECT_EQ(model->step.sequence, 128);
  EXPECT_EQ(model->step.weights, DType::BFloat16);
}

TEST(LoadModel, TheExampleInTheManualIsAModel) {
  std::ifstream in(root / "docs" / "model.md");
  std::stringstream text;
  text << in.rdbuf();
  const std::string manual = text.str(), fence = "```\n";
  const size_t begin = manual.find(fence + "model tiny");
  ASSERT_NE(begin, std::string::npos);
  const size_t end = manual.find(fence, begin + fence.size());
  const std::string example = manual.substr(begin + fence.size(), end - begin - fence.size());
  auto model = parse_model(make_source("model.md", example));
  ASSERT_TRUE(model) << render(model.error());
  EXPECT_EQ(parameter_count(*model), 100 * 32 + 32 * 32);
}

TEST(LoadModel, UnreadableFiles) {
  auto missing = load_model("no/such/model.txt");
  ASSERT_FALSE(missing);
  EXPECT_TRUE(contains(render(missing.error()), {"E108", "no/such/model.txt", "No such file", "analytic:NAME"}));
  auto forgotten = load_model("Qwen3-8B");
  ASSERT_FALSE(forgotten);
  EXPECT_TRUE(contains(render(forgotten.error()), {"E108", "did you mean \"analytic:Qwen3-8B\""}));
  auto folder = load_model(testing::TempDir());
  ASSERT_FALSE(folder);
  EXPECT_EQ(folder.error().code, ErrorCode::E108);
}

}  // namespace
}  // namespace piper
