#include "capture/float8/linear_products.h"

#include <algorithm>
#include <map>
#include <string_view>

namespace piper {
namespace {

bool is_product(const OperatorGraph& graph, const Call& call) {
  const std::string& name = graph[call.op].name;
  if (name == "aten::mm") return true;
  const auto is_one = [&](std::string_view argument) {
    const Argument* value = find_argument(graph, call, argument);
    return *value == Argument(int64_t{1}) || *value == Argument(1.0);
  };
  return name == "aten::addmm" && is_one("beta") && is_one("alpha");
}

/// By what it gives somebody chooses, or a loss is computed.
bool chooses(std::string_view name) {
  constexpr std::string_view names[] = {"aten::_softmax",
                                        "aten::_log_softmax",
                                        "aten::logsumexp",
                                        "aten::topk",
                                        "aten::sort",
                                        "aten::amax",
                                        "aten::argmax",
                                        "aten::max.dim",
                                        "aten::max",
                                        "aten::sort.stable",
                                        "aten::nll_loss_forward",
                                        "aten::mse_loss",
                                        "aten::binary_cross_entropy_with_logits"};
  return std::ranges::find(names, name) != std::end(names);
}

bool goes_on(const Operator& op) {
  return op.pointwise || op.name == "aten::_to_copy" || op.name == "aten::clone";
}

/// Follows what comes out of products with parameters.
class Following {
 public:
  explicit Following(const OperatorGraph& graph) : graph_(graph) {}

  std::set<StorageId> run() {
    for (const Call& call : graph_.calls)
      if (!call.backward && !is_view(graph_, call)) look_at(call);
    std::set<StorageId> out;
    for (const StorageId matrix : multiplied_)
      if (!other_.contains(matrix)) out.insert(matrix);
    return out;
  }

 private:
  void look_at(const Call& call) {
    const bool product = is_product(graph_, call);
    const size_t first = product ? first_operand(graph_, call) : call.arguments.size();
    std::set<StorageId> from;  // matrices
    for (size_t a = 0; a < call.arguments.size(); ++a)
      each_tensor(call.arguments[a], [&](TensorId id) {
        const StorageId storage = graph_[id].storage;
        const GraphTensor& whole = graph_[graph_[storage].base];
        if (whole.kind == TensorKind::Parameter) {
          const bool multiplies = a >= first && whole.layout.sizes.size() == 2;
          (multiplies ? multiplied_ : other_).insert(storage);
          if (multiplies) from.insert(storage);
        }
        if (product) return;
        const auto made = made_from_.find(storage);
        if (made == made_from_.end()) return;
        if (chooses(graph_[call.op].name)) other_.insert(made->second.begin(), made->second.end());
        if (goes_on(graph_[call.op])) from.insert(made->second.begin(), made->second.end());
      });
    if (from.empty()) return;
    each_tensor(call.results, [&](TensorId id) { made_from_[graph_[id].storage].insert(from.begin(), from.end()); });
  }

  const OperatorGraph& graph_;
  std::set<StorageId> multiplied_, other_;              // parameters
  std::map<StorageId, std::set<StorageId>> made_from_;  // element by element, of products with these
};

}  // namespace

size_t first_operand(const OperatorGraph& graph, const Call& call) {
  return graph[call.op].name == "aten::addmm" ? 1 : 0;
}

std::set<StorageId> linear_matrices(const OperatorGraph& graph) {
  return Following(graph).run();
}

std::vector<char> linear_products(const OperatorGraph& graph, const ChunkIr& body,
                                  const std::set<StorageId>& matrices) {
  std::set<StorageId> inside, sums, summands;  // matrices, and their gradients
  const auto collect = [&](const std::vector<ExternalUse>& uses, std::set<StorageId>& out) {
    for (const ExternalUse& use : uses)
      if (matrices.contains(graph[use.outside].storage)) out.insert(body[use.inside].storage);
  };
  collect(body.parameters, inside);
  collect(body.gradients, sums);
  for (const Call& call : body.calls)
    if (graph[call.op].name == "aten::add_.Tensor" &&
        sums.contains(body[std::get<TensorId>(call.arguments[0])].storage))
      each_tensor(call.arguments[1], [&](TensorId id) { summands.insert(body[id].storage); });
  std::vector<char> out(body.calls.size(), 0);
  for (size_t i = 0; i < body.calls.size(); ++i) {
    const Call& call = body.calls[i];
    if (!is_product(graph, call)) continue;
    const size_t first = first_operand(graph, call);
    bool linear = false;
    for (const size_t operand : {first, first + 1})
      linear |= inside.contains(body[std::get<TensorId>(call.arguments[operand])].storage);
    each_tensor(call.results, [&](TensorId id) { linear |= summands.contains(body[id].storage); });
    out[i] = linear;
  }
  return out;
}

}  // namespace piper
