#include "capture/record/gradient_hooks.h"

#include <fmt/format.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <unordered_set>

namespace piper {
namespace {

using torch::autograd::Node;

/// One that is not recorded, in words; empty: there is none.
std::string hook_on(Node& node, bool tensor_hooks_are_recorded) {
  if (!node.retains_grad_hooks().empty()) return fmt::format("the result of {} is told to retain_grad()", node.name());
  if (!node.pre_hooks().empty() || !node.post_hooks().empty())
    return fmt::format("node {} of the autograd graph has a hook", node.name());
  if (!node.tensor_pre_hooks().empty() && !tensor_hooks_are_recorded)
    return fmt::format("the result of {} has a hook", node.name());
  return {};
}

}  // namespace

Checked check_hooks(const at::Tensor& loss, const MetaModel& model) {
  std::vector<Node*> open = {loss.grad_fn().get()};
  std::unordered_set<Node*> seen(open.begin(), open.end());
  while (!open.empty()) {
    Node* const node = open.back();
    open.pop_back();
    if (const std::string hook = hook_on(*node, !model.device.is_meta()); !hook.empty())
      return error(ErrorCode::E610, {},
                   hook + "; it would not run in training, where a step runs recorded operators only")
          .help(model.device.is_meta() ? "take it out while the model is captured"
                                       : "take it out while the model is captured; to change a gradient: "
                                         "tensor.register_hook(f), where f returns the new one");
    for (const torch::autograd::Edge& edge : node->next_edges())
      if (edge.function && seen.insert(edge.function.get()).second) open.push_back(edge.function.get());
  }
  return Ok{};
}

bool has_accumulation_hook(const at::Tensor& leaf) {
  if (!leaf.requires_grad()) return false;
  const std::shared_ptr<Node> node = torch::autograd::impl::try_get_grad_accumulator(leaf);
  return node && (!node->pre_hooks().empty() || !node->post_hooks().empty());
}

}  // namespace piper
