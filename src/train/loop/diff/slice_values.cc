#include "train/loop/diff/slice_values.h"

#include <ATen/ATen.h>

#include "ir/local_size.h"

namespace piper {

at::Tensor SliceValues::exact(const std::string& value, int64_t first_sample, int64_t samples) const {
  const auto found = values_.find(value);
  if (found == values_.end()) return {};
  const auto same = found->second.find(samples);
  if (same == found->second.end()) return {};
  const auto at = same->second.find(first_sample);
  return at == same->second.end() ? at::Tensor() : at->second;
}

at::Tensor SliceValues::find(const Value& value, int64_t first_sample, int64_t samples) const {
  const at::Tensor whole = exact(value.name, first_sample, samples);
  const auto found = values_.find(value.name);
  const auto dim = sample_dimension(value.shape);
  if (whole.defined() || found == values_.end() || !dim) return whole;
  const int64_t end = first_sample + samples;
  for (const auto& [size, slices] : found->second) {
    std::vector<at::Tensor> all;
    const int64_t begin = first_sample / size * size;
    for (int64_t at = begin; at < end; at += size)
      if (const auto slice = slices.find(at); slice != slices.end()) all.push_back(slice->second);
    if (static_cast<int64_t>(all.size()) != (end - begin + size - 1) / size) continue;
    return at::cat(all, static_cast<int64_t>(*dim)).narrow(static_cast<int64_t>(*dim), first_sample - begin, samples);
  }
  return {};
}

std::map<int64_t, at::Tensor> SliceValues::slices(const std::string& value) const {
  const auto found = values_.find(value);
  return found == values_.end() ? Slices{} : found->second.begin()->second;
}

}  // namespace piper
