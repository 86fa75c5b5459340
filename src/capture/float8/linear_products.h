// Which matrix products are those of linear layers.
#pragma once

#include <set>
#include <vector>

#include "capture/chunk/chunk_ir.h"

namespace piper {

/// Storages of parameters that forward only multiplies with, as the matrix of a linear layer. Not among them: what
/// somebody chooses by, or computes the loss from: where a softmax or the greatest are taken of what came out, element
/// by element (routers, heads).
std::set<StorageId> linear_matrices(const OperatorGraph& graph);

/// By call of a body: a product with such a matrix, or for its gradient.
std::vector<char> linear_products(const OperatorGraph& graph, const ChunkIr& body, const std::set<StorageId>& matrices);

/// Of a product, without its bias: where its two operands are among the arguments.
size_t first_operand(const OperatorGraph& graph, const Call& call);

}  // namespace piper
