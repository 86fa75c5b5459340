// Context parallelism: attention and losses in all their forms, on 2, 4 and 8 devices; and faults in attention of some
// queries are seen, and located by `piper diff`.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include <cstdlib>

#include "models/attend.h"
#include "train_loop/diffed.h"
#include "train_loop/tp_cases.h"
#include "train_loop/wrappers.h"

namespace piper {
namespace {

std::string context_schedule(int devices, const std::string& order, const std::string& sequence = "gather") {
  return fmt::format("mesh(cp={})\n", devices) + whole + "replicate({}, along=cp)\n" +
         fmt::format("shard({{}}, along=cp, sequence={}, order={})\n", sequence, order);
}

// ---- attention

struct AttentionForm {
  Mask mask;
  int devices;
  std::string order, sequence;
};
void PrintTo(const AttentionForm& form, std::ostream* out) {
  *out << (form.mask == Mask::Causal ? "causal" : "full") << "_" << form.order << "_" << form.sequence << "_cp"
       << form.devices;
}

/// Two layers of attention over [4 samples, 16 tokens], four heads that share two of the keys.
TrainableModel attending_model(Mask mask) {
  TrainableModel model = bare_model("attending");
  model.inputs = {{"tokens", DType::Int64, {16}}};
  const at::Tensor e = add_parameter(model, "e", {32, 16});
  std::vector<std::array<at::Tensor, 3>> layers;
  for (int l = 0; l < 2; ++l)
    layers.push_back({add_parameter(model, fmt::format("{}.q", l), {16, 16}),
                      add_parameter(model, fmt::format("{}.kv", l), {16, 16}),
                      add_parameter(model, fmt::format("{}.out", l), {16, 16})});
  model.meta.loss = [=](const std::vector<at::Tensor>& inputs) {
    at::Tensor x = at::embedding(e, inputs[0]);
    const auto heads = [&](const at::Tensor& of) { return of.reshape({x.size(0), 16, -1, 4}).transpose(1, 2); };
    for (const auto& [q, kv, out] : layers) {
      const std::vector<at::Tensor> keys_and_values = at::linear(x, kv).chunk(2, -1);
      const at::Tensor attended =
          attend(heads(at::linear(x, q)), heads(keys_and_values[0]), heads(keys_and_values[1]), mask, c10::kCPU);
      x = x + at::linear(attended.transpose(1, 2).reshape(x.sizes()), out).tanh();
    }
    return mean_cross_entropy(at::linear(x, e), inputs[0].remainder(7));
  };
  return model;
}

class ContextAttention : public testing::TestWithParam<AttentionForm> {};

TEST_P(ContextAttention, EqualsOneDevice) {
  const AttentionForm& form = GetParam();
  const TrainableModel model = attending_model(form.mask);
  const Trained run = train(model, context_schedule(form.devices, form.order, form.sequence), bare_settings());
  EXPECT_EQ(run.devices, form.devices);
  EXPECT_THAT(complaints(run, train(model, in_turn(1), bare_settings()), 1e-12), testing::IsEmpty());
  for (size_t d = 0; d < run.peak_bytes.size(); ++d) EXPECT_LE(run.peak_bytes[d], run.planned_bytes[d]) << d;
}

std::vector<AttentionForm> attention_forms() {
  std::vector<AttentionForm> out;
  for (const Mask mask : {Mask::Causal, Mask::None})
    for (const int devices : {2, 4, 8})
      for (const char* order : {"zigzag", "contiguous"})
        for (const char* sequence : {"gather", "heads"})
          if (devices <= 4 || sequence != std::string_view("heads")) out.push_back({mask, devices, order, sequence});
  return out;
}
INSTANTIATE_TEST_SUITE_P(All, ContextAttention, testing::ValuesIn(attention_forms()),
                         [](const auto& info) { return testing::PrintToString(info.param); });

// ---- losses

/// x [samples, 16, 8], w [16, 8], e [32, 8], targets [samples, 16] among 16.
struct LossForm {
  std::string name;
  std::function<at::Tensor(const at::Tensor& x, const at::Tensor& w, const at::Tensor& e, const at::Tensor& targets)>
      loss;
  double tolerance = 1e-12;
};
void PrintTo(const LossForm& form, std::ostream* out) {
  *out << form.name;
}

std::vector<LossForm> loss_forms() {
  using at::Tensor;
  const auto logits = [](const Tensor& x, const Tensor& w) { return at::linear(x, w).view({-1, w.size(0)}); };
  const auto loss = [](const Tensor& scores, const Tensor& t, int64_t reduction = at::Reduction::Mean,
                       int64_t ignored = -100) {
    return at::cross_entropy_loss(scores, t.reshape({-1}), {}, reduction, ignored);
  };
  return {
      {"mean", [=](auto& x, auto& w, auto&, auto& t) { return loss(logits(x, w), t); }},
      {"sum", [=](auto& x, auto& w, auto&, auto& t) { return loss(logits(x, w), t, at::Reduction::Sum); }},
      {"ignored", [=](auto& x, auto& w, auto&, auto& t) { return loss(logits(x, w), t, at::Reduction::Mean, 3); }},
      {"ignored_sum", [=](auto& x, auto& w, auto&, auto& t) { return loss(logits(x, w), t, at::Reduction::Sum, 3); }},
      {"scaled", [=](auto& x, auto& w, auto&, auto& t) { return loss(logits(x, w) / 3, t) * 2; }},
      {"divided", [=](auto& x, auto& w, auto&, auto& t) { return loss(logits(x, w), t, at::Reduction::Sum) / 5; }},
      {"tied", [=](auto& x, auto&, auto& e, auto& t) { return loss(logits(x, e), t); }},
      {"two", [=](auto& x, auto& w, auto& e,
                  auto& t) { return loss(logits(x, w), t) + loss(logits(x, e), t, at::Reduction::Mean, 5) * 0.5; }},
      {"narrow", [=](auto& x, auto& w, auto&, auto& t) { return loss(logits(x, w).to(at::kFloat), t).to(at::kDouble); },
       1e-5},
  };
}

class ContextLoss : public testing::TestWithParam<LossForm> {};

/// With logits as they were recorded, and in blocks of three tokens.
TEST_P(ContextLoss, EqualsOneDevice) {
  const LossForm& form = GetParam();
  TrainableModel model = bare_model(form.name);
  model.inputs = {{"tokens", DType::Int64, {16}}};
  const at::Tensor e = add_parameter(model, "e", {32, 8}), w = add_parameter(model, "w", {16, 8}),
                   c = add_parameter(model, "c", {8});
  model.meta.loss = [=, &form](const std::vector<at::Tensor>& inputs) {
    return form.loss(at::embedding(e, inputs[0]) * c, w, e, inputs[0].remainder(16));
  };
  const Trained expected = train(model, in_turn(1), bare_settings());
  for (const int64_t block : {0, 3}) {
    model.loss_blocks = loss_blocks_of(block);
    for (const char* order : {"zigzag", "contiguous"}) {
      SCOPED_TRACE(fmt::format("{} block {}", order, block));
      const Trained run = train(model, context_schedule(4, order), bare_settings());
      EXPECT_THAT(complaints(run, expected, form.tolerance), testing::IsEmpty());
    }
  }
}
INSTANTIATE_TEST_SUITE_P(All, ContextLoss, testing::ValuesIn(loss_forms()),
                         [](const auto& info) { return info.param.name; });

// ---- faults

enum class AttentionFault { None, Unweighted, OwnSums, LeftOut, OtherBlock };

/// Causal attention of the second of two devices in the order of the tokens, with a fault.
std::tuple<at::Tensor, at::Tensor> faulty_attention(AttentionFault fault, const at::Tensor& query,
                                                    const at::Tensor& key, const at::Tensor& value, int64_t first) {
  const int64_t own = query.size(2);
  const auto over = [&](int64_t from, bool causal) {
    return at::_scaled_dot_product_flash_attention_for_cpu(query, key.narrow(2, from, own), value.narrow(2, from, own),
                                                           0.0, causal);
  };
  auto [out, sums] = over(first, true);
  if (first == 0 || fault == AttentionFault::LeftOut) return {out, sums};
  const auto [earlier, of_earlier] = over(fault == AttentionFault::OtherBlock ? first : 0, false);
  const at::Tensor both = at::logaddexp(sums, of_earlier);
  const auto weighted = [&](const at::Tensor& of, const at::Tensor& by) {
    return of * (by - both).exp().unsqueeze(-1);
  };
  at::Tensor merged =
      fault == AttentionFault::Unweighted ? (out + earlier) / 2 : weighted(out, sums) + weighted(earlier, of_earlier);
  return {at::empty_like(out).copy_(merged),
          fault == AttentionFault::OwnSums ? sums : at::empty_like(sums).copy_(both)};
}

/// A merge without its weights, sums of the own keys alone for backward, a block that is left out or taken twice.
TEST(ContextFault, InAttentionIsSeen) {
  const TrainableModel model = attending_model(Mask::Causal);
  const Trained expected = train(model, in_turn(1), bare_settings());
  AttentionFault planted = AttentionFault::None;
  torch::Library instead(torch::Library::IMPL, "piper", c10::DispatchKey::CPU, __FILE__, __LINE__);
  instead.impl("context_attention",
               [&planted](const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                          const std::optional<at::Tensor>&, bool, std::optional<double>, int64_t first,
                          bool) { return faulty_attention(planted, query, key, value, first); });
  const PreparedTraining training = prepared(model, context_schedule(2, "contiguous"));
  const auto complains = [&](AttentionFault fault) {
    planted = fault;
    return complaints(train(model, *training.captured, training.plan, bare_settings()), expected, 1e-12);
  };
  const auto difference = [&] { return diffed(model, *training.captured, training.plan, bare_settings()); };
  EXPECT_THAT(complains(AttentionFault::None), testing::IsEmpty());
  EXPECT_TRUE(difference().equal()) << print(difference());
  for (const AttentionFault fault :
       {AttentionFault::Unweighted, AttentionFault::OwnSums, AttentionFault::LeftOut, AttentionFault::OtherBlock}) {
    EXPECT_THAT(complains(fault), testing::Not(testing::IsEmpty())) << static_cast<int>(fault);
    const DiffReport report = difference();
    ASSERT_TRUE(report.first);
    EXPECT_THAT(report.first->chunk, testing::HasSubstr("core.0")) << print(report);
    EXPECT_EQ(report.first->finding.device, 1);
    EXPECT_EQ(report.first->pass, "F");
    EXPECT_THAT(report.first->differed, testing::IsEmpty());
  }
}

/// What the first and the third of four devices sent lies in each other's place.
class SwapsBlocks : public PassingCommunicator {
 public:
  SwapsBlocks(std::unique_ptr<Communicator> to, int64_t sequence)
      : PassingCommunicator(std::move(to)), sequence_(sequence) {}
  void all_gather(int group, int64_t sequence, std::span<const std::byte> part, std::span<std::byte> whole,
                  int64_t run) override {
    PassingCommunicator::all_gather(group, sequence, part, whole, run);
    if (sequence == sequence_) swap(whole, run > 0 ? static_cast<size_t>(run) : part.size());
  }
  void all_to_all(int group, int64_t sequence, std::span<const std::byte> out, int64_t run_out, std::span<std::byte> in,
                  int64_t run_in) override {
    PassingCommunicator::all_to_all(group, sequence, out, run_out, in, run_in);
    if (sequence == sequence_) swap(in, static_cast<size_t>(run_in));
  }
  static constexpr size_t devices = 4;

 private:
  static void swap(std::span<std::byte> whole, size_t run) {
    for (size_t at = 0; at < whole.size(); at += devices * run)
      std::swap_ranges(whole.begin() + static_cast<std::ptrdiff_t>(at),
                       whole.begin() + static_cast<std::ptrdiff_t>(at + run),
                       whole.begin() + static_cast<std::ptrdiff_t>(at + devices / 2 * run));
  }
  int64_t sequence_;
};

class ContextFaults : public testing::TestWithParam<std::pair<std::string, OpKind>> {};

TEST_P(ContextFaults, SwappedBlocksAreSeen) {
  const auto& [sequence, kind] = GetParam();
  const TrainableModel model = attending_model(Mask::Causal);
  TrainSettings once = bare_settings();
  once.steps = 1;
  const Trained expected = train(model, in_turn(1), once);
  const PreparedTraining training = prepared(model, context_schedule(SwapsBlocks::devices, "zigzag", sequence));
  int swapped = 0;
  for (const PlannedOp& op : training.plan->templates.front().ops) {
    if (op.kind != kind) continue;
    TrainSettings faulty = once;
    faulty.communicator = [&](std::unique_ptr<Communicator> to) {
      return std::make_unique<SwapsBlocks>(std::move(to), op.communication.value);
    };
    EXPECT_GT(compare(train(model, *training.captured, training.plan, faulty), expected).error, 1e-6);
    ++swapped;
    if (op.label.pass == Pass::B) continue;  // gradients of a device are its own until they have been summed up
    const DiffReport report = diffed(model, *training.captured, training.plan, faulty);
    ASSERT_TRUE(report.first);
    const Finding& first = report.first->finding;
    ASSERT_TRUE(first.op.valid()) << print(report);
    EXPECT_EQ(program_of(*training.plan, first.device).ops[first.op].communication, op.communication) << print(report);
  }
  EXPECT_GE(swapped, 2);
}
INSTANTIATE_TEST_SUITE_P(All, ContextFaults,
                         testing::Values(std::pair("gather", OpKind::AllGather), std::pair("heads", OpKind::AllToAll)),
                         [](const auto& info) { return info.param.first; });

}  // namespace
}  // namespace piper
