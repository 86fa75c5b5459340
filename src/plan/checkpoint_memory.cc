#include "plan/checkpoint_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/bytes.h"
#include "base/device_block.h"
#include "base/saturate.h"
#include "base/text_table.h"
#include "model/whole_state.h"

namespace piper {

std::set<NameId> buckets_with_state(const Plan& plan) {
  std::set<NameId> out;
  for (const PlanTemplate& program : plan.templates)
    for (const PlanBuffer& buffer : program.buffers)
      if (buffer.persistent && buffer.category == Category::Optimizer) out.insert(buffer.label.name);
  return out;
}

ElementRange written_range(const BucketPart& part) {
  if (part.holder != 0 || part.rank_in_sample != 0) return {};
  const int64_t size = (part.elements + part.copies - 1) / part.copies;
  const int64_t begin = std::min(part.copy * size, part.elements);
  return {begin, std::min(size, part.elements - begin)};
}

int writer_of_whole_state(const Plan& plan, const PlanBucket& bucket) {
  return plan.partitions[bucket.holders[0].copies].members[0];
}

namespace {

/// Bytes of what a device keeps for the parameters of a bucket as a whole.
int64_t whole_state_bytes(const Plan& plan, const PlanBucket& bucket, const StepConfig& step, int device) {
  const BucketPart part = *part_of(plan, bucket, device);
  const Optimizer kind = optimizer_of(step, bucket.matrices);
  const int64_t begin = whole_state_begin(element_types(step, bucket.weights), kind, part.range().count);
  for (const PlanTemplate& program : plan.templates)
    if (std::ranges::find(program.devices, device) != program.devices.end())
      for (const PlanBuffer& buffer : program.buffers)
        if (buffer.persistent && buffer.category == Category::Optimizer && buffer.label.name == bucket.name)
          return buffer.bytes - begin;
  return 0;
}

}  // namespace

std::vector<int64_t> copied_bytes(const Plan& plan, const StepConfig& step) {
  std::vector<int64_t> out(static_cast<size_t>(device_count(plan)), 0);
  const std::set<NameId> with_state = buckets_with_state(plan);
  for (const PlanBucket& bucket : plan.buckets) {
    int64_t element = bytes_of(bucket.weights);
    if (with_state.contains(bucket.name))
      element += saved_state_bytes(element_types(step, bucket.weights), optimizer_of(step, bucket.matrices));
    if (bucket.matrices && step.optimizer == Optimizer::Adafactor) {
      const int device = writer_of_whole_state(plan, bucket);
      int64_t& bytes = out[static_cast<size_t>(device)];
      bytes = saturating_add(bytes, whole_state_bytes(plan, bucket, step, device));
    }
    const DeviceList& members = plan.partitions[bucket.holders[0].copies].members;
    for (size_t position = 0; position < members.size(); ++position) {
      int64_t& bytes = out[static_cast<size_t>(members[position])];
      const ElementRange written = written_range(part_at(plan, bucket, 0, static_cast<int>(position)));
      bytes = saturating_add(bytes, saturating_multiply(element, written.count));
    }
  }
  return out;
}

std::vector<EqualCopies> copies_by_process(const Plan& plan, const StepConfig& step, int processes) {
  const std::vector<int64_t> by_device = copied_bytes(plan, step);
  std::vector<EqualCopies> out;
  for (int process = 0; process < processes; ++process) {
    const DeviceBlock block = devices_of(process, processes, device_count(plan));
    const auto first = by_device.begin() + block.first;
    const int64_t bytes = std::accumulate(first, first + block.count, int64_t{0}, saturating_add);
    auto equal = std::ranges::find(out, bytes, &EqualCopies::bytes);
    if (equal == out.end()) equal = out.insert(equal, {{}, bytes});
    equal->processes.push_back(process);
  }
  return out;
}

std::string checkpoint_table(const Plan& plan, const StepConfig& step, int processes) {
  TextTable table({"processes", "host memory of each while it saves"});
  int64_t all = 0;
  for (const auto& [members, bytes] : copies_by_process(plan, step, processes)) {
    table.add({print_devices(DeviceList(members.begin(), members.end())), human_bytes(bytes)});
    all = saturating_add(all, saturating_multiply(bytes, std::ssize(members)));
  }
  return fmt::format("a checkpoint has {} of weights and optimizer state\n{}", human_bytes(all), table.print());
}

}  // namespace piper
