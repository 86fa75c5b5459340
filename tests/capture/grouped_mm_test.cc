// Products of rows in groups are products of each group; PyTorch's own operator is recorded as ours.
#include "capture/experts/grouped_mm.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "capture/chunk/count_work.h"
#include "capture/step.h"
#include "runtime/memory_meter.h"

namespace piper {
namespace {

using at::Tensor;

/// Ends of groups of 16 rows.
const std::vector<std::vector<int>> groupings = {
    {4, 8, 12, 16},   // equal
    {1, 3, 15, 16},   // of one row, of many
    {0, 16, 16, 16},  // all in one, empty before and behind
    {0, 0, 0, 16},    // all in the last
    {5, 5, 9, 9},     // rows behind the last group
    {0, 0, 0, 0},     // no rows at all
    {16},             // one group
};

Tensor ends_of(const std::vector<int>& ends) {
  return at::tensor(ends, at::kInt);
}

Tensor numbers(std::vector<int64_t> sizes, at::ScalarType type, int64_t seed) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return at::arange(count).add(seed).mul(0.7).sin().view(sizes).to(type);
}

/// As autograd knows it: every row with the matrix of its group.
Tensor one_by_one(const Tensor& a, const Tensor& b, const std::vector<int>& ends) {
  std::vector<Tensor> rows;
  int first = 0;
  for (size_t group = 0; group < ends.size(); ++group) {
    for (int row = first; row < ends[group]; ++row)
      rows.push_back(at::mm(a.narrow(0, row, 1), b.select(0, static_cast<int64_t>(group))));
    first = ends[group];
  }
  rows.push_back(at::zeros({a.size(0) - first, b.size(2)}, b.options()));
  return at::cat(rows) + 0 * (a.sum() + b.sum());  // which depends on both, also without rows
}

double error_of(const Tensor& given, const Tensor& expected) {
  EXPECT_EQ(given.sizes(), expected.sizes());
  const Tensor wide = expected.to(at::kDouble);
  return ((given.to(at::kDouble) - wide).abs().max() / wide.abs().max().clamp_min(1e-3)).item<double>();
}

/// Widths that PyTorch's kernel refuses among them: rows of 3 or 5 numbers are no multiple of 16 bytes.
TEST(GroupedMm, IsTheProductOfEachGroup) {
  for (const std::vector<int>& ends : groupings)
    for (const auto& [in, out] : {std::pair<int64_t, int64_t>{8, 16}, {3, 5}, {1, 1}})
      for (const bool transposed : {false, true})
        for (const auto& [type, bound] : {std::pair{at::kDouble, 1e-14}, {at::kFloat, 1e-6}, {at::kBFloat16, 2e-2}}) {
          SCOPED_TRACE(fmt::format("ends {}, {} to {}, {}", fmt::join(ends, " "), in, out, c10::toString(type)));
          const auto groups = static_cast<int64_t>(ends.size());
          Tensor a = numbers({16, in}, type, 1).requires_grad_();
          Tensor stored = numbers(transposed ? std::vector{groups, out, in} : std::vector{groups, in, out}, type, 5);
          stored.requires_grad_();
          const Tensor b = transposed ? stored.transpose(1, 2) : stored;
          const Tensor y = grouped_mm(a, b, ends_of(ends)), expected = one_by_one(a, b, ends);
          EXPECT_LE(error_of(y, expected), bound);
          const Tensor weights = numbers({16, out}, type, 9);
          const auto gradients = [&](const Tensor& of) {
            return torch::autograd::grad({(of * weights).sum()}, {a, stored}, {}, {}, false, true);
          };
          const auto given = gradients(y), wanted = gradients(expected);
          for (size_t i = 0; i < 2; ++i)
            EXPECT_LE(error_of(given[i], wanted[i].defined() ? wanted[i] : at::zeros_like(given[i])), bound) << i;
          EXPECT_EQ(given[1].strides(), stored.strides());  // so that it is added to its sum as it lies
        }
}

/// So what is planned from a trial on zeros, which are no groups at all, holds for every grouping.
TEST(GroupedMm, TakesMemoryForItsResultAlone) {
  for (const std::vector<int>& ends : groupings)
    for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16}) {
      SCOPED_TRACE(fmt::format("ends {}, {}", fmt::join(ends, " "), c10::toString(type)));
      const auto groups = static_cast<int64_t>(ends.size());
      const Tensor a = numbers({16, 5}, type, 1), y = numbers({16, 3}, type, 2), until = ends_of(ends);
      const Tensor b = numbers({groups, 3, 5}, type, 3).transpose(1, 2);
      const auto taken = [&](const Tensor& left, const Tensor& right) {
        const MemoryMeter meter(c10::kCPU);
        const Tensor out = grouped_mm(left, right, until);
        EXPECT_EQ(meter.peak(), static_cast<int64_t>(out.nbytes()));
      };
      taken(a, b);
      taken(y, b.transpose(1, 2));
      taken(a.t(), y);
      taken(y.t(), a);
    }
}

TEST(GroupedMm, RefusesWhatIsNoGrouping) {
  const Tensor a = at::ones({4, 3}), b = at::ones({2, 3, 5});
  EXPECT_NO_THROW(grouped_mm(a, b, ends_of({1, 4})));
  const auto refused = [&](const Tensor& x, const Tensor& y, const Tensor& ends, const char* why) {
    EXPECT_THAT([&] { grouped_mm(x, y, ends); }, testing::ThrowsMessage<c10::Error>(testing::HasSubstr(why)));
  };
  refused(a, b, ends_of({3, 1}), "group 1 of 4 rows is [3, 1)");
  refused(a, b, ends_of({1, 5}), "group 1 of 4 rows is [1, 5)");
  refused(a, b, ends_of({1, 2, 4}), "3 groups, but 2 matrices");
  refused(a, at::ones({2, 4, 5}), ends_of({1, 4}), "does not fit");
  refused(a, b.to(at::kDouble), ends_of({1, 4}), "two tensors of one type");
  refused(a, b, ends_of({1, 4}).to(at::kLong), "int32");
  refused(b, b, ends_of({1, 4}), "takes [rows, in]");
}

constexpr int64_t expert_count = 4, row_width = 3, inner_width = 5;

/// A mixture as a user may write it with PyTorch's operator, in float64, which that does not take; of odd widths.
MetaModel mixture_of_pytorch(bool on_meta) {
  const auto make = [&](std::vector<int64_t> sizes, int64_t seed) {
    const Tensor all = numbers(sizes, at::kDouble, seed);
    return (on_meta ? at::empty(sizes, all.options().device(at::kMeta)) : all).requires_grad_();
  };
  const Tensor table = make({3, row_width}, 1), router = make({expert_count, row_width}, 3),
               up = make({expert_count, inner_width, row_width}, 11),
               down = make({expert_count, row_width, inner_width}, 17);
  MetaModel model;
  model.parameters = {{"table", table}, {"router", router}, {"up", up}, {"down", down}};
  model.loss = [=](const std::vector<Tensor>& inputs) {
    const Tensor x = at::embedding(table, inputs[0].reshape({-1}));
    const auto [weights, best] = at::softmax(at::linear(x, router), -1).max(-1);
    const auto [sorted, order] = best.sort(/*stable=*/true, 0, false);
    const Tensor ends =
        at::zeros({expert_count}, best.options()).scatter_add(0, best, at::ones_like(best)).cumsum(0, at::kInt);
    const auto product = [&](const Tensor& a, const Tensor& w) {
      return on_meta ? at::_grouped_mm(a, w.transpose(1, 2), ends) : grouped_mm(a, w.transpose(1, 2), ends);
    };
    const Tensor y = product(at::silu(product(x.index_select(0, order), up)), down);
    return (y * weights.index_select(0, order).unsqueeze(1)).square().mean();
  };
  return model;
}

TEST(GroupedMm, TakesThePlaceOfPyTorchs) {
  CaptureOptions options;
  options.inputs = {{"tokens", DType::Int64, {4}}};
  options.samples = {2, 4};
  options.step.weights = options.step.gradients = DType::Float64;
  const auto captured = capture(mixture_of_pytorch(true), options);
  ASSERT_TRUE(captured) << render(captured.error());
  const MetaModel real = mixture_of_pytorch(false);
  const Tensor tokens = at::tensor({0, 1, 2, 1, 1, 0, 2, 1}, at::kLong).view({2, 4});
  const RandomKey random{1, 1};
  const StepResult ours = captured_step(*captured, real, {tokens}, random, ReplayedBackward::Halves),
                   eager = eager_step(real, {tokens}, random);
  EXPECT_LE(error_of(ours.loss, eager.loss), 1e-14);
  for (const auto& [name, gradient] : eager.gradients)
    EXPECT_LE(error_of(ours.gradients.at(name), gradient), 1e-13) << name;
  int forward = 0, backward = 0;
  for (const Call& call : captured->slices()[0].operators.calls) {
    const std::string& name = captured->slices()[0].operators[call.op].name;
    EXPECT_NE(name, "aten::_grouped_mm");
    if (name == "piper::grouped_mm") ++(call.backward ? backward : forward);
  }
  EXPECT_EQ(forward, 2);
  EXPECT_EQ(backward, 4);
}

/// Every row once, whatever the experts: forward, for the rows, and for the matrices.
TEST(GroupedMm, IsCountedByItsRows) {
  CaptureOptions options;
  options.inputs = {{"tokens", DType::Int64, {4}}};
  options.samples = {2};
  options.step.weights = options.step.gradients = DType::Float64;
  const auto captured = capture(mixture_of_pytorch(true), options);
  ASSERT_TRUE(captured) << render(captured.error());
  const CapturedSlice& slice = captured->slices()[0];
  int64_t grouped = 0;
  for (const ChunkBodies& chunk : slice.chunks)
    for (const Pass pass : {Pass::F, Pass::B}) {
      if (!chunk.find(pass)) continue;
      ChunkIr alone = *chunk.find(pass);
      std::erase_if(alone.calls, [&](const Call& call) {
        return !call.op.valid() || slice.operators[call.op].name != "piper::grouped_mm";
      });
      grouped += count_work(slice.operators, alone).flops();
    }
  constexpr int64_t rows = 2 * 4, products = 2, passes = 3;
  EXPECT_EQ(grouped, products * passes * 2 * rows * row_width * inner_width);
}

}  // namespace
}  // namespace piper
