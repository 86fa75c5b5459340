// The values of a step, whole, slice by slice: as one device has them.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "model/model_graph.h"

namespace piper {

class SliceValues {
 public:
  void put(const std::string& value, int64_t first_sample, int64_t samples, at::Tensor whole) {
    values_[value][samples][first_sample] = std::move(whole);
  }
  /// The value of these samples; joined, or a part, where slices were others, if it has a dimension of samples.
  /// Undefined: it is not there.
  at::Tensor find(const Value& value, int64_t first_sample, int64_t samples) const;
  /// Undefined: it is not there for a slice of just these samples.
  at::Tensor exact(const std::string& value, int64_t first_sample, int64_t samples) const;
  bool has(const std::string& value) const { return values_.contains(value); }
  /// Of all slices: first samples and tensors.
  std::map<int64_t, at::Tensor> slices(const std::string& value) const;

 private:
  using Slices = std::map<int64_t, at::Tensor>;              // by first sample
  std::map<std::string, std::map<int64_t, Slices>> values_;  // by name, and samples of a slice
};

}  // namespace piper
