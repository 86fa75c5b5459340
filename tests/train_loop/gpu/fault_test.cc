// What goes wrong on a GPU ends the program, and the message says which operation it was.
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "runtime/gpu/gpu_processor.h"
#include "train_loop/subjects.h"

namespace piper {
namespace {

std::unique_ptr<Processor> gpu(Graphs graphs) {
  auto made = make_gpu_processor({.graphs = graphs});
  return made ? std::move(*made) : nullptr;
}

/// Before the third computation, in the fourth step, something happens on its stream. Never returns; the text of the
/// error is written, with the operation that was chosen.
[[noreturn]] void train_with(Graphs graphs, const std::function<void()>& fault) {
  const std::unique_ptr<Processor> processor = gpu(graphs);
  const Subject subject{.kind = "dense", .dtype = DType::Float32, .on = processor.get()};
  const CapturedModel& model = captured(subject, {subject_batch / 2});
  Result<Compiled> compiled = compile_for(model, in_turn(2));
  const auto plan = std::make_shared<const Plan>(compiled->plan);
  const PlanTemplate& program = program_of(*plan, 0);
  OpId chosen{0};
  int seen = 0;
  while (program.ops[chosen].kind != OpKind::Run) ++chosen.value;
  if (graphs != Graphs::Step) chosen.value += 2;  // a graph is blamed as a whole: by its first operation
  TrainSettings settings = usual_settings(subject);
  settings.steps = 5;
  settings.job.run.processor = processor.get();
  settings.job.run.before_op = [&](int, OpId op) {
    if (op == chosen && ++seen == 4) fault();
  };
  try {
    train(model_of(subject), model, plan, settings);
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "chosen %s\n%s\n", describe_op(*plan, 0, chosen).c_str(), problem.what());
    std::_Exit(3);
  }
  std::_Exit(0);
}

class GpuFault : public testing::TestWithParam<Graphs> {
 protected:
  void SetUp() override {
    if (!gpu(Graphs::None)) GTEST_SKIP() << "there is no GPU here";
    GTEST_FLAG_SET(death_test_style, "threadsafe");  // a process of its own, with a GPU that works
  }
  /// The same operation twice: as it was chosen, and as it is blamed.
  static std::string blamed(const std::string& why) {
    return "chosen (device 0: op [0-9]+ run .*:[0-9]+\\))[^)]*\n(device 0: op [0-9]+ run .*:[0-9]+\\)): .*" + why;
  }
};

TEST_P(GpuFault, IllegalAddress) {
  EXPECT_EXIT(train_with(GetParam(),
                         [] {
                           const c10::Device there(c10::kCUDA, 0);
                           at::from_blob(
                               reinterpret_cast<void*>(0x10), {1024}, [](void*) {},
                               at::TensorOptions(there).dtype(at::kFloat), there)
                               .fill_(1);
                         }),
              testing::ExitedWithCode(3), blamed("illegal memory access"));
}

TEST_P(GpuFault, NoMemory) {
  EXPECT_EXIT(
      train_with(
          GetParam(),
          [] { at::empty({int64_t{1} << 50}, at::TensorOptions(c10::Device(c10::kCUDA, 0)).dtype(at::kFloat)); }),
      testing::ExitedWithCode(3), blamed("out of memory"));
}

INSTANTIATE_TEST_SUITE_P(All, GpuFault, testing::Values(Graphs::None, Graphs::Chunk, Graphs::Step));

}  // namespace
}  // namespace piper
