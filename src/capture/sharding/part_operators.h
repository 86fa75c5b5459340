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
// piper::local_slice(Tensor all, int[] size, int first, int dim, int outer, int inner) -> Tensor
//   so many of the list that lies along a dimension between `outer` times and `inner` others, from the first on;
//   `size`: of the part
// piper::local_slice_backward(Tensor part, int[] size, int first, int dim, int outer, int inner) -> Tensor
//   the part at its place in zeros; `size`: of all
// piper::times_parts(Tensor number, Tensor part, int all) -> Tensor
//   the number times the number of parts; `all`: how many elements they have together
// piper::counted_share(Tensor scores, Tensor all, Tensor part, int ignored) -> Tensor
//   how many of all targets are not to be ignored, over the number of parts
// piper::causal_attention(Tensor query, Tensor key, Tensor value, float? scale, int first) -> (Tensor, Tensor)
// piper::causal_attention_backward(Tensor grad_out, Tensor query, Tensor key, Tensor value, Tensor out,
//   Tensor logsumexp, float? scale, int first) -> (Tensor, Tensor, Tensor)
//   as aten::_scaled_dot_product_flash_attention_for_cpu, with queries from token `first` on and all keys and values

/// Whoever calls it is linked with them.
void provide_part_operators();
void provide_context_operators();

}  // namespace piper
