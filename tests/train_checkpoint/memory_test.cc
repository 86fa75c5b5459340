// Memory of the copies from which checkpoints are written: declared by the plan, and not there.
#include <c10/core/Allocator.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>
#include <numeric>

#include "base/device_block.h"
#include "must.h"
#include "plan/checkpoint_memory.h"
#include "runtime/memory_meter.h"
#include "train/golden_text.h"
#include "train/in_empty_folder.h"
#include "train/loop/checkpoint/checkpoints.h"
#include "train_checkpoint/checkpointed.h"
#include "train_loop/covering.h"

namespace piper {
namespace {

class CopiesOfASave : public InEmptyFolder {};

/// What snapshots take in each of so many processes, beside what the plan says.
void expect_declared(const Subject& subject, const RunPart& part, int processes) {
  const std::unique_ptr<TrainingRun> run = begin(model_of(subject), part, usual_settings(subject));
  const SavedModel saved = small_files(model_of(subject), *run);
  const StepConfig& step = run->job().step_config();
  int64_t seen = 0;
  for (const EqualCopies& copies : copies_by_process(run->plan(), step, processes))
    for (const int process : copies.processes) {
      const DeviceBlock block = devices_of(process, processes, device_count(run->plan()));
      std::vector<DeviceRun*> devices;
      for (DeviceRun* device : run->job().devices())
        if (block.has(device->device())) devices.push_back(device);
      const MemoryMeter meter;
      Snapshot snapshot(run->plan(), step, saved.state, devices);
      snapshot.take();
      EXPECT_NEAR(static_cast<double>(meter.peak()), static_cast<double>(copies.bytes),
                  0.01 * static_cast<double>(copies.bytes))
          << "process " << process << " of " << processes;
      seen += copies.bytes;
    }
  int64_t stored = 0;
  for (const auto& [name, place] : saved.layout->places) stored += bytes_of(place.entry.tensor);
  // all of the checkpoint, once; tables of rotations are in the plan only
  EXPECT_NEAR(static_cast<double>(seen), static_cast<double>(stored), 0.01 * static_cast<double>(stored));
}

TEST_F(CopiesOfASave, TakeWhatThePlanDeclares) {
  const std::vector<Combination>& all = pairwise_covering().trained;
  for (size_t i = 0; i < all.size(); i += 12) {
    SCOPED_TRACE(all[i].describe() + "\n" + all[i].schedule());
    const Subject subject{all[i].kind, all[i].layers()};
    const RunPart part = part_of(subject, all[i], 0);
    for (const int processes : {1, device_count(*part.plan)}) expect_declared(subject, part, processes);
  }
}

TEST_F(CopiesOfASave, TakeMasterCopiesToo) {
  const Subject subject{.kind = "dense", .dtype = DType::BFloat16, .gradients = DType::Float32};
  expect_declared(subject, part_of(subject, in_turn(4), 4, 0), 1);
}

/// While it lives, tensors on the CPU get so many bytes together and no more.
class LittleMemory {
 public:
  explicit LittleMemory(size_t bytes) : allocator_(bytes) { c10::SetAllocator(c10::kCPU, &allocator_, 1); }
  ~LittleMemory() { c10::SetAllocator(c10::kCPU, allocator_.usual, 1); }

 private:
  struct Limited : c10::Allocator {
    explicit Limited(size_t bytes) : left(bytes) {}
    at::DataPtr allocate(size_t bytes) override {
      if (bytes > left) throw std::bad_alloc();
      left -= bytes;
      return usual->allocate(bytes);
    }
    c10::DeleterFnPtr raw_deleter() const override { return usual->raw_deleter(); }
    void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
    c10::Allocator* const usual = c10::GetAllocator(c10::kCPU);
    size_t left;
  };
  Limited allocator_;
};

TEST_F(CopiesOfASave, ThatDoNotFitAreRefusedWithTheirBytes) {
  const Subject subject{.kind = "dense", .layers = 1};
  const std::unique_ptr<TrainingRun> run =
      begin(model_of(subject), part_of(subject, in_turn(1), subject_batch, 0), usual_settings(subject));
  const SavedModel saved = small_files(model_of(subject), *run);
  const std::vector<int64_t> by_device = copied_bytes(run->plan(), run->job().step_config());
  const size_t all = static_cast<size_t>(std::accumulate(by_device.begin(), by_device.end(), int64_t{0}));
  {
    const LittleMemory enough(all);
    EXPECT_TRUE(Checkpoints::make(*run, saved, {.folder = "run"}));
  }
  const LittleMemory too_little(all / 2);
  const auto refused = Checkpoints::make(*run, saved, {.folder = "run"});
  ASSERT_FALSE(refused);
  expect_golden("E808_copies", render(refused.error()));
}

}  // namespace
}  // namespace piper
