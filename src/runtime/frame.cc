#include "runtime/frame.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <limits>

#include "base/invariant.h"

namespace piper {

Frame::Frame(const PlanTemplate& program, c10::Device device)
    : program_(program),
      device_(device),
      buffers_(program.buffers.size()),
      uses_(program.ops.size()),
      holds_at_start_(program.buffers.size(), 1),
      holds_(program.buffers.size()) {
  for (const OpId i : program.ops.ids()) {
    for (const auto* list : {&program.ops[i].reads, &program.ops[i].writes})
      for (const BufferId buffer : *list)
        if (!program.buffers[buffer].persistent &&
            std::find(uses_[i].begin(), uses_[i].end(), buffer) == uses_[i].end())
          uses_[i].push_back(buffer);
    for (const BufferId buffer : uses_[i]) ++holds_at_start_[buffer];
  }
}

namespace {

void begin_sums(at::Tensor& gradients, const Accumulation& accumulation) {
  if (accumulation.first())
    gradients.fill_(0);
  else if (accumulation.rescale != 1)
    gradients.mul_(accumulation.rescale);
}

}  // namespace

void Frame::begin(const StepSettings& settings) {
  settings_ = &settings;
  scalars = {};
  losses.clear();
  scalars_known = false;
  for (const BufferId b : buffers_.ids()) {
    const PlanBuffer& buffer = program_.buffers[b];
    if (buffer.persistent && buffer.category == Category::Gradients && buffers_[b].defined())
      begin_sums(buffers_[b], settings.accumulation);
    if (!buffer.persistent) buffers_[b].reset();
    holds_[b].store(holds_at_start_[b], std::memory_order_relaxed);
  }
  load_kept();
}

void Frame::ended(OpId op) {
  for (const BufferId buffer : uses_[op]) release(buffer);
}

void Frame::release(BufferId index) {
  if (holds_[index].fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  at::Tensor& buffer = buffers_[index];
  if (poison_freed && buffer.defined() && buffer.is_floating_point())
    buffer.fill_(std::numeric_limits<double>::quiet_NaN());
  buffer.reset();
}

void Frame::load_input(const FrameInput& input) {
  const std::lock_guard lock(loading_);
  at::Tensor& tensor = (*this)[input.buffer];
  if (tensor.defined()) return;
  tensor = make_tensor(input.form, device_);
  if (device_.is_cpu()) return settings_->fill(input.name, input.first_sample, tensor);
  // from memory that a GPU can read by itself, and that libtorch keeps until then
  at::Tensor here = at::empty_strided(input.form.sizes, input.form.strides,
                                      c10::TensorOptions().dtype(input.form.dtype).pinned_memory(true));
  settings_->fill(input.name, input.first_sample, here);
  tensor.copy_(here, /*non_blocking=*/true);
}

void Frame::keep_inputs(std::vector<FrameInput> inputs) {
  constexpr int64_t alignment = 512;
  kept_ = {std::move(inputs), {}, {}, {}, {}};
  std::vector<int64_t> offsets;
  int64_t bytes = 0;
  for (const FrameInput& input : kept_.inputs) {
    offsets.push_back(bytes);
    const at::Tensor like = make_tensor(input.form, c10::kMeta);
    bytes += (static_cast<int64_t>(like.storage().nbytes()) + alignment - 1) / alignment * alignment;
  }
  if (bytes == 0) return;
  kept_.on_host = at::empty({bytes}, c10::TensorOptions().dtype(c10::kByte).pinned_memory(!device_.is_cpu()));
  kept_.on_device = at::empty({bytes}, c10::TensorOptions(device_).dtype(c10::kByte));
  for (size_t i = 0; i < kept_.inputs.size(); ++i) {
    const TensorForm& form = kept_.inputs[i].form;
    const auto part = [&](const at::Tensor& all) {
      return at::from_blob(
          bytes_of(all) + offsets[i], form.sizes, form.strides, [](void*) {}, all.options().dtype(form.dtype),
          all.device());
    };
    kept_.inputs_on_host.push_back(part(kept_.on_host));
    kept_.inputs_on_device.push_back(part(kept_.on_device));
  }
}

void Frame::load_kept() {
  for (size_t i = 0; i < kept_.inputs.size(); ++i) {
    const FrameInput& input = kept_.inputs[i];
    settings_->fill(input.name, input.first_sample, kept_.inputs_on_host[i]);
    (*this)[input.buffer] = kept_.inputs_on_device[i];
  }
  // whoever begins a step waits for it anyway; and libtorch, not asked to, remembers no stream that may fail later
  if (kept_.on_device.defined()) kept_.on_device.copy_(kept_.on_host);
}

Frame::State Frame::state() const {
  State out{buffers_, {}};
  for (const BufferId b : buffers_.ids()) out.holds.push_back(holds_[b].load(std::memory_order_relaxed));
  return out;
}

void Frame::go_back(State state) {
  buffers_ = std::move(state.buffers);
  for (const BufferId b : buffers_.ids()) holds_[b].store(state.holds[b], std::memory_order_relaxed);
}

std::vector<Frame::Change> Frame::changes_since(const State& before) const {
  std::vector<Change> out;
  for (const BufferId b : buffers_.ids()) {
    const int holds = holds_[b].load(std::memory_order_relaxed);
    if (!buffers_[b].is_same(before.buffers[b]) || holds != before.holds[b]) out.push_back({b, buffers_[b], holds});
  }
  return out;
}

void Frame::make(const std::vector<Change>& changes) {
  for (const Change& change : changes) {
    (*this)[change.buffer] = change.tensor;
    holds_[change.buffer].store(change.holds, std::memory_order_relaxed);
  }
}

c10::ScalarType scalar_type(DType dtype) {
  switch (dtype) {
    case DType::Float64:
      return c10::ScalarType::Double;
    case DType::Float32:
      return c10::ScalarType::Float;
    case DType::BFloat16:
      return c10::ScalarType::BFloat16;
    case DType::Float16:
      return c10::ScalarType::Half;
    case DType::Int64:
      return c10::ScalarType::Long;
    case DType::Int32:
      return c10::ScalarType::Int;
    case DType::Int8:
      return c10::ScalarType::Char;
    case DType::Bool:
      return c10::ScalarType::Bool;
  }
  internal_error("an unknown dtype");
}

std::optional<DType> dtype_of(c10::ScalarType type) {
  for (size_t i = 0; i < dtype_count; ++i)
    if (const auto dtype = static_cast<DType>(i); scalar_type(dtype) == type) return dtype;
  return std::nullopt;
}

at::Tensor make_tensor(const TensorForm& form, c10::Device device) {
  return at::empty_strided(form.sizes, form.strides, c10::TensorOptions(device).dtype(form.dtype));
}

at::Tensor make_flat(DType dtype, int64_t elements, c10::Device device) {
  return at::empty({elements}, c10::TensorOptions(device).dtype(scalar_type(dtype)));
}

std::byte* bytes_of(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.data_ptr());
}

}  // namespace piper
