// What models are captured as for a GPU. No GPU is needed: nothing runs.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "capture/gpu/accumulate_on_gpu.h"
#include "capture/gpu/side_stream.h"
#include "models/build_model.h"

namespace piper {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::Key;
using testing::Not;

using Counts = std::map<std::string, int>;

CapturedModel captured_for(c10::Device target, const std::string& more, const std::string& weights,
                           const std::vector<ShardSeed>& cuts = {}, int layers = 1, bool sequence = false) {
  const std::string text = "[model]\nhidden = 32\nheads = 4\nvocab = 64\nseq = 16\n" +
                           fmt::format("layers = {}\n", layers) + more + "[step]\nbatch = 2\nweights = \"" + weights +
                           "\"\ngradients = \"float32\"\n";
  const TrainableModel model = *build_model(make_source("test.toml", text), 1, BuildOn::Meta, target);
  CaptureOptions options;
  options.step = model.step;
  options.inputs = model.inputs;
  options.target = target;
  options.measure_operators = false;
  options.samples = {2};
  options.tensor_parallel = [&](const auto&) { return TensorParallel{cuts, sequence}; };
  auto out = capture(model.meta, options);
  if (!out) throw std::runtime_error(render(out.error()));
  return *std::move(out);
}

/// Calls of all chunks in a pass; `summed`: as they run on a GPU.
Counts calls(const CapturedModel& model, Pass pass, bool summed) {
  Counts out;
  const CapturedSlice& slice = model.slices()[0];
  for (const ChunkBodies& chunk : slice.chunks) {
    if (!chunk.find(pass)) continue;
    ChunkIr body = *chunk.find(pass);
    if (summed) body = accumulate_where_computed(body, slice.operators);
    if (summed) body = accumulate_together(add_in_products(body, slice.operators), slice.operators);
    for (const Call& call : body.calls) ++out[slice.operators[call.op].name];
  }
  return out;
}

const std::string llama_model = "arch = \"llama3\"\nffn = 48\n";
const std::string gpt = "arch = \"gpt\"\nffn = 64\ndropout = false\nflash_attention = true\n";

TEST(GpuOperators, NormsAndAttentionAreOneOperatorEach) {
  const CapturedModel there = captured_for({c10::kCUDA, 0}, llama_model, "bfloat16");
  EXPECT_THAT(calls(there, Pass::F, false),
              AllOf(Contains(std::pair("aten::_fused_rms_norm", 3)), Not(Contains(Key("aten::rsqrt")))));
  EXPECT_THAT(calls(there, Pass::F, false),
              Contains(Key(testing::MatchesRegex("aten::_scaled_dot_product_(flash|cudnn)_attention"))));
  EXPECT_THAT(calls(there, Pass::B, false), Contains(std::pair("aten::_fused_rms_norm_backward", 3)));
  const CapturedModel here = captured_for(c10::kCPU, llama_model, "bfloat16");
  EXPECT_THAT(calls(here, Pass::F, false), Not(Contains(Key("aten::_fused_rms_norm"))));
}

/// What is cut, and which chunks treat tokens alone, is the same as on a processor.
TEST(GpuOperators, AreCutAsOnAProcessor) {
  const std::vector<ShardSeed> cuts = {{"*.attention.out.weight", 1}};
  const std::string mixture = "arch = \"qwen3-moe\"\nmoe_ffn = 8\nexperts = 4\ntop_k = 2\ncapacity_factor = 1.25\n";
  for (const std::string& kind : {llama_model, gpt, llama_model + "kv_heads = 1\ntie_embeddings = true\n",
                                  mixture + "kv_heads = 1\n", llama_model + "dropout = true\ndropout_rate = 0.2\n"})
    for (const auto& [weights, sequence] :
         {std::pair<std::string, bool>{"bfloat16", true}, {"float64", true}, {"float64", false}}) {
      const auto chunks = [&](c10::Device target) {
        std::vector<std::pair<std::string, bool>> out;
        const CapturedModel model = captured_for(target, kind, weights, cuts, 2, sequence);
        for (const Chunk& chunk : model.graph()->chunks) out.emplace_back(chunk.name, chunk.sequence_sharded);
        return out;
      };
      EXPECT_EQ(chunks({c10::kCUDA, 0}), chunks(c10::kCPU)) << kind << weights;
    }
}

TEST(GpuOperators, GradientsAreAddedWhereTheyAreComputed) {
  const CapturedModel there = captured_for({c10::kCUDA, 0}, gpt, "bfloat16");
  const Counts before = calls(there, Pass::B, false), after = calls(there, Pass::B, true);
  EXPECT_EQ(after.at("aten::addmm.dtype_out"), 7);  // q, k, v, out, up, down, head
  EXPECT_EQ(after.at("aten::addmm_"), 2);           // what keys and queries add to the gradient of values
  EXPECT_EQ(after.at("aten::add.Tensor"), before.at("aten::add.Tensor") - 2);
  EXPECT_EQ(after.at("aten::mm"), before.at("aten::mm") - 9);
  EXPECT_EQ(after.at("piper::add_sum_of_rows"), 6);  // biases of all but the head
  EXPECT_EQ(after.at("piper::add_to_each"), 3);      // of two norms, and both tables
  EXPECT_EQ(calls(there, Pass::F, true), calls(there, Pass::F, false));
}

/// Products of numbers as wide as the sum are rounded as before.
TEST(GpuOperators, WideProductsAreAddedAsBefore) {
  const Counts after = calls(captured_for({c10::kCUDA, 0}, gpt, "float32"), Pass::B, true);
  EXPECT_THAT(after, Not(Contains(Key("aten::addmm.dtype_out"))));
  EXPECT_THAT(after, Not(Contains(Key("aten::addmm_"))));
  EXPECT_EQ(after.at("piper::add_sum_of_rows"), 6);
}

/// The same tensors for every body.
at::Tensor some_tensor(const GraphTensor& like, int64_t seed) {
  at::Tensor out = empty_tensor(like.layout, c10::kCPU);
  if (!out.is_floating_point()) return out.fill_(seed % 7);
  return out.copy_(at::arange(out.numel()).add(seed).sin().view(out.sizes()));
}
/// What a pass gives: its values, then its gradients.
std::vector<at::Tensor> run_on_cpu(const CapturedSlice& slice, const ChunkIr& body, Branch* branch = nullptr) {
  std::vector<at::Tensor> reads, parameters, gradients, writes;
  int64_t seed = 1;
  for (const ContentUse& use : body.reads) reads.push_back(some_tensor(body[use.inside], seed++));
  for (const ExternalUse& use : body.parameters) parameters.push_back(some_tensor(body[use.inside], seed++));
  for (const ExternalUse& use : body.gradients) gradients.push_back(some_tensor(body[use.inside], seed++));
  ChunkRunner(std::make_shared<const ChunkProgram>(body, slice.table))
      .run({reads, parameters, {}, gradients, writes, {}, nullptr, branch});
  writes.insert(writes.end(), gradients.begin(), gradients.end());
  return writes;
}

/// On a processor, whose operators are the same: products add to what is there, and nothing else changes.
TEST(GpuOperators, SumsInProductsAreTheSameSums) {
  for (const std::string& more : {llama_model, gpt}) {
    const CapturedModel model = captured_for(c10::kCPU, more, "bfloat16");
    const CapturedSlice& slice = model.slices()[0];
    int fused = 0;
    for (const ChunkBodies& chunk : slice.chunks)
      for (const Pass pass : {Pass::B, Pass::BI}) {
        if (!chunk.find(pass)) continue;
        SCOPED_TRACE(chunk.name);
        const ChunkIr after = add_in_products(*chunk.find(pass), slice.operators);
        for (const Call& call : after.calls) fused += slice.operators[call.op].name == "aten::addmm_";
        const std::vector<at::Tensor> expected = run_on_cpu(slice, *chunk.find(pass)), given = run_on_cpu(slice, after);
        ASSERT_EQ(given.size(), expected.size());
        for (size_t i = 0; i < given.size(); ++i)
          EXPECT_LT((given[i] - expected[i]).to(at::kFloat).norm().item<float>(),
                    0.01 * expected[i].to(at::kFloat).norm().item<float>() + 1e-6);
      }
    EXPECT_GE(fused, 2);
  }
}

/// Runs everything at once, and knows what was put in.
class WatchedBranch : public Branch {
 public:
  void mark(size_t number) override { marks.insert(number); }
  void launch(size_t lane, size_t after, const std::function<void()>& work) override {
    EXPECT_TRUE(marks.contains(after));
    EXPECT_LT(lane, lanes);
    ++launched;
    joined = false;
    work();
  }
  void join() override { joined = true; }

  std::set<size_t> marks;
  int launched = 0;
  bool joined = true;
};

/// Gradients of parameters may be computed when all else of the pass has been: bit by bit the same.
TEST(GpuOperators, WhatIsBesideMayComeLast) {
  for (const std::string& more : {llama_model, gpt, gpt + "tie_embeddings = true\n"}) {
    const CapturedModel model = captured_for(c10::kCPU, more, "float32", {}, 2);
    const CapturedSlice& slice = model.slices()[0];
    for (const ChunkBodies& chunk : slice.chunks) {
      if (!chunk.find(Pass::B)) continue;
      SCOPED_TRACE(chunk.name);
      const ChunkIr& whole = *chunk.find(Pass::B);
      const ChunkIr marked = mark_side_stream(compute_apart(whole, slice.operators));
      ChunkIr moved = marked;
      std::stable_partition(moved.calls.begin(), moved.calls.end(), [](const Call& call) { return !call.side_stream; });
      for (Call& call : moved.calls) call.side_stream = false;
      WatchedBranch branch;
      const std::vector<at::Tensor> expected = run_on_cpu(slice, whole), last = run_on_cpu(slice, moved),
                                    beside = run_on_cpu(slice, marked, &branch);
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_TRUE(last[i].equal(expected[i])) << i;
        EXPECT_TRUE(beside[i].equal(expected[i])) << i;
      }
      EXPECT_TRUE(branch.joined);
      if (whole.writes.empty()) {
        EXPECT_EQ(branch.launched, 0);
      } else {
        EXPECT_GE(branch.launched, static_cast<int>(whole.gradients.size()));  // also those of norms
        EXPECT_GE(temporary_bytes(marked), temporary_bytes(whole));
      }
    }
  }
}

/// Of layer norm a GPU keeps float32, a processor what the weights are.
TEST(GpuOperators, StatisticsAreWideThere) {
  const auto type_of_mean = [](c10::Device target) {
    const CapturedModel model = captured_for(target, gpt, "bfloat16");
    const OperatorGraph& graph = model.slices()[0].operators;
    for (const Call& call : graph.calls)
      if (graph[call.op].name == "aten::native_layer_norm")
        return static_cast<c10::ScalarType>(graph[std::get<TensorId>(call.results[1])].layout.element);
    return c10::ScalarType::Undefined;
  };
  EXPECT_EQ(type_of_mean({c10::kCUDA, 0}), c10::ScalarType::Float);
  EXPECT_EQ(type_of_mean(c10::kCPU), c10::ScalarType::BFloat16);
}

}  // namespace
}  // namespace piper
