#include "train/loop/checkpoint/restore.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "runtime/element_runs.h"

namespace piper {
namespace {

/// One tensor on one device.
Checked restore(const FolderReader& folder, const StateTensor& tensor, const Plan& plan, const StepConfig& step,
                const ParameterForm& form, DeviceRun& device) {
  const ParameterPlace place = *place_of(plan, tensor.parameter);
  const PlanBucket& bucket = plan.buckets[place.bucket];
  const auto part = part_of(plan, bucket, device.device());
  if (!part) return Ok{};
  const auto [flat, held] = kept_elements(device, bucket, *part, step, tensor.kept);
  const ElementRange range = common(held, place.range);
  if (range.count == 0) return Ok{};
  const at::Tensor target = flat.narrow(0, range.begin - held.begin, range.count);
  at::Tensor host = target.is_cpu() ? target : at::empty(target.sizes(), target.options().device(c10::kCPU));
  const auto element = static_cast<int64_t>(host.element_size());
  const int64_t first = range.begin - place.range.begin;  // of the shard
  for (const ElementRun& run : element_runs(form, part->shards, {first, range.count})) {
    const std::span<std::byte> into(bytes_of(host) + (run.shard - first) * element,
                                    static_cast<size_t>(run.count * element));
    PIPER_CHECK(folder.read(tensor.stored.name, run.whole * element, into));
  }
  if (!target.is_cpu()) target.copy_(host);
  return Ok{};
}

}  // namespace

Checked check_fits(const FolderReader& folder, const ModelState& state, const std::vector<StoredTensor>& buffers) {
  std::vector<std::string> problems;
  std::set<std::string> wanted;
  const auto check = [&](const StoredTensor& tensor) {
    wanted.insert(tensor.name);
    const TensorPlace* found = folder.layout().find(tensor.name);
    if (!found)
      problems.push_back(fmt::format("{} is missing", tensor.name));
    else if (found->entry.tensor != tensor)
      problems.push_back(
          fmt::format("{} is {}, the model has {}", tensor.name, print_type(found->entry.tensor), print_type(tensor)));
  };
  for (const StateTensor& tensor : state.weights) check(tensor.stored);
  for (const StateTensor& tensor : state.optimizer) check(tensor.stored);
  for (const StoredTensor& tensor : buffers) check(tensor);
  for (const auto& [name, place] : folder.layout().places)
    if (!wanted.contains(name)) problems.push_back(fmt::format("{} is not in the model", name));
  if (problems.empty()) return Ok{};
  constexpr size_t shown = 10;
  const size_t more = problems.size() > shown ? problems.size() - shown : 0;
  problems.resize(problems.size() - more);
  return error(ErrorCode::E904, {},
               fmt::format("{} does not fit the model:\n  {}{}", folder.folder(), fmt::join(problems, "\n  "),
                           more ? fmt::format("\n  and {} more", more) : ""))
      .help("resume with the [model], weights and optimizer that the checkpoint was made with: `piper checkpoint show`")
      .help("to begin a new run with its weights, use --init instead of --resume");
}

Checked restore(const FolderReader& folder, const ModelState& state, Job& job, const Computations& computations) {
  for (const std::vector<StateTensor>* tensors : {&state.weights, &state.optimizer})
    for (const StateTensor& tensor : *tensors) {
      const ParameterForm form = computations.parameter(tensor.parameter);
      for (DeviceRun* device : job.devices())
        PIPER_CHECK(restore(folder, tensor, job.plan(), job.step_config(), form, *device));
    }
  for (DeviceRun* device : job.devices()) device->processor().finish();
  return Ok{};
}

}  // namespace piper
