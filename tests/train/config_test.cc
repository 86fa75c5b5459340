// The sections of a configuration that training reads: every key arrives, every mistake is refused at its place.
#include "train/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/read_file.h"
#include "model/analytic/config_file.h"

namespace piper {
namespace {

using testing::HasSubstr;

const std::string model = "[model]\nname = \"Qwen3-0.6B\"\n";

Result<TrainConfig> parse(const std::string& text, const std::string& name = "config.toml") {
  return parse_train_config(make_source(name, text));
}
std::string refusal(const std::string& text) {
  auto config = parse(text);
  return config ? "" : render(config.error());
}

TEST(TrainConfig, EveryKeyArrives) {
  const auto config = parse(model + R"(
[step]
batch = 8
[optimizer]
learning_rate = 3e-4
betas = [0.8, 0.9]
eps = 1e-6
weight_decay = 0.2
clip = 1
[lr_schedule]
warmup = 10
total = 200
min_lr_ratio = 0.25
[data]
kind = "tokens"
paths = ["a.bin", "/abs/b.bin"]
dtype = "uint32"
[run]
steps = 150
seed = 7
schedule = "../dualpipe.piper"
devices = 4
emulate = "net.toml"
trace = "out/trace.json"
metrics = "metrics.jsonl"
on_nan = "skip"
)",
                            "runs/one/config.toml");
  ASSERT_TRUE(config);
  OptimizerSettings optimizer{Optimizer::AdamW, 3e-4, 0.8, 0.9, 1e-6, 0.2, 0.9};
  optimizer.adafactor.epsilon = 1e-6;  // eps is a key of both
  EXPECT_EQ(config->optimizer, optimizer);
  EXPECT_EQ(config->clip, 1.0);
  EXPECT_EQ(config->rate.warmup, 10);
  EXPECT_EQ(config->rate.total, 200);
  EXPECT_EQ(config->rate.min_lr_ratio, 0.25);
  EXPECT_EQ(config->data.kind, DataKind::Tokens);
  EXPECT_EQ(config->data.width, TokenWidth::Bits32);
  EXPECT_EQ(config->data.seed, 7u);
  ASSERT_EQ(config->data.sources.size(), 1u);
  const std::vector<NamedFile>& paths = config->data.sources[0].paths;
  ASSERT_EQ(paths.size(), 2u);
  EXPECT_EQ(paths[0].path, "runs/one/a.bin");
  EXPECT_EQ(short_place(paths[0].where), "runs/one/config.toml:18");
  EXPECT_EQ(paths[1].path, "/abs/b.bin");
  EXPECT_EQ(config->run.steps, 150);
  EXPECT_EQ(config->run.seed, 7u);
  EXPECT_EQ(config->run.schedule->path, "runs/dualpipe.piper");
  EXPECT_EQ(config->run.devices, 4);
  EXPECT_EQ(config->run.emulate->path, "runs/one/net.toml");
  EXPECT_EQ(config->run.trace->path, "runs/one/out/trace.json");
  EXPECT_EQ(config->run.metrics->path, "runs/one/metrics.jsonl");
  EXPECT_EQ(config->run.on_nan, OnNan::Skip);
}

TEST(TrainConfig, WhatUpdatesAreMadeOf) {
  const auto config = parse(model + R"(
[step]
accumulate = 4
[optimizer]
weight_decay_on = "matrices"
[[optimizer.groups]]
pattern = "head.*"
[[optimizer.groups]]
pattern = "embed.*"
frozen = true
[lr_schedule]
unit = "tokens"
shape = "wsd"
warmup = 1_000_000
[run]
steps = 100
)");
  ASSERT_TRUE(config);
  EXPECT_EQ(config->accumulate, 4);
  EXPECT_TRUE(config->decay_matrices_only);
  EXPECT_EQ(config->frozen_groups, std::set<size_t>{1});
  EXPECT_EQ(config->rate.unit, LrUnit::Tokens);
  EXPECT_EQ(config->rate.warmup, 1'000'000);  // how many tokens the run has is not known here
  EXPECT_EQ(config->rate.decay, 0);
}

TEST(TrainConfig, Evaluation) {
  const auto of_run = parse("[evaluation]\nevery = 50\nbatches = 4\n[data]\nkind = \"reference\"\n[run]\nseed = 7\n");
  ASSERT_TRUE(of_run && of_run->evaluation);
  EXPECT_EQ(of_run->evaluation->every, 50);
  EXPECT_EQ(of_run->evaluation->batches, 4);
  EXPECT_FALSE(of_run->evaluation->own_data);
  EXPECT_EQ(of_run->evaluation->data.kind, DataKind::Reference);
  EXPECT_FALSE(of_run->evaluation->prompts);
  const auto prompts = parse(
      "[data]\nkind = \"tokens\"\npaths = \"x\"\n[evaluation]\nprompts = [\"Once\", \"upon\"]\nmax_new_tokens = 5\n"
      "temperature = 0.5\ntokenizer = \"t\"\n",
      "runs/c.toml");
  ASSERT_TRUE(prompts && prompts->evaluation->prompts);
  EXPECT_EQ(prompts->evaluation->prompts->texts, (std::vector<std::string>{"Once", "upon"}));
  EXPECT_EQ(prompts->evaluation->prompts->max_new_tokens, 5);
  EXPECT_EQ(prompts->evaluation->prompts->temperature, 0.5);
  EXPECT_EQ(prompts->evaluation->prompts->tokenizer->path, "runs/t");
  const auto own = parse(
      "[run]\nseed = 7\n[evaluation]\n[evaluation.data]\nkind = \"text\"\npaths = \"held_out.txt\"\n", "runs/c.toml");
  ASSERT_TRUE(own && own->evaluation);
  EXPECT_EQ(own->evaluation->every, 0);
  EXPECT_EQ(own->evaluation->batches, 1);
  EXPECT_TRUE(own->evaluation->own_data);
  EXPECT_EQ(own->evaluation->data.sources.at(0).paths.at(0).path, "runs/held_out.txt");
  EXPECT_EQ(own->evaluation->data.seed, 7u);
  EXPECT_EQ(own->data.kind, DataKind::Synthetic);
}

TEST(TrainConfig, MixturesAndHowSamplesAreMade) {
  const auto config = parse(R"(
[data]
kind = "tokens"
packing = "truncate"
loss = "completions"
shuffle = 1000
validation = 0.05
[[data.sources]]
paths = "web"
weight = 3
[[data.sources]]
paths = ["code", "more"]
epochs = 1.5
)");
  ASSERT_TRUE(config) << refusal("");
  const DataConfig& data = config->data;
  ASSERT_EQ(data.sources.size(), 2u);
  EXPECT_EQ(data.sources[0].weight, 3);
  EXPECT_FALSE(data.sources[0].epochs);
  EXPECT_EQ(data.sources[1].paths.size(), 2u);
  EXPECT_EQ(data.sources[1].weight, 1);
  EXPECT_EQ(data.sources[1].epochs, 1.5);
  EXPECT_EQ(data.packing, DocumentPacking::Truncate);
  EXPECT_EQ(data.loss, LossOn::Completions);
  EXPECT_EQ(data.shuffle_window, 1000);
  EXPECT_EQ(data.validation, 0.05);
  EXPECT_TRUE(leaves_out_targets(data));
  EXPECT_EQ(parse("[data]\nkind = \"text\"\npaths = \"a\"\nshuffle = \"none\"\n")->data.shuffle_window, 1);
  EXPECT_EQ(data.attention, AttentionWithin::Sample);
  const auto within = parse("[data]\nkind = \"text\"\npaths = \"a\"\nattention = \"document\"\n");
  EXPECT_EQ(within->data.attention, AttentionWithin::Document);
  EXPECT_TRUE(leaves_out_targets(within->data));
}

TEST(TrainConfig, DataThatMakesNoSense) {
  const std::string tokens = "[data]\nkind = \"tokens\"\n", one = tokens + "paths = \"a\"\n";
  const std::pair<std::string, std::string> cases[] = {
      {one + "validation = 1\n", "validation = 1 must be at least 0 and below 1"},
      {one + "shuffle = 0\n", "shuffle = 0 must be between 1"},
      {one + "shuffle = \"window\"\n", "unknown shuffle \"window\""},
      {one + "packing = \"yes\"\n", "unknown packing \"yes\""},
      {one + "epochs = 0\n", "epochs = 0 must be above 0"},
      {one + "[[data.sources]]\npaths = \"b\"\n", "paths means nothing beside sources"},
      {tokens + "[[data.sources]]\nweight = 1\n", "[data] does not say which files"},
      {tokens + "[[data.sources]]\npaths = \"b\"\nweight = 0\n", "weight = 0 must be above 0"},
      {tokens + "[[data.sources]]\npath = \"b\"\n", "unknown key \"path\""},
      {"[data]\nkind = \"synthetic\"\npacking = \"none\"\n", "packing means nothing for data that is not read from"},
  };
  for (const auto& [text, message] : cases) EXPECT_THAT(refusal(text), HasSubstr(message)) << text;
  EXPECT_THAT(refusal(one + "attention = \"documents\"\n"), HasSubstr("did you mean \"document\"?"));
}

TEST(TrainConfig, Defaults) {
  const auto config = parse(model);
  ASSERT_TRUE(config);
  EXPECT_EQ(config->optimizer, (OptimizerSettings{Optimizer::AdamW, 1e-3, 0.9, 0.95, 1e-8, 0.1, 0.9}));
  EXPECT_FALSE(config->clip || config->evaluation);
  EXPECT_EQ(config->data.kind, DataKind::Synthetic);
  EXPECT_EQ(config->run.steps, 100);
  EXPECT_EQ(config->run.on_nan, OnNan::Stop);
  EXPECT_FALSE(config->run.schedule || config->run.devices || config->run.emulate || config->run.trace);
  for (const int64_t step : {0, 50, 99, 1000}) EXPECT_EQ(learning_rate(*config, {step}), 1e-3);
}

TEST(TrainConfig, TheOptimizerIsPartOfTheStep) {
  const auto config = parse("[step]\noptimizer = \"momentum\"\n[optimizer]\nmomentum = 0.5\n");
  ASSERT_TRUE(config);
  EXPECT_EQ(config->optimizer.kind, Optimizer::Momentum);
  EXPECT_EQ(config->optimizer.momentum, 0.5);
  EXPECT_EQ(config->optimizer.weight_decay, 0);  // as torch.optim.SGD
  EXPECT_EQ(refusal("[step]\noptimizer = \"sgd\"\n[optimizer]\nbetas = [0.9, 0.95]\n"),
            "config.toml:4:9: error[E111]: betas means nothing for optimizer = \"sgd\"\n"
            "  betas = [0.9, 0.95]\n"
            "          ^^^^^^^^^^^\n"
            "config.toml:2:13: note: chosen here\n"
            "  optimizer = \"sgd\"\n"
            "              ^^^^^\n"
            "help: leave it out, or write optimizer = \"adamw\" in [step]\n");
  EXPECT_THAT(refusal("[optimizer]\nmomentum = 0.5\n"), HasSubstr("means nothing for optimizer = \"adamw\""));
}

TEST(TrainConfig, ShippedClustersAreNoFiles) {
  const auto shipped = parse("[run]\nemulate = \"h100\"\n", "runs/c.toml"),
             own = parse("[run]\nemulate = \"h100.toml\"\n", "runs/c.toml");
  EXPECT_EQ(shipped->run.emulate->path, "h100");
  EXPECT_EQ(own->run.emulate->path, "runs/h100.toml");
}

TEST(TrainConfig, MistakesAreShownWhereTheyAre) {
  EXPECT_EQ(refusal("[optimizer]\nlearning_rat = 1\n"),
            "config.toml:2:1: error[E111]: unknown key \"learning_rat\" in [optimizer]\n"
            "  learning_rat = 1\n"
            "  ^^^^^^^^^^^^\n"
            "help: did you mean \"learning_rate\"?\n");
  EXPECT_EQ(refusal("[optimzer]\n"),
            "config.toml:1:2: error[E111]: unknown section [optimzer]\n"
            "  [optimzer]\n"
            "   ^^^^^^^^\n"
            "help: did you mean \"optimizer\"?\n");
  EXPECT_EQ(refusal("[lr_schedule]\nwarmup = 200\n[run]\nsteps = 100\n"),
            "config.toml:2:10: error[E111]: warmup = 200 steps, but the lowest rate is reached after 100\n"
            "  warmup = 200\n"
            "           ^^^\n"
            "help: without total it is reached at the end of the run\n");
}

TEST(TrainConfig, NumbersThatMakeNoSense) {
  const std::string text = "[data]\nkind = \"text\"\npaths = \"x\"\n[evaluation]\n";
  const std::pair<std::string, std::string> cases[] = {
      {"[optimizer]\nlearning_rate = 0\n", "learning_rate = 0 must be above 0"},
      {"[optimizer]\nlearning_rate = \"fast\"\n", "learning_rate must be a number"},
      {"[optimizer]\nlearning_rate = nan\n", "learning_rate must be a number"},
      {"[optimizer]\nbetas = 0.9\n", "betas must be a list of numbers"},
      {"[optimizer]\nbetas = [0.9]\n", "betas must be two numbers"},
      {"[optimizer]\nbetas = [0.9, 1]\n", "betas must be two numbers"},
      {"[optimizer]\neps = -1\n", "eps = -1 must be above 0"},
      {"[optimizer]\nweight_decay = -0.1\n", "weight_decay = -0.1 must be 0 or more"},
      {"[step]\noptimizer = \"momentum\"\n[optimizer]\nmomentum = 1\n", "momentum = 1 must be at least 0 and below 1"},
      {"[optimizer]\nclip = 0\n", "clip = 0 must be above 0"},
      {"[lr_schedule]\nmin_lr_ratio = 1.5\n", "min_lr_ratio = 1.5 must be a share from 0 to 1"},
      {"[lr_schedule]\nwarmup = -1\n", "warmup = -1 must be between 0"},
      {"[lr_schedule]\nwarmup = 20\ntotal = 10\n", "raise total"},
      {"[run]\nsteps = 0\n", "steps = 0 must be between 1"},
      {"[run]\nseed = -1\n", "seed = -1 must be between 0"},
      {"[run]\ndevices = 0\n", "devices = 0 must be between 1"},
      {"[run]\nschedule = 3\n", "schedule must be a text in quotes"},
      {"[run]\nmetrics = \"\"\n", "metrics is empty"},
      {"[run]\non_nan = \"skipp\"\n", "did you mean \"skip\"?"},
      {"[data]\npaths = \"x\"\n", "[data] needs kind"},
      {"[data]\nkind = \"txt\"\n", "did you mean \"text\"?"},
      {"[data]\nkind = \"text\"\n", "[data] does not say which files"},
      {"[data]\nkind = \"text\"\npaths = []\n", "[data] does not say which files"},
      {"[data]\nkind = \"text\"\npaths = [1]\n", "paths must be a text in quotes or a list of them"},
      {"[data]\nkind = \"synthetic\"\npaths = \"x\"\n", "paths means nothing"},
      {"[data]\nkind = \"text\"\npaths = \"x\"\ndtype = \"uint16\"\n", "dtype means nothing"},
      {"[evaluation]\nevery = 0\n", "every = 0 must be between 1"},
      {"[evaluation]\nbatches = 0\n", "batches = 0 must be between 1"},
      {"[evaluation]\nbatche = 2\n", "did you mean \"batches\"?"},
      {"[evaluation]\ndata = \"x\"\n", "data must be a section"},
      {"[evaluation]\n[evaluation.data]\npaths = \"x\"\n", "needs kind"},
      {"[evaluation]\ntemperature = 1\n", "temperature means nothing without prompts"},
      {"[evaluation]\nprompts = \"Once\"\n", "the data of the run is not text"},
      {text + "prompts = [\"Once\", \"\"]\n", "a prompt is empty"},
      {text + "prompts = \"Once\"\nmax_new_tokens = 0\n", "max_new_tokens = 0 must be between 1"},
      {text + "prompts = \"Once\"\ntemperature = -1\n", "temperature = -1 must be 0 or more"},
      {text + "prompts = \"Once\"\ntokenizer = \"t\"\n", "tokenizer means nothing for kind = \"text\""},
      {"[data]\nkind = \"tokens\"\npaths = \"x\"\n[evaluation]\nprompts = \"Once\"\n", "prompts need the tokenizer"},
      {"run = 3\n", "run must be a section"},
      {"steps = 3\n", "unknown key \"steps\" in the file"},
  };
  for (const auto& [text, message] : cases) {
    EXPECT_THAT(refusal(text), HasSubstr(message)) << text;
    EXPECT_THAT(refusal(text), HasSubstr("error[E111]")) << text;
    EXPECT_THAT(refusal(text), HasSubstr("help: ")) << text;
  }
}

TEST(TrainConfig, OneFileHoldsTheModelToo) {
  const auto file =
      make_source("config.toml", model + "[step]\nbatch = 4\n[run]\nsteps = 3\n[data]\nkind = \"reference\"\n");
  EXPECT_TRUE(parse_train_config(file));
  const auto read = parse_config(file, training_sections);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->step.batch, 4);
  EXPECT_FALSE(parse_config(file));
}

/// The blocks of a page that begin with ```KIND.
std::vector<std::string> blocks(const std::string& page, const std::string& kind) {
  const auto file = read_file(std::string(PIPER_SOURCE_DIR) + "/docs/" + page, "page");
  if (!file) return {};
  const std::string &text = (*file)->text, fence = "\n```" + kind + "\n";
  std::vector<std::string> out;
  for (size_t at = 0; (at = text.find(fence, at)) != std::string::npos;) {
    const size_t begin = at + fence.size(), end = text.find("```", begin);
    out.push_back(text.substr(begin, end - begin));
    at = end;
  }
  return out;
}

TEST(TrainConfig, TheExampleOfTheDocumentation) {
  const std::vector<std::string> found = blocks("training.md", "file small.toml");
  ASSERT_EQ(found.size(), 1u);
  const auto example = make_source("docs/training.md", found[0]);
  auto config = parse_train_config(example);
  ASSERT_TRUE(config) << render(config.error());
  EXPECT_EQ(config->run.steps, 200);
  auto read = parse_config(example, training_sections);
  ASSERT_TRUE(read) << render(read.error());
  EXPECT_EQ(read->model.vocab, 256);
}

TEST(TrainConfig, PartsOfTheDocumentationAreRead) {
  for (const auto& [page, count] : {std::pair<std::string, size_t>{"training.md", 2}, {"data.md", 1}}) {
    const std::vector<std::string> found = blocks(page, "toml");
    EXPECT_EQ(found.size(), count) << page;
    for (const std::string& part : found) {
      const auto config = parse(model + "[step]\nbatch = 8\n" + part);
      EXPECT_TRUE(config) << page << ":\n" << part << (config ? "" : render(config.error()));
    }
  }
}

TEST(LearningRate, UpThenDownACosine) {
  TrainConfig config;
  config.optimizer.learning_rate = 8;
  config.rate = {.warmup = 4, .total = 12, .min_lr_ratio = 0.25};
  EXPECT_EQ(learning_rate(config, {0}), 2);
  EXPECT_EQ(learning_rate(config, {3}), 8);
  EXPECT_EQ(learning_rate(config, {4}), 8);
  EXPECT_DOUBLE_EQ(learning_rate(config, {8}), 5);  // half way between 8 and 2
  EXPECT_EQ(learning_rate(config, {12}), 2);
  EXPECT_EQ(learning_rate(config, {1'000'000}), 2);
  for (int64_t step = 4; step < 12; ++step) EXPECT_GT(learning_rate(config, {step}), learning_rate(config, {step + 1}));
}

TEST(LearningRate, ByTokensAsBySteps) {
  TrainConfig steps, tokens;
  steps.optimizer.learning_rate = tokens.optimizer.learning_rate = 8;
  for (const LrShape shape :
       {LrShape::Constant, LrShape::Linear, LrShape::Cosine, LrShape::InverseRoot, LrShape::Wsd}) {
    steps.rate = {.shape = shape, .warmup = 4, .total = 12, .decay = 3, .min_lr_ratio = 0.25};
    tokens.rate = {
        .shape = shape, .unit = LrUnit::Tokens, .warmup = 400, .total = 1200, .decay = 300, .min_lr_ratio = 0.25};
    for (int64_t step = 0; step < 15; ++step)
      EXPECT_DOUBLE_EQ(learning_rate(tokens, {step, 100 * step, 100}), learning_rate(steps, {step}));
    // half as large batches from some step on: what counts are tokens
    EXPECT_DOUBLE_EQ(learning_rate(tokens, {9, 650, 50}), learning_rate(tokens, {7, 650, 50}));
  }
}

TEST(LearningRate, ByTokensUntilTheEndOfTheRun) {
  TrainConfig config;
  config.optimizer.learning_rate = 8;
  config.run.steps = 10;
  config.rate = {.shape = LrShape::Linear, .unit = LrUnit::Tokens, .min_lr_ratio = 0};
  EXPECT_DOUBLE_EQ(learning_rate(config, {5, 500, 100}), 4);
  EXPECT_DOUBLE_EQ(learning_rate(config, {5, 250, 50}), 4);
  config.rate.shape = LrShape::Wsd;  // the last fifth falls
  EXPECT_DOUBLE_EQ(learning_rate(config, {8, 800, 100}), 8);
  EXPECT_DOUBLE_EQ(learning_rate(config, {9, 900, 100}), 4);
}

TEST(LearningRate, Shapes) {
  TrainConfig config;
  config.optimizer.learning_rate = 8;
  config.rate = {.shape = LrShape::Linear, .warmup = 4, .total = 12, .min_lr_ratio = 0.25};
  EXPECT_EQ(learning_rate(config, {1}), 4);
  EXPECT_EQ(learning_rate(config, {4}), 8);
  EXPECT_DOUBLE_EQ(learning_rate(config, {6}), 6.5);
  EXPECT_EQ(learning_rate(config, {12}), 2);
  config.rate.shape = LrShape::Constant;
  EXPECT_EQ(learning_rate(config, {1}), 4);
  EXPECT_EQ(learning_rate(config, {1000}), 8);
  config.rate.shape = LrShape::InverseRoot;
  EXPECT_EQ(learning_rate(config, {3}), 8);
  EXPECT_DOUBLE_EQ(learning_rate(config, {15}), 4);  // four times as many steps as the warmup
  EXPECT_EQ(learning_rate(config, {1000}), 2);       // not below the lowest
  config.rate.shape = LrShape::Wsd;
  config.rate.decay = 4;
  EXPECT_EQ(learning_rate(config, {1}), 4);
  EXPECT_EQ(learning_rate(config, {8}), 8);
  EXPECT_DOUBLE_EQ(learning_rate(config, {10}), 5);
  EXPECT_EQ(learning_rate(config, {12}), 2);
}

TEST(LearningRate, ShapesOfConfigurations) {
  const auto config = parse("[lr_schedule]\nshape = \"wsd\"\nwarmup = 10\n[run]\nsteps = 110\n");
  ASSERT_TRUE(config);
  EXPECT_EQ(config->rate.shape, LrShape::Wsd);
  EXPECT_EQ(config->rate.decay, 20);  // a fifth of what is left
  EXPECT_EQ(refusal("[lr_schedule]\ndecay = 3\n"),
            "config.toml:2:9: error[E111]: decay means nothing unless shape = \"wsd\"\n"
            "  decay = 3\n"
            "          ^\n"
            "help: leave it out\n");
  EXPECT_EQ(refusal("[lr_schedule]\nshape = \"wsd\"\nwarmup = 5\ntotal = 8\ndecay = 4\n"),
            "config.toml:5:9: error[E111]: decay = 4 steps, but only 3 are left after the warmup\n"
            "  decay = 4\n"
            "          ^\n"
            "help: decay for fewer steps, or raise total\n");
}

TEST(TrainConfig, GroupsOfParameters) {
  const auto config = parse(
      "[optimizer]\nclip_value = 0.5\n[[optimizer.groups]]\npattern = \"*.norm*\"\nweight_decay = 0\n"
      "[[optimizer.groups]]\npattern = \"embed.*\"\nlr_factor = 0.1\n");
  ASSERT_TRUE(config);
  EXPECT_EQ(config->clip_value, 0.5);
  EXPECT_EQ(config->groups, (std::vector<ParameterGroup>{{"*.norm*", 1, 0.0}, {"embed.*", 0.1, {}}}));
  EXPECT_EQ(refusal("[[optimizer.groups]]\npattern = \"x\"\nlr_factor = -1\n"),
            "config.toml:3:13: error[E111]: lr_factor = -1 must be 0 or more\n"
            "  lr_factor = -1\n"
            "              ^^\n"
            "help: without the key it is 1\n");
}

TEST(LearningRate, EndsWithTheRunUnlessToldOtherwise) {
  TrainConfig config;
  config.optimizer.learning_rate = 1;
  config.run.steps = 10;
  config.rate.min_lr_ratio = 0;
  EXPECT_EQ(learning_rate(config, {10}), 0);
  EXPECT_DOUBLE_EQ(learning_rate(config, {5}), 0.5);
  config.rate.warmup = 20;  // more than there is left: --steps can ask for that
  EXPECT_DOUBLE_EQ(learning_rate(config, {9}), 0.5);
}

}  // namespace
}  // namespace piper
