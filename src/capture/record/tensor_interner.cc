#include "capture/record/tensor_interner.h"

namespace piper {
namespace {

bool same_layout(const TensorLayout& layout, const at::Tensor& tensor) {
  return layout.offset == tensor.storage_offset() && layout.element == static_cast<int8_t>(tensor.scalar_type()) &&
         tensor.sizes() == c10::IntArrayRef(layout.sizes) && tensor.strides() == c10::IntArrayRef(layout.strides);
}

}  // namespace

TensorId TensorInterner::add(const at::Tensor& tensor, TensorKind kind, CallId producer) {
  const TensorId id(graph_.tensors.size());
  const auto [found, fresh] =
      storage_ids_.try_emplace(tensor.storage().unsafeGetStorageImpl(), StorageId(graph_.storages.size()));
  if (fresh) {
    graph_.storages.push_back({static_cast<int64_t>(tensor.storage().nbytes()), id});
    tensors_of_.emplace_back();
    kept_.push_back(tensor.storage());
  }
  graph_.tensors.push_back({kind, found->second, layout_of(tensor), producer, "", -1});
  tensors_of_[found->second.index()].push_back(id);
  return id;
}

TensorId TensorInterner::add_result(const at::Tensor& tensor, CallId producer) {
  for (const TensorId id : sharing_storage(tensor))
    if (same_layout(graph_[id].layout, tensor)) return id;
  return add(tensor, TensorKind::Result, producer);
}

TensorId TensorInterner::add_constant(const at::Tensor& tensor) {
  const TensorId id = add(tensor, TensorKind::Constant, CallId());
  version_[id] = tensor._version();
  return id;
}

bool TensorInterner::has_storage_of(const at::Tensor& tensor) const {
  return storage_ids_.contains(tensor.storage().unsafeGetStorageImpl());
}

std::optional<TensorId> TensorInterner::find(const at::Tensor& tensor, bool has_values) const {
  const std::vector<TensorId>& known = sharing_storage(tensor);
  for (auto id = known.rbegin(); id != known.rend(); ++id)
    if (same_layout(graph_[*id].layout, tensor) && (!has_values || version_of(*id) == tensor._version())) return *id;
  return {};
}

int64_t TensorInterner::version_of(TensorId id) const {
  const auto found = version_.find(id);
  return found == version_.end() ? 0 : found->second;
}

const std::vector<TensorId>& TensorInterner::sharing_storage(const at::Tensor& tensor) const {
  static const std::vector<TensorId> none;
  const auto found = storage_ids_.find(tensor.storage().unsafeGetStorageImpl());
  return found == storage_ids_.end() ? none : tensors_of_[found->second.index()];
}

}  // namespace piper
