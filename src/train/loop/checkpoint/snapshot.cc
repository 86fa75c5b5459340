#include "train/loop/checkpoint/snapshot.h"

#include <ATen/ops/empty.h>

#include "base/invariant.h"

namespace piper {

Snapshot::Snapshot(const Plan& plan, const StepConfig& step, const ModelState& state,
                   const std::vector<DeviceRun*>& devices)
    : devices_(devices) {
  const auto add = [&](const StateTensor& tensor) {
    const BucketId id = tensor.place.bucket;
    const PlanBucket& bucket = plan.buckets[id];
    for (DeviceRun* device : devices) {
      const auto part = part_of(plan, bucket, device->device());
      const std::tuple key{device->device(), id, tensor.kept};
      if (!part || copies_.contains(key)) continue;
      const auto [flat, range] = kept_elements(*device, bucket, *part, step, tensor.kept);
      ElementRange written = written_range(*part);
      if (tensor.kept == Kept::Whole)
        written = device->device() == writer_of_whole_state(plan, bucket) ? range : ElementRange{};
      if (written.count == 0) continue;
      const at::Tensor source = flat.narrow(0, written.begin - range.begin, written.count);
      const bool pinned = !source.is_cpu();
      at::Tensor copy = at::empty(source.sizes(), source.options().device(c10::kCPU).pinned_memory(pinned));
      copy.zero_();  // so that the memory is there when it is needed
      copies_[key] = {source, copy, written.begin};
    }
  };
  for (const StateTensor& tensor : state.weights) add(tensor);
  for (const StateTensor& tensor : state.optimizer) add(tensor);
}

void Snapshot::take() {
  for (auto& [key, copy] : copies_) copy.copy.copy_(copy.source, /*non_blocking=*/true);
  for (DeviceRun* device : devices_) device->processor().finish();
}

int64_t Snapshot::bytes() const {
  int64_t out = 0;
  for (const auto& [key, copy] : copies_) out += static_cast<int64_t>(copy.copy.nbytes());
  return out;
}

std::span<const std::byte> Snapshot::at(int device, BucketId bucket, Kept kept, int64_t element, int64_t count) const {
  const auto found = copies_.find({device, bucket, kept});
  invariant(found != copies_.end(), "every device here that writes has a copy of what it writes");
  const Copy& copy = found->second;
  const auto size = static_cast<int64_t>(copy.copy.element_size());
  return {bytes_of(copy.copy) + (element - copy.first) * size, static_cast<size_t>(count * size)};
}

}  // namespace piper
