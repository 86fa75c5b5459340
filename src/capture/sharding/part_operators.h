// Operators of ours for tables of which each device has some rows, scores of which it has some columns, and lists of
// which it has a part. `first`: the number of the first that it has. What an index names elsewhere is zero here, so
// that the parts add up.
#pragma once

namespace piper {

// piper::take_rows(Tensor table, Tensor indices, int first) -> Tensor
// piper::take_rows_backward(Tensor gradient, Tensor indices, int[] size, int padding, int first) -> Tensor
//   as aten::embedding and embedding_dense_backward; `size`: of the part of the table
// piper::take_columns(Tensor scores, Tensor indices, int ignored, int first) -> Tensor
// piper::take_columns_backward(Tensor gradient, Tensor indices, int[] size, int first) -> Tensor
//   one number of each row, and numbers put in their place in rows of zeros
// piper::local_slice(Tensor all, int[] size, int first) -> Tensor
//   so many of the list, from the first on; `size`: of the part

/// Whoever calls it is linked with them.
void provide_part_operators();

}  // namespace piper
