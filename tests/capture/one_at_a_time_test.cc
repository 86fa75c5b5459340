// Depthwise convolutions on several threads at a time, where libtorch by itself mixes up their numbers.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <thread>

#include "capture/capture.h"

namespace piper {
namespace {

struct Depthwise {
  torch::Tensor weight, bias;
  MetaModel meta;

  explicit Depthwise(c10::Device device) : weight(at::empty({256, 1, 4}, device)), bias(at::empty({256}, device)) {
    for (torch::Tensor* parameter : {&weight, &bias}) parameter->set_requires_grad(true);
    meta.parameters = {{"weight", weight}, {"bias", bias}};
    meta.loss = [weight = weight, bias = bias](const std::vector<at::Tensor>& inputs) {
      return torch::conv1d(inputs[0], weight, bias, 1, 3, 1, 256).square().mean();
    };
  }
};

/// One device's forward pass, with numbers of its own.
class Device {
 public:
  Device(const CapturedModel& model, uint64_t seed) : runner_(*model.program(ChunkId(0), Pass::F, 4)) {
    torch::manual_seed(seed);
    reads_ = {torch::randn({4, 256, 256})};
    parameters_ = {torch::randn({256, 1, 4}), torch::randn({256})};
  }
  std::vector<at::Tensor> run() {
    std::vector<at::Tensor> writes;
    const std::vector<at::Tensor> none;
    runner_.run({reads_, parameters_, none, none, writes, {}});
    return writes;
  }

 private:
  ChunkRunner runner_;
  std::vector<at::Tensor> reads_, parameters_;
};

TEST(OneAtATime, DepthwiseConvolutionsOnTwoThreads) {
  at::set_num_threads(1);
  const Depthwise model(c10::kMeta);
  CaptureOptions options;
  options.inputs = {{"x", DType::Float32, {256, 256}}};
  options.samples = {4};
  auto captured = capture(model.meta, options);
  ASSERT_TRUE(captured) << render(captured.error());
  const at::NoGradGuard no_grad;
  std::vector<Device> devices = {Device(*captured, 1), Device(*captured, 2)};
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  std::vector<std::vector<at::Tensor>> alone;
  for (Device& device : devices) alone.push_back(device.run());
  for (size_t d = 0; d < devices.size(); ++d)
    threads.emplace_back([&, d] {
      const at::NoGradGuard none;
      at::init_num_threads();
      for (int i = 0; i < 200; ++i) {
        const std::vector<at::Tensor> again = devices[d].run();
        for (size_t w = 0; w < again.size(); ++w) wrong += at::equal(again[w], alone[d][w]) ? 0 : 1;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace piper
