// A pass of a region as one of several devices runs it.
#pragma once

#include "capture/record/operator_table.h"
#include "capture/sharding/label_region.h"

namespace piper {

/// Random calls in a region draw the same numbers however the region is divided.
void draw_random_by_parts(ChunkIr& body, const BodyLabels& labels, TokenOrder order);

/// Takes strides and bytes of all results from a run on meta tensors, after something about the arguments has changed.
Checked infer_layouts(ChunkIr& body, const OperatorGraph& graph, const OperatorTable& table);

/// The body with the sizes of one of the devices: divided dimensions are shorter, gathered ones longer. Sizes that
/// the model wrote as arguments are rewritten; other numbers keep their value, as the reference has it.
Result<ChunkIr> localize(const ChunkIr& body, const OperatorGraph& graph, const OperatorTable& table,
                         const BodyLabels& labels, const ShardCounts& shards);

/// Dense strides for the sizes, in the order of the given ones.
std::vector<int64_t> strides_like(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides);

/// Of a tensor that is made like this one.
std::vector<int64_t> dense_strides(const TensorLayout& layout);

}  // namespace piper
