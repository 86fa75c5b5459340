// The reference decoder, trained eagerly, has the losses that PyTorch has in Python.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstdlib>

#include "models/configurations.h"
#include "models/reference_tokens.h"

namespace piper {
namespace {

/// Tokens and targets of some rows of a step's batch.
std::vector<at::Tensor> rows(const ReferenceSize& size, int64_t step, int64_t first, int64_t count) {
  const at::Tensor all = at::empty({count, size.sequence + 1}, at::kLong);
  for (int64_t row = 0; row < count; ++row)
    reference_tokens(step, size.batch, first + row, size.vocabulary,
                     {all[row].data_ptr<int64_t>(), static_cast<size_t>(size.sequence + 1)});
  return {all.narrow(1, 0, size.sequence).contiguous(), all.narrow(1, 1, size.sequence).contiguous()};
}

/// lr 1e-3, betas 0.9 and 0.95, eps 1e-8, weight decay 0.1 for everything.
class AdamW {
 public:
  explicit AdamW(const std::vector<at::Tensor>& parameters) : parameters_(parameters) {
    for (const at::Tensor& p : parameters) first_.push_back(at::zeros_like(p)), second_.push_back(at::zeros_like(p));
  }
  void step(const std::vector<at::Tensor>& gradients) {
    const at::NoGradGuard no_gradient;
    ++steps_;
    const double bias1 = 1 - std::pow(0.9, steps_), bias2 = 1 - std::pow(0.95, steps_);
    for (size_t i = 0; i < parameters_.size(); ++i) {
      parameters_[i].mul_(1 - 1e-3 * 0.1);
      first_[i].lerp_(gradients[i], 1 - 0.9);
      second_[i].mul_(0.95).addcmul_(gradients[i], gradients[i], 1 - 0.95);
      parameters_[i].addcdiv_(first_[i], second_[i].sqrt().div_(std::sqrt(bias2)).add_(1e-8), -1e-3 / bias1);
    }
  }

 private:
  std::vector<at::Tensor> parameters_, first_, second_;
  int steps_ = 0;
};

std::vector<double> train(const ReferenceSize& size, int64_t steps) {
  at::set_num_threads(1);  // small operators gain nothing, and lose much where other programs run
  const TrainableModel model = built(size.config(), BuildOn::Cpu);
  std::vector<at::Tensor> parameters;
  for (const NamedTensor& item : model.meta.parameters) parameters.push_back(item.tensor);
  AdamW optimizer(parameters);
  std::vector<double> losses;
  const int64_t each = size.batch / size.microbatches;
  for (int64_t step = 0; step < steps; ++step) {
    double sum = 0;
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& p : parameters) gradients.push_back(at::zeros_like(p));
    for (int64_t m = 0; m < size.microbatches; ++m) {
      const at::Tensor loss = model.meta.loss(rows(size, step, m * each, each));
      sum += loss.item<double>();
      const auto contributions = torch::autograd::grad({loss / size.microbatches}, parameters);
      for (size_t i = 0; i < gradients.size(); ++i) gradients[i].add_(contributions[i]);
    }
    losses.push_back(sum / static_cast<double>(size.microbatches));
    optimizer.step(gradients);
  }
  return losses;
}

struct Published {
  std::string name;
  std::vector<double> losses;
  size_t quick;  // steps that every run checks; the others with PIPER_LONG=1
};
void PrintTo(const Published& published, std::ostream* out) {
  *out << published.name;
}

class ReferenceLosses : public testing::TestWithParam<Published> {};

TEST_P(ReferenceLosses, AreThePublishedOnes) {
  const auto& [name, losses, quick] = GetParam();
  const size_t steps = std::getenv("PIPER_LONG") ? losses.size() : quick;
  if (steps == 0) GTEST_SKIP() << name << " takes long: PIPER_LONG=1";
  const std::vector<double> measured = train(reference_size(name), static_cast<int64_t>(steps));
  for (size_t step = 0; step < steps; ++step) EXPECT_NEAR(measured[step], losses[step], 2e-5) << "step " << step;
}

// PyTorch 2.11, eager, float32 on a CPU; losses of steps 0 to 4
INSTANTIATE_TEST_SUITE_P(Sizes, ReferenceLosses,
                         testing::Values(Published{"tiny", {5.554103, 5.533968, 5.510856, 5.481331, 5.463065}, 2},
                                         Published{"S", {7.682309, 7.655912, 7.643335, 7.631905, 7.576662}, 2},
                                         Published{"MoE-S", {7.680203, 7.665099, 7.641267, 7.609153, 7.560047}, 1},
                                         Published{"M", {7.755185, 7.679451, 7.610933, 7.410651, 7.461823}, 0}));

}  // namespace
}  // namespace piper
