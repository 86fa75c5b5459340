// Which tensors of a recording are the same: those with one storage and one layout.
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "capture/record/operator_table.h"

namespace piper {

/// The tensors and storages of a graph that is being recorded, by what libtorch has for them.
class TensorInterner {
 public:
  explicit TensorInterner(OperatorGraph& graph) : graph_(graph) {}

  TensorId add(const at::Tensor& tensor, TensorKind kind, CallId producer);
  /// What a call returns. A view that was made before is the same tensor.
  TensorId add_result(const at::Tensor& tensor, CallId producer);
  /// A tensor with values, not a fake one. When they change it is another tensor.
  TensorId add_constant(const at::Tensor& tensor);

  bool has_storage_of(const at::Tensor& tensor) const;
  /// The newest that looks like this one and, where it has values, has the same.
  std::optional<TensorId> find(const at::Tensor& tensor, bool has_values) const;

 private:
  /// Those with its storage, in the order in which they were made.
  const std::vector<TensorId>& sharing_storage(const at::Tensor& tensor) const;
  int64_t version_of(TensorId id) const;

  OperatorGraph& graph_;
  std::unordered_map<c10::StorageImpl*, StorageId> storage_ids_;
  std::vector<std::vector<TensorId>> tensors_of_;  // by storage
  std::unordered_map<TensorId, int64_t> version_;  // of constants
  std::vector<c10::Storage> kept_;                 // so that no address is used twice
};

}  // namespace piper
