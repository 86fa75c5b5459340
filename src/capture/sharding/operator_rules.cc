#include "capture/sharding/operator_rules.h"

#include <algorithm>
#include <unordered_map>

namespace piper {
namespace {

constexpr bool anywhere = true, adds_up = true;

constexpr OperatorRule rows[] = {
    {"view", DimRule::View, TermRule::Linear, anywhere},
    {"_unsafe_view", DimRule::View, TermRule::Linear, anywhere},
    {"unsqueeze", DimRule::View, TermRule::Linear, anywhere},
    {"squeeze", DimRule::View, TermRule::Linear, anywhere},
    {"reshape", DimRule::View},
    {"_reshape_alias", DimRule::View},
    {"flatten", DimRule::View},
    {"zeros", DimRule::Factory},
    {"ones", DimRule::Factory},
    {"full", DimRule::Factory},
    {"empty", DimRule::Factory},
    {"scalar_tensor", DimRule::Factory},
    {"new_zeros", DimRule::Factory},
    {"new_ones", DimRule::Factory},
    {"new_full", DimRule::Factory},
    {"new_empty", DimRule::Factory},
    {"empty_strided", DimRule::Factory},
    {"new_empty_strided", DimRule::Factory},
    {"rand", DimRule::Factory},
    {"randn", DimRule::Factory},
    {"randint", DimRule::Factory},
    {"local_slice", DimRule::Factory},
    {"local_slice_backward", DimRule::Factory},
    {"expand", DimRule::Expand, TermRule::Linear},
    {"t", DimRule::Permute, TermRule::Linear, anywhere},
    {"transpose", DimRule::Permute, TermRule::Linear, anywhere},
    {"permute", DimRule::Permute, TermRule::Linear, anywhere},
    {"repeat", DimRule::Repeat},
    {"constant_pad_nd", DimRule::Pad},
    {"flip", DimRule::Flip},
    {"mm", DimRule::Product, TermRule::Linear},
    {"bmm", DimRule::Product, TermRule::Linear},
    {"addmm", DimRule::Product},
    {"baddbmm", DimRule::Product},
    {"convolution", DimRule::Convolution},
    {"convolution_backward", DimRule::Convolution},
    {"sum", DimRule::Reduction, TermRule::Linear, anywhere, adds_up},
    {"amax", DimRule::Reduction, TermRule::Mixed, false, adds_up},
    {"mean", DimRule::Reduction},
    {"amin", DimRule::Reduction},
    {"logsumexp", DimRule::Reduction},
    {"max", DimRule::Extreme},
    {"min", DimRule::Extreme},
    {"_softmax", DimRule::AlongOne},
    {"_log_softmax", DimRule::AlongOne},
    {"_softmax_backward_data", DimRule::AlongOne},
    {"_log_softmax_backward_data", DimRule::AlongOne},
    {"_safe_softmax", DimRule::AlongOne},
    {"cumsum", DimRule::AlongOne},
    {"sort", DimRule::AlongOne},
    {"topk", DimRule::AlongOne},
    {"native_layer_norm", DimRule::Norm, TermRule::Mixed, false, adds_up},
    {"_fused_rms_norm", DimRule::Norm, TermRule::Mixed, false, adds_up},
    {"native_layer_norm_backward", DimRule::Norm, TermRule::LinearInFirst, false, adds_up},
    {"_fused_rms_norm_backward", DimRule::Norm, TermRule::LinearInFirst, false, adds_up},
    {"_scaled_dot_product_flash_attention_for_cpu", DimRule::Attention, TermRule::Mixed, false, adds_up},
    {"_scaled_dot_product_flash_attention_for_cpu_backward", DimRule::Attention, TermRule::Mixed, false, adds_up},
    {"_scaled_dot_product_flash_attention", DimRule::Attention, TermRule::Mixed, false, adds_up},
    {"_scaled_dot_product_flash_attention_backward", DimRule::Attention, TermRule::Mixed, false, adds_up},
    {"_scaled_dot_product_cudnn_attention", DimRule::Attention, TermRule::Mixed, false, adds_up},
    {"_scaled_dot_product_cudnn_attention_backward", DimRule::Attention, TermRule::Mixed, false, adds_up},
    {"causal_attention", DimRule::Attention, TermRule::Mixed, false, adds_up},
    {"causal_attention_backward", DimRule::Attention, TermRule::Mixed, false, adds_up},
    {"embedding", DimRule::Embedding},
    {"embedding_dense_backward", DimRule::Embedding, TermRule::Mixed, false, adds_up},
    {"nll_loss_forward", DimRule::Loss},
    {"nll_loss_backward", DimRule::Loss},
    {"take_rows", DimRule::TakeRows, TermRule::Mixed, false, adds_up},
    {"take_rows_backward", DimRule::TakeRows},
    {"take_columns", DimRule::TakeColumns, TermRule::Mixed, false, adds_up},
    {"take_columns_backward", DimRule::TakeColumns},
    {"select", DimRule::Part, TermRule::Linear},
    {"slice", DimRule::Part, TermRule::Linear},
    {"split", DimRule::Part},
    {"split_with_sizes", DimRule::Part},
    {"unbind", DimRule::Part},
    {"select_backward", DimRule::PartBackward, TermRule::Linear},
    {"slice_backward", DimRule::PartBackward, TermRule::Linear},
    {"cat", DimRule::Join, TermRule::Sum},
    {"stack", DimRule::Join, TermRule::Sum},
    {"gather", DimRule::Gather},
    {"scatter", DimRule::Gather},
    {"scatter_", DimRule::Gather},
    {"scatter_add", DimRule::Gather},
    {"scatter_add_", DimRule::Gather},
    {"index_select", DimRule::Selection},
    {"index", DimRule::Selection},
    {"index_add", DimRule::Insertion},
    {"index_add_", DimRule::Insertion},
    {"index_copy", DimRule::Insertion},
    {"index_copy_", DimRule::Insertion},
    {"index_put", DimRule::Insertion},
    {"index_put_", DimRule::Insertion},
    {"_index_put_impl_", DimRule::Insertion},
    {"alias", DimRule::Pointwise, TermRule::Linear, anywhere},
    {"clone", DimRule::Pointwise, TermRule::Linear, anywhere},
    {"_to_copy", DimRule::Pointwise, TermRule::Linear, anywhere},
    {"detach", DimRule::Pointwise, TermRule::Linear, anywhere},
    {"add", DimRule::Pointwise, TermRule::Sum, anywhere},
    {"add_", DimRule::Pointwise, TermRule::Sum, anywhere},
    {"sub", DimRule::Pointwise, TermRule::Sum},
    {"mul", DimRule::Pointwise, TermRule::Linear},
    {"div", DimRule::Pointwise, TermRule::Linear},
    {"neg", DimRule::Pointwise, TermRule::Linear},
    {"elu_backward", DimRule::Pointwise, TermRule::LinearInFirst},
    {"gelu_backward", DimRule::Pointwise, TermRule::LinearInFirst},
    {"hardswish_backward", DimRule::Pointwise, TermRule::LinearInFirst},
    {"leaky_relu_backward", DimRule::Pointwise, TermRule::LinearInFirst},
    {"sigmoid_backward", DimRule::Pointwise, TermRule::LinearInFirst},
    {"silu_backward", DimRule::Pointwise, TermRule::LinearInFirst},
    {"softplus_backward", DimRule::Pointwise, TermRule::LinearInFirst},
    {"tanh_backward", DimRule::Pointwise, TermRule::LinearInFirst},
    {"threshold_backward", DimRule::Pointwise, TermRule::LinearInFirst},
    {"bernoulli", DimRule::Pointwise},
    {"bernoulli_", DimRule::Pointwise},
    {"copy_", DimRule::Pointwise},
    {"empty_like", DimRule::Pointwise},
    {"exponential_", DimRule::Pointwise},
    {"fill_", DimRule::Pointwise},
    {"full_like", DimRule::Pointwise},
    {"lift_fresh", DimRule::Pointwise},
    {"masked_fill", DimRule::Pointwise},
    {"masked_fill_", DimRule::Pointwise},
    {"native_dropout", DimRule::Pointwise},
    {"native_dropout_backward", DimRule::Pointwise},
    {"normal_", DimRule::Pointwise},
    {"ones_like", DimRule::Pointwise},
    {"pow", DimRule::Pointwise},
    {"rand_like", DimRule::Pointwise},
    {"randint_like", DimRule::Pointwise},
    {"randn_like", DimRule::Pointwise},
    {"to", DimRule::Pointwise},
    {"uniform_", DimRule::Pointwise},
    {"where", DimRule::Pointwise},
    {"zero_", DimRule::Pointwise},
    {"zeros_like", DimRule::Pointwise},
};

}  // namespace

OperatorRule rule_of(const Operator& op) {
  static const auto by_name = [] {
    std::unordered_map<std::string_view, const OperatorRule*> out;
    for (const OperatorRule& row : rows) out.emplace(row.name, &row);
    return out;
  }();
  if (const auto found = by_name.find(base_name(op)); found != by_name.end()) return *found->second;
  OperatorRule out;
  if (op.pointwise) out.dims = DimRule::Pointwise;
  return out;
}

std::string base_name(const Operator& op) {
  const std::string name = op.name.substr(op.name.find("::") + 2);
  return name.substr(0, name.find('.'));
}

}  // namespace piper
