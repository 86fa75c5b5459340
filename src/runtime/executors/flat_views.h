// Parameters and gradients of a computation as views of the flat buffers of their buckets.
#pragma once

#include "runtime/executor.h"

namespace piper {

/// A parameter, or its gradient, inside the flat buffer of its bucket.
struct FlatView {
  BufferId buffer;
  int64_t offset = 0, elements = 0;
  std::vector<int64_t> sizes;
  bool lasting = false;  // so does its buffer

  at::Tensor of(const at::Tensor& flat) const { return flat.narrow(0, offset, elements).view(sizes); }
};
/// Where a parameter lies in that of the buffers which is its bucket's.
FlatView flat_view(const Preparation& prepare, const std::vector<BufferId>& buffers, const std::string& name);

/// Views in the order of the computation's arguments. Those of buffers that last are made once.
struct FlatViews {
  std::vector<FlatView> views;
  std::vector<at::Tensor> tensors;

  void add(const FlatView& view, Frame& frame);
  void bind(Frame& frame);
  void unbind();
};

/// Gradients of a slice, which are reduced into others: zero before anybody adds to them.
struct Contributions {
  struct One {
    BufferId buffer;
    DType dtype;
    int64_t bytes;
  };
  std::vector<One> all;

  void add(const Preparation& prepare, const FlatView& gradient);
  void make(Frame& frame) const;
};

/// The buffer of a value.
BufferId buffer_of_value(const Preparation& prepare, const std::vector<BufferId>& buffers, const std::string& value);

}  // namespace piper
