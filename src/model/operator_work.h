// What the operators of a computation do: how long it takes depends on more than its flops and bytes.
#pragma once

#include <optional>
#include <vector>

#include "model/shards.h"

namespace piper {

/// Of a linear layer, forward and backward: its matrix is a parameter, and nothing is chosen by what it gives, as
/// routers and heads do. Such products may be computed in float8.
enum class ProductKind { Other, Linear, Float8 };

struct ProductShape {
  Shape extents;  // [how many, rows, columns, depth], with the labels of what is divided
  ProductKind kind = ProductKind::Other;
  friend bool operator==(const ProductShape&, const ProductShape&) = default;
};

/// Operators of one pass of a chunk, over one slice of the batch.
struct OperatorWork {
  std::vector<ProductShape> products;
  Amount streamed;      // bytes that the other, memory-bound operators read and write
  int64_t kernels = 0;  // of all of them: what the host launches
  friend bool operator==(const OperatorWork&, const OperatorWork&) = default;
};

/// [rows, depth] times [depth, columns], so many times.
struct MatrixProduct {
  int64_t count = 1, rows = 1, columns = 1, depth = 1;
  ProductKind kind = ProductKind::Other;

  int64_t flops() const;
  friend bool operator==(const MatrixProduct&, const MatrixProduct&) = default;
};

/// The same on one device.
struct DeviceOperators {
  std::vector<MatrixProduct> products;
  int64_t streamed = 0;
  int64_t kernels = 0;
  friend bool operator==(const DeviceOperators&, const DeviceOperators&) = default;
};

/// What a computation or an update does on one device.
struct DeviceWork {
  int64_t flops = 0, bytes = 0;              // computed, and moved through memory
  std::optional<DeviceOperators> operators;  // where the model says what they are
  friend bool operator==(const DeviceWork&, const DeviceWork&) = default;
};

/// Operators of a slice of `samples` samples, where it is divided so. A product without labels is divided along its
/// columns.
DeviceOperators on_device(const OperatorWork& work, int64_t samples, const ShardCounts& shards);

}  // namespace piper
