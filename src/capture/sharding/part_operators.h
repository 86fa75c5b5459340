// Piper's own operators for tables of which each device has some rows, scores of which it has some columns, and lists
// of which it has a part. `first`: the number of the first that it has. What an index names elsewhere is zero here, so
// that the parts add up.
#pragma once

namespace piper {

// piper::take_rows(Tensor table, Tensor indices, int first) -> Tensor
// piper::take_rows_backward(Tensor gradient, Tensor indices, int[] size, int padding, int first) -> Tensor
//   as aten::embedding and embedding_dense_backward; `size`: of the part of the table
// piper::take_columns(Tensor scores, Tensor indices, int ignored, int first) -> Tensor
// piper::take_columns_backward(Tensor gradient, Tensor indices, int[] size, int first) -> Tensor
//   one number of each row, and numbers put in their place in rows of zeros
// piper::local_slice(Tensor all, int[] size, int first, int dim, int outer, int inner, bool zigzag) -> Tensor
//   so many of the list that lies along a dimension between `outer` times and `inner` others, from the first on;
//   `size`: of the part. `zigzag`: the half of it that begins at half of `first`, and the one as far from the end
// piper::local_slice_backward(Tensor part, int[] size, int first, int dim, int outer, int inner, bool zigzag) -> Tensor
//   the part at its place in zeros; `size`: of all
// piper::times_parts(Tensor number, Tensor part, int all) -> Tensor
//   the number times the number of parts; `all`: how many elements they have together
// piper::counted_share(Tensor all, Tensor part, int ignored, ScalarType dtype) -> Tensor
//   how many of all targets are not to be ignored, over the number of parts
// piper::context_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask, bool is_causal, float? scale,
//   int first, bool zigzag) -> (Tensor, Tensor)
// piper::context_attention_backward(Tensor grad_out, Tensor query, Tensor key, Tensor value, Tensor out,
//   Tensor logsumexp, Tensor? attn_mask, bool is_causal, float? scale, int first, bool zigzag)
//   -> (Tensor, Tensor, Tensor)
//   as aten::_scaled_dot_product_flash_attention_for_cpu, with the queries that local_slice takes, and all keys and
//   values, those of one device after those of another; a mask has its keys in their own order
// piper::heads_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask, bool is_causal, float? scale,
//   int heads) -> (Tensor, Tensor)
// piper::heads_attention_backward(Tensor grad_out, Tensor query, Tensor key, Tensor value, Tensor out,
//   Tensor logsumexp, Tensor? attn_mask, bool is_causal, float? scale, int heads) -> (Tensor, Tensor, Tensor)
//   the same of some heads, of so many that the queries of all devices have; all that has tokens has the two blocks of
//   one device after those of another, and a mask has them in their own order
// piper::repeat_heads(Tensor heads, int times) -> Tensor
// piper::add_repeated(Tensor heads, int times) -> Tensor
//   [samples, heads, tokens, width]: each head so many times in succession, and the sums of those

/// Whoever calls it is linked with them.
void provide_part_operators();
void provide_context_operators();

}  // namespace piper
