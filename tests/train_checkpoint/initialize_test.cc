// A run that begins with weights of others, under any plan: every device reads its own part of them.
#include "train/loop/checkpoint/initialize.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <fstream>

#include "must.h"
#include "train/in_empty_folder.h"
#include "train/loop/checkpoint/restore.h"
#include "train_checkpoint/checkpointed.h"
#include "train_loop/tp_cases.h"

namespace piper {
namespace {

const std::map<std::string, std::string> plans = {
    {"one", "devices(1)\nplace({}, devices=[0])\n"},
    {"divided", "mesh(dp=4)\n" + whole + "replicate({}, along=dp, zero=3)\n"},
    {"cut", "mesh(tp=4)\n" + whole + everything},
    {"both", "mesh(pp=2, dp=2, tp=2)\nplace({}, along=pp, stages=2)\nreplicate({}, along=dp, zero=1)\n" +
                 tensor_parallel + "use 1f1b(stages=stage, microbatches=mb)\n"}};

struct Begun {
  PreparedTraining prepared;
  std::unique_ptr<TrainingRun> run;
};

Begun begin(const TrainableModel& model, const TpCase& c, const std::string& plan) {
  Begun out{prepared(model, "split(batch, parts=4, as=mb)\n" + plans.at(plan)), nullptr};
  out.run = begin(model, RunPart{out.prepared.captured.get(), out.prepared.plan, 1}, settings(c));
  return out;
}

/// Of weights, on a device.
int64_t bytes_held(TrainingRun& run, DeviceRun& device) {
  int64_t out = 0;
  for (const PlanBucket& bucket : run.plan().buckets)
    if (const auto part = part_of(run.plan(), bucket, device.device())) {
      const KeptElements kept = kept_elements(device, bucket, *part, run.job().step_config(), Kept::Weight);
      out += common(kept.range, {0, part->elements}).count * static_cast<int64_t>(kept.flat.element_size());
    }
  return out;
}

/// Bytes that this process has asked the system for.
int64_t bytes_read() {
  std::ifstream in("/proc/self/io");
  std::string name;
  int64_t value = 0;
  in >> name >> value;
  return name == "rchar:" ? value : 0;
}

class InitializeFrom : public InEmptyFolder {
 protected:
  /// A folder `step-00000001` with weights in float64.
  void SetUp() override {
    InEmptyFolder::SetUp();
    const TrainableModel model = model_of(theirs_);
    const Begun begun = begin(model, theirs_, "one");
    train_part(model, {begun.prepared.captured.get(), begun.prepared.plan, 1}, settings(theirs_), 0, "", ".");
  }
  const TpCase theirs_{"theirs", "four_keys", 1, 4, ""};
};

TEST_F(InitializeFrom, ConvertsWeightsUnderAnyPlan) {
  const auto theirs = must(FolderReader::open("step-00000001"));
  TpCase c = theirs_;
  c.dtype = DType::BFloat16;
  const TrainableModel model = model_of(c);
  ASSERT_TRUE(model.step.master);
  for (const auto& [name, plan] : plans) {
    SCOPED_TRACE(plan);
    const Begun begun = begin(model, c, name);
    EXPECT_EQ(must(initialize_from("step-00000001", model, *begun.run)),
              std::vector<std::string>{"converted from F64 to BF16"});
    int compared = 0;
    for (const SavedName& saved : model.saved) {
      const at::Tensor weight = begun.run->parameter(saved.name, Kept::Weight);
      if (!weight.defined()) continue;
      const at::Tensor expected = at::empty(weight.sizes(), at::kDouble);
      must(theirs->read(saved.stored, 0, {static_cast<std::byte*>(expected.mutable_data_ptr()), expected.nbytes()}));
      EXPECT_TRUE(at::equal(weight, expected.to(at::kBFloat16))) << saved.name;
      EXPECT_TRUE(at::equal(begun.run->parameter(saved.name, Kept::Master), weight.to(at::kFloat))) << saved.name;
      EXPECT_EQ(begun.run->parameter(saved.name, Kept::Moment1).abs().max().item<double>(), 0) << saved.name;
      ++compared;
    }
    EXPECT_GT(compared, 10);
  }
}

TEST_F(InitializeFrom, NoDeviceReadsTheWhole) {
  if (bytes_read() == 0) GTEST_SKIP() << "the system does not count what is read";
  std::filesystem::remove("step-00000001/piper.json");  // without sums no block is read for its sum
  const auto folder = must(FolderReader::open_any("step-00000001"));
  const TrainableModel model = model_of(theirs_);
  for (const auto& [name, plan] : plans) {
    SCOPED_TRACE(plan);
    const Begun begun = begin(model, theirs_, name);
    TrainingRun& run = *begun.run;
    const ModelState state = model_state(run.plan(), run.job().step_config(), run.computations(), model.saved);
    int64_t all = 0;
    for (const StateTensor& tensor : state.weights) all += elements(tensor.stored) * 8;
    for (DeviceRun* device : run.job().devices()) {
      const int64_t before = bytes_read();
      for (const StateTensor& tensor : state.weights) must(read_tensor(*folder, tensor, run, *device));
      const int64_t read = bytes_read() - before;
      const int64_t held = bytes_held(run, *device);
      EXPECT_NEAR(static_cast<double>(read), static_cast<double>(held), 2000) << device->device();  // with the counts
      EXPECT_LE(held, name == "one" ? all + 1000 : all / 2) << device->device();  // tables of positions are held, too
    }
  }
}

}  // namespace
}  // namespace piper
