#include "train/loop/checkpoint/restore.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <ranges>
#include <sstream>

#include "base/in_parallel.h"
#include "checkpoint/folder_names.h"
#include "checkpoint/folders.h"
#include "runtime/element_runs.h"
#include "train/loop/checkpoint/stored_dtype.h"

namespace piper {
namespace {

/// The run can go on where the checkpoint stands.
Checked check_continues(const RunState& state, const TrainingRunOptions& run) {
  if (state.seed != run.seed)
    return error(ErrorCode::E905, {},
                 fmt::format("the seed is {}, and was {} when the checkpoint was made", run.seed, state.seed))
        .help("dropout and the order of the samples follow from it: resume with the seed that the run began with");
  if (state.step % run.accumulate != 0)
    return error(ErrorCode::E905, {},
                 fmt::format("the checkpoint was made after step {}, and {} steps make an update now", state.step,
                             run.accumulate))
        .help("resume with a number of steps (accumulate) of which that is a multiple");
  return Ok{};
}

/// The checkpoint has every tensor of the model, with its type and shape, and no others.
Checked check_fits(const FolderReader& folder, const FolderLayout& wanted) {
  std::vector<std::string> problems;
  for (const StoredFile& file : wanted.files)  // in their order
    for (const TensorEntry& entry : file.tensors) {
      const StoredTensor& tensor = entry.tensor;
      const TensorPlace* found = folder.layout().find(tensor.name);
      if (!found)
        problems.push_back(fmt::format("{} is missing", tensor.name));
      else if (found->entry.tensor != tensor)
        problems.push_back(fmt::format("{} is {}, the model has {}", tensor.name, print_type(found->entry.tensor),
                                       print_type(tensor)));
    }
  for (const auto& [name, place] : folder.layout().places)
    if (!wanted.find(name)) problems.push_back(fmt::format("{} is not in the model", name));
  if (problems.empty()) return Ok{};
  return does_not_fit(fmt::format("{} does not fit the model", folder.folder()), std::move(problems))
      .help("resume with the model, element types and optimizer that the checkpoint was made with");
}

/// Every device has its own copy of a buffer that passes write.
Checked restore_buffers(const FolderReader& folder, const SavedModel& saved, TrainingRun& run) {
  Checked out = Ok{};
  std::map<std::string, std::string> stored;  // by the name in the module
  for (const SavedBuffer& buffer : saved.buffers) stored[buffer.name] = buffer.stored.name;
  run.computations().set_states([&](const std::string& name, at::Tensor& whole) {
    if (const auto found = stored.find(name); found != stored.end() && out)
      out = folder.read(found->second, 0, {bytes_of(whole), whole.nbytes()});
  });
  return out;
}

/// In the module itself.
Checked restore_constants(const FolderReader& folder, const SavedModel& saved) {
  for (const SavedConstant& constant : saved.constants) {
    const at::Tensor read = at::empty(constant.value.sizes(), constant.value.options().device(c10::kCPU));
    PIPER_CHECK(folder.read(constant.stored.name, 0, {bytes_of(read), read.nbytes()}));
    at::Tensor(constant.value).copy_(read);
  }
  return Ok{};
}

/// Paths of all checkpoints in a folder, as rank 0 sees them.
std::vector<std::string> newest_first(TrainingRun& run, const std::string& folder) {
  std::string lines;
  if (const auto found = list_checkpoints(folder); found)
    for (const CheckpointFolder& checkpoint : *found | std::views::reverse) lines += checkpoint.path + "\n";
  if (World* world = run.world()) lines = world->broadcast(lines, std::chrono::minutes(10));
  std::vector<std::string> out;
  std::istringstream in(lines);
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

}  // namespace

Diagnostic does_not_fit(const std::string& what, std::vector<std::string> lines) {
  constexpr size_t shown = 10;
  const size_t more = lines.size() > shown ? lines.size() - shown : 0;
  lines.resize(lines.size() - more);
  return error(
      ErrorCode::E904, {},
      fmt::format("{}:\n  {}{}", what, fmt::join(lines, "\n  "), more ? fmt::format("\n  and {} more", more) : ""));
}

namespace {

/// Where elements of a device's part lie in the whole. Every device has all of what is kept for a whole parameter.
std::vector<ElementRun> runs_of(const StateTensor& tensor, const BucketPart& part, TrainingRun& run,
                                ElementRange range) {
  if (tensor.kept == Kept::Whole) return {{range.begin, range.begin, range.count}};
  return element_runs(run.computations().parameter(tensor.parameter), part.shards, range);
}

}  // namespace

Checked read_tensor(const FolderReader& folder, const StateTensor& tensor, TrainingRun& run, DeviceRun& device) {
  const ParameterPlace& place = tensor.place;
  const Plan& plan = run.plan();
  const PlanBucket& bucket = plan.buckets[place.bucket];
  const auto part = part_of(plan, bucket, device.device());
  if (!part) return Ok{};
  const auto [flat, held] = kept_elements(device, bucket, *part, run.job().step_config(), tensor.kept);
  const ElementRange range = common(held, place.range);
  if (range.count == 0) return Ok{};
  const at::ScalarType on_disk = scalar_type(*dtype_of(folder.layout().find(tensor.stored.name)->entry.tensor.dtype));
  const at::Tensor target = flat.narrow(0, range.begin - held.begin, range.count);
  const int64_t first = range.begin - place.range.begin;  // of the shard
  const ElementRange wanted = {tensor.first, elements(tensor.stored)};
  for (const ElementRun& piece : runs_of(tensor, *part, run, {first, range.count})) {
    const ElementRange stored = common({piece.whole, piece.count}, wanted);
    if (stored.count == 0) continue;
    const at::Tensor here = target.narrow(0, piece.shard - first + stored.begin - piece.whole, stored.count);
    const bool in_place = here.is_cpu() && here.scalar_type() == on_disk;
    const at::Tensor host = in_place ? here : at::empty(here.sizes(), c10::TensorOptions().dtype(on_disk));
    const auto element = static_cast<int64_t>(host.element_size());
    const std::span into(static_cast<std::byte*>(host.mutable_data_ptr()), host.nbytes());
    PIPER_CHECK(folder.read(tensor.stored.name, (stored.begin - tensor.first) * element, into));
    if (!in_place) here.copy_(host.to(here.scalar_type()));
  }
  return Ok{};
}

Checked read_tensors(const FolderReader& folder, const std::vector<const StateTensor*>& tensors, TrainingRun& run) {
  const std::vector<DeviceRun*>& devices = run.job().devices();
  PIPER_CHECK(in_parallel(tensors.size() * devices.size(), disk_threads, [&](size_t i) {
    return read_tensor(folder, *tensors[i / devices.size()], run, *devices[i % devices.size()]);
  }));
  for (DeviceRun* device : devices) device->processor().finish();
  return Ok{};
}

Checked restore(const FolderReader& folder, const SavedModel& saved, TrainingRun& run) {
  const RunState& state = folder.state();
  PIPER_CHECK(check_continues(state, run.options()));
  PIPER_CHECK(check_fits(folder, *saved.layout));
  std::vector<const StateTensor*> all;
  for (const std::vector<StateTensor>* tensors : {&saved.state.weights, &saved.state.optimizer})
    for (const StateTensor& tensor : *tensors) all.push_back(&tensor);
  PIPER_CHECK(read_tensors(folder, all, run));
  PIPER_CHECK(restore_buffers(folder, saved, run));
  PIPER_CHECK(restore_constants(folder, saved));
  run.set_progress({state.step, state.samples, state.updates});
  return Ok{};
}

Result<std::optional<Resumed>> resume(TrainingRun& run, const std::string& folder,
                                      const std::function<Checked(const FolderReader&)>& attempt) {
  const bool named = step_of(std::filesystem::path(folder).lexically_normal().filename().string()).has_value();
  const std::vector<std::string> candidates = named ? std::vector{folder} : newest_first(run, folder);
  Resumed out;
  for (const std::string& candidate : candidates) {
    const auto reader = FolderReader::open(candidate);
    Checked tried = reader ? attempt(**reader) : Checked(reader.error());
    const bool damaged = !tried && (tried.error().code == ErrorCode::E901 || tried.error().code == ErrorCode::E902);
    const int worst = run.greatest(tried ? 0 : damaged ? 1 : 2);
    if (worst == 0) {
      out.folder = candidate;
      return std::optional(std::move(out));
    }
    if (tried) tried = error(ErrorCode::E902, {}, fmt::format("{}: another process cannot read it", candidate));
    if (worst > 1 || named) return std::move(tried.error());
    out.left_out.push_back(std::move(tried.error()));
  }
  if (out.left_out.empty()) return std::optional<Resumed>();
  return std::move(out.left_out.front()).help(fmt::format("no checkpoint in {} is sound", folder));
}

}  // namespace piper
