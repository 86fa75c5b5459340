#include "runtime/executors/flat_views.h"

#include <fmt/format.h>

namespace piper {

FlatView flat_view(const Preparation& prepare, const std::vector<BufferId>& buffers, const std::string& name) {
  const auto place = prepare.index.parameters.find(name);
  for (const BufferId index : buffers) {
    const PlanBuffer& buffer = prepare.buffer(index);
    if (buffer.category == Category::Activations || buffer.category == Category::Temporaries) continue;
    if (place == prepare.index.parameters.end() || place->second.bucket != buffer.label.name) continue;
    const auto& [bucket, offset, elements] = place->second;
    const LocalShards& shards = prepare.index.buckets.at(bucket).part->shards;
    return {index, offset, elements, prepare.computations.parameter(name).local_sizes(shards), buffer.persistent};
  }
  throw std::runtime_error(fmt::format("the plan has no buffer for parameter {}", name));
}

void FlatViews::add(const FlatView& view, Frame& frame) {
  views.push_back(view);
  tensors.push_back(view.lasting ? view.of(frame[view.buffer]) : at::Tensor());
}
void FlatViews::bind(Frame& frame) {
  for (size_t i = 0; i < views.size(); ++i)
    if (!views[i].lasting) tensors[i] = views[i].of(frame[views[i].buffer]);
}
void FlatViews::unbind() {
  for (size_t i = 0; i < views.size(); ++i)
    if (!views[i].lasting) tensors[i].reset();
}

void Contributions::add(const Preparation& prepare, const FlatView& gradient) {
  if (!gradient.lasting)
    all.push_back({gradient.buffer, prepare.step.gradients, prepare.buffer(gradient.buffer).bytes});
}
void Contributions::make(Frame& frame) const {
  for (const One& one : all)
    if (at::Tensor& flat = frame[one.buffer]; !flat.defined())
      flat = make_flat(one.dtype, one.bytes / piper::bytes_of(one.dtype), frame.device()).fill_(0);
}

BufferId buffer_of_value(const Preparation& prepare, const std::vector<BufferId>& buffers, const std::string& value) {
  for (const BufferId buffer : buffers)
    if (prepare.buffer(buffer).category == Category::Activations && prepare.name(prepare.buffer(buffer).label) == value)
      return buffer;
  throw std::runtime_error(fmt::format("the plan has no buffer for value {}", value));
}

}  // namespace piper
