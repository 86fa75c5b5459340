#include "capture/sharding/localize.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_like.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/invariant.h"
#include "capture/program/draws.h"
#include "capture/record/shape_rules.h"
#include "capture/sharding/operator_rules.h"

namespace piper {
namespace {

Diagnostic cannot(const OperatorGraph& graph, const Call& call, std::string_view why) {
  return error(ErrorCode::E308, {}, fmt::format("{}: {}", graph[call.op].name, why))
      .help("use view, reshape and permute; they say what happens to each dimension");
}

/// Also of what never leaves the body, which no directive sees.
Checked check_falls_into(const TensorLabels& labels, const ShardCounts& shards) {
  for (const Factors& dim : labels.dims)
    for (const Factor& factor : dim) {
      if (factor.mark != Mark::Sharded && factor.mark != Mark::Head) continue;
      const int64_t count = shards[kind_of(factor.mark, shards)];
      for (const int64_t block : blocks_of(factor))
        if (block % count != 0)
          return error(ErrorCode::E317, {},
                       fmt::format("shard: {}: {} does not divide among {} devices", print(labels), describe(factor),
                                   count))
              .help(fmt::format("use a number of devices that divides {}", block));
    }
  return Ok{};
}

/// Places and sizes of parts along a dimension that is sharded: all of them lie between its blocks, or are one of each
/// group inside of what is sharded.
Checked rewrite_parts(const OperatorGraph& graph, const BodyLabels& labels, const ShardCounts& shards, Call& call,
                      const std::vector<int64_t>& local) {
  const std::vector<std::string>& names = graph[call.op].arguments;
  const Argument* along = find_argument(graph, call, "dim");
  if (!along || !std::holds_alternative<int64_t>(*along)) return Ok{};
  const int64_t written = std::get<int64_t>(*along);
  const size_t dim = static_cast<size_t>(written < 0 ? written + static_cast<int64_t>(local.size()) : written);
  TensorId result;
  each_tensor(call.results, [&](TensorId id) {
    if (!result.valid()) result = id;
  });
  if (dim >= local.size() || !has(labels.tensors[result.index()].dims[dim], Mark::Sharded)) return Ok{};
  const int64_t count = shards[kind_of(Mark::Sharded, shards)];
  const Argument* step = find_argument(graph, call, "step");
  const bool grouped = step && std::holds_alternative<int64_t>(*step) && std::get<int64_t>(*step) != 1;
  for (size_t i = 0; i < names.size(); ++i) {
    const bool place = (names[i] == "start" && !grouped) || names[i] == "end" || names[i] == "split_size";
    if (auto* number = std::get_if<int64_t>(&call.arguments[i]); number && place) {
      if (*number != std::numeric_limits<int64_t>::max()) *number /= count;
    } else if (auto* numbers = std::get_if<Ints>(&call.arguments[i]); numbers && names[i] == "split_sizes") {
      for (int64_t& size : *numbers) size /= count;
    }
  }
  return Ok{};
}

/// Of a convolution whose groups of channels are divided.
void rewrite_groups(const OperatorGraph& graph, const BodyLabels& labels, const ShardCounts& shards, Call& call) {
  const std::vector<std::string>& names = graph[call.op].arguments;
  if (!base_name(graph[call.op]).starts_with("convolution")) return;
  const TensorId weight = std::get<TensorId>(*find_argument(graph, call, "weight"));
  if (!has(labels.tensors[weight.index()].dims[0], Mark::Sharded)) return;
  const int64_t count = shards[kind_of(Mark::Sharded, shards)];
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == "groups") std::get<int64_t>(call.arguments[i]) /= count;
    if (auto* sizes = std::get_if<Ints>(&call.arguments[i]); sizes && names[i] == "bias_sizes")
      for (int64_t& size : *sizes) size /= count;
  }
}

/// Sizes that the model wrote as arguments of a call become those of its result.
Checked rewrite_sizes(const OperatorGraph& graph, const BodyLabels& labels, const ShardCounts& shards, Call& call) {
  const std::vector<std::string>& names = graph[call.op].arguments;
  TensorId result;
  each_tensor(call.results, [&](TensorId id) {
    if (!result.valid()) result = id;
  });
  if (!result.valid()) return Ok{};
  const std::vector<int64_t> sizes = local_sizes(labels.tensors[result.index()], {}),
                             local = local_sizes(labels.tensors[result.index()], shards);
  const bool has_size = find_argument(graph, call, "size") != nullptr;  // strides of convolutions are something else
  for (size_t i = 0; i < names.size(); ++i) {
    auto* numbers = std::get_if<Ints>(&call.arguments[i]);
    if (!numbers) continue;
    if (names[i] == "stride" && has_size && local != sizes) {
      const bool makes = base_name(graph[call.op]).ends_with("empty_strided");
      if (!makes || *numbers != strides_like(sizes, *numbers))
        return cannot(graph, call, "strides are written as numbers");
      *numbers = strides_like(local, *numbers);
    }
    if (names[i] != "size" && names[i] != "input_sizes") continue;
    invariant(numbers->size() == local.size(), "a size has as many numbers as its result has dimensions");
    for (size_t d = 0; d < local.size(); ++d)
      if ((*numbers)[d] != -1) (*numbers)[d] = local[d];
  }
  PIPER_CHECK(rewrite_parts(graph, labels, shards, call, local));
  if (base_name(graph[call.op]) == "slice") {  // all of a dimension that depends on experts, however long
    const int64_t written = std::get<int64_t>(*find_argument(graph, call, "dim"));
    const size_t dim = static_cast<size_t>(written < 0 ? written + static_cast<int64_t>(local.size()) : written);
    const Factors& factors = labels.tensors[result.index()].dims[dim];
    if (has(factors, Mark::Expert) || has(factors, Mark::Capacity) || has(factors, Mark::Routed))
      call.arguments[static_cast<size_t>(std::find(names.begin(), names.end(), "end") - names.begin())] =
          std::numeric_limits<int64_t>::max();
  }
  return Ok{};
}

/// Runs the body on meta tensors: every result must have the size that its labels predict; strides and bytes are taken.
class LayoutReplay {
 public:
  LayoutReplay(ChunkIr& body, const OperatorGraph& graph, const OperatorTable& table)
      : body_(body), graph_(graph), table_(table), tensors_(body.tensors.size()) {}

  Checked run() {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    for (GraphTensor& tensor : body_.tensors)
      if (tensor.kind != TensorKind::Result) tensor.layout.offset = 0;  // as they are made here
    for (const Call& call : body_.calls) {
      torch::jit::Stack stack = arguments(call);
      const c10::OperatorHandle& op = table_.operators[call.op.index()];
      if (const ShapeRule rule = shape_rule(graph_[call.op].name, table_.target))
        rule(op, stack);
      else
        op.callBoxed(&stack);
      for (size_t i = 0; i < call.results.size(); ++i) PIPER_CHECK(take(call, call.results[i], stack[i]));
    }
    return Ok{};
  }

 private:
  const at::Tensor& tensor(TensorId id) {
    at::Tensor& made = tensors_[id.index()];
    if (made.defined()) return made;
    const GraphTensor& known = body_[id];
    if (known.kind == TensorKind::Constant) made = table_.constants[static_cast<size_t>(known.constant)];
    if (!made.defined() || made.numel() == 0 || made.sizes() != c10::IntArrayRef(known.layout.sizes))
      made = empty_tensor(known.layout, c10::kMeta);
    return made;
  }
  torch::jit::Stack arguments(const Call& call) {
    torch::jit::Stack stack;
    for (const Argument& argument : call.arguments) {
      if (const auto* id = std::get_if<TensorId>(&argument)) {
        stack.emplace_back(id->valid() ? tensor(*id) : at::Tensor());
      } else if (const auto* list = std::get_if<TensorList>(&argument)) {
        if (list->optional) {
          c10::List<std::optional<at::Tensor>> items;
          for (const TensorId id : list->tensors)
            items.push_back(id.valid() ? std::optional(tensor(id)) : std::nullopt);
          stack.emplace_back(std::move(items));
        } else {
          c10::List<at::Tensor> items;
          for (const TensorId id : list->tensors) items.push_back(tensor(id));
          stack.emplace_back(std::move(items));
        }
      } else {
        stack.push_back(to_ivalue(table_, argument, c10::kMeta));
      }
    }
    return stack;
  }
  Checked take(const Call& call, const Argument& result, const c10::IValue& value) {
    if (const auto* id = std::get_if<TensorId>(&result)) return id->valid() ? take(call, *id, value.toTensor()) : Ok{};
    if (const auto* list = std::get_if<TensorList>(&result)) {
      const std::vector<at::Tensor> made = value.toTensorVector();
      for (size_t j = 0; j < list->tensors.size(); ++j)
        if (list->tensors[j].valid()) PIPER_CHECK(take(call, list->tensors[j], made[j]));
    }
    return Ok{};
  }
  Checked take(const Call& call, TensorId id, at::Tensor made) {
    GraphTensor& known = body_.tensors[id.index()];
    if (known.kind == TensorKind::Result && body_.storages[known.storage.index()].base == id && !is_whole(made))
      made = made.new_empty(made.sizes());  // as recorded: all of its storage
    if (made.sizes() != c10::IntArrayRef(known.layout.sizes))
      return cannot(graph_, call,
                    fmt::format("gives [{}] where [{}] was expected", fmt::join(made.sizes(), ", "),
                                fmt::join(known.layout.sizes, ", ")));
    if (known.kind == TensorKind::Result) {
      known.layout = layout_of(made);
      GraphStorage& storage = body_.storages[known.storage.index()];
      if (storage.base == id) storage.bytes = static_cast<int64_t>(made.storage().nbytes());
    }
    tensors_[id.index()] = std::move(made);
    return Ok{};
  }

  ChunkIr& body_;
  const OperatorGraph& graph_;
  const OperatorTable& table_;
  std::vector<at::Tensor> tensors_;
};

}  // namespace

std::vector<int64_t> strides_like(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
  std::vector<size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return strides[a] > strides[b]; });
  std::vector<int64_t> out(sizes.size(), 1);
  int64_t stride = 1;
  for (size_t i = order.size(); i-- > 0;) {
    out[order[i]] = stride;
    stride *= std::max<int64_t>(1, sizes[order[i]]);
  }
  return out;
}

std::vector<int64_t> dense_strides(const TensorLayout& layout) {
  return at::empty_like(empty_tensor(layout, c10::kMeta)).strides().vec();
}

void draw_random_by_parts(ChunkIr& body, const BodyLabels& labels, TokenOrder order) {
  for (Call& call : body.calls) {
    if (call.random < 0) continue;
    const bool fits = refine(call.drawn, labels.tensors[std::get<TensorId>(call.results[0]).index()]);
    call.drawn.zigzag = labels.context && order == TokenOrder::Zigzag;
    invariant(fits, "regions are refused whose random numbers cannot be drawn in parts");
  }
}

Checked infer_layouts(ChunkIr& body, const OperatorGraph& graph, const OperatorTable& table) {
  return LayoutReplay(body, graph, table).run();
}

Result<ChunkIr> localize(const ChunkIr& body, const OperatorGraph& graph, const OperatorTable& table,
                         const BodyLabels& labels, const ShardCounts& shards) {
  ChunkIr local = body;
  local.shards = shards;
  for (size_t t = 0; t < local.tensors.size(); ++t) {
    GraphTensor& tensor = local.tensors[t];
    PIPER_CHECK(check_falls_into(labels.tensors[t], shards));
    const std::vector<int64_t> sizes = local_sizes(labels.tensors[t], shards);
    if (sizes == tensor.layout.sizes) continue;
    tensor.layout.strides = strides_like(sizes, tensor.layout.strides);
    tensor.layout.sizes = sizes;
    tensor.layout.offset = 0;
    GraphStorage& storage = local.storages[tensor.storage.index()];
    if (storage.base == TensorId(t)) storage.bytes = element_count(tensor.layout) * tensor.layout.element_bytes;
  }
  for (Call& call : local.calls) {
    PIPER_CHECK(rewrite_sizes(graph, labels, shards, call));
    rewrite_groups(graph, labels, shards, call);
    for (Argument& argument : call.arguments)
      if (auto* start = std::get_if<PartStart>(&argument)) start->size /= shards[kind_of(Mark::Sharded, shards)];
  }
  PIPER_CHECK(infer_layouts(local, graph, table));
  return local;
}

}  // namespace piper
