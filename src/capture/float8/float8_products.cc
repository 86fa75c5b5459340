#include "capture/float8/float8_products.h"

#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>
#include <fmt/format.h>

#include <map>
#include <tuple>

#include "capture/float8/linear_products.h"
#include "capture/sharding/localize.h"
#include "model/float8.h"

namespace piper {
namespace {

using Sizes = std::vector<int64_t>;

const Sizes row_major = {2, 1};  // in the order of strides

constexpr c10::ScalarType float8 = c10::ScalarType::Float8_e4m3fn;
constexpr double greatest = 448;    // of e4m3
constexpr double smallest = 1e-12;  // what a row of zeros counts as

c10::ScalarType type_of(const GraphTensor& tensor) {
  return static_cast<c10::ScalarType>(tensor.layout.element);
}

/// Numbers of float8, and by what each row or column of them is to be multiplied.
struct Quantised {
  TensorId numbers, scale;
};

class Float8Rewriter {
 public:
  Float8Rewriter(ChunkIr body, const OperatorGraph& graph, c10::Device device)
      : body_(std::move(body)), old_(std::move(body_.calls)), graph_(graph), device_(device) {}

  Result<ChunkIr> run(const std::vector<char>& linear, const std::string& chunk, Pass pass) && {
    for (size_t i = 0; i < old_.size(); ++i) {
      from_ = &old_[i];
      if (linear[i]) {
        PIPER_CHECK(check_fits_float8(product(), chunk, pass, {}));
        multiply();
      } else {
        body_.calls.push_back(*from_);
      }
      for (const StorageId storage : from_->writes)
        std::erase_if(quantised_, [&](const auto& known) { return std::get<StorageId>(known.first) == storage; });
    }
    find_producers(body_.tensors, body_.calls);
    return std::move(body_);
  }

 private:
  // ---- the product

  TensorId operand(size_t which) const {
    return std::get<TensorId>(from_->arguments[first_operand(graph_, *from_) + which]);
  }
  const Sizes& sizes(TensorId id) const { return body_[id].layout.sizes; }
  MatrixProduct product() const {
    return {1, sizes(operand(0))[0], sizes(operand(1))[1], sizes(operand(0))[1], ProductKind::Float8};
  }
  bool has_bias() const { return first_operand(graph_, *from_) == 1; }

  void multiply() {
    const TensorId result = std::get<TensorId>(from_->results[0]);
    const Argument bias = has_bias() ? from_->arguments[0] : None{};
    const bool plain_bias = !has_bias() || sizes(std::get<TensorId>(bias)).size() == 1;
    const Quantised left = quantise(operand(0), 1), right = quantise(operand(1), 0);
    if (device_.is_cuda() && type_of(body_[result]) == c10::ScalarType::BFloat16 && plain_bias) {
      emit("aten::_scaled_mm",
           {by_rows(left.numbers), by_columns(right.numbers), left.scale, right.scale, bias, None{},
            int64_t{body_[result].layout.element}, true},
           result);
      return;
    }
    Call emulated = *from_;
    const size_t first = first_operand(graph_, *from_);
    emulated.arguments[first] = dequantise(left, operand(0));
    emulated.arguments[first + 1] = dequantise(right, operand(1));
    body_.calls.push_back(std::move(emulated));
  }

  // ---- its operands

  /// With a scale for each place along the other dimension. What several products multiply with is quantised once.
  Quantised quantise(TensorId id, size_t over) {
    const TensorLayout layout = body_[id].layout;
    const auto [known, fresh] =
        quantised_.try_emplace(std::tuple(body_[id].storage, layout.sizes, layout.strides, layout.offset, over));
    if (!fresh) return known->second;
    const c10::ScalarType type = type_of(body_[id]), wide = c10::promoteTypes(type, c10::ScalarType::Float);
    Sizes reduced = layout.sizes;
    reduced[over] = 1;
    const auto scalar = [&](std::string_view op, std::vector<Argument> arguments) {
      return emit(op, std::move(arguments), make(reduced, row_major, c10::ScalarType::Float));
    };
    const TensorId positive = emit("aten::abs", {id}, make(layout.sizes, layout.strides, type));
    TensorId most =
        emit("aten::amax", {positive, Ints{static_cast<int64_t>(over)}, true}, make(reduced, row_major, type));
    if (type != c10::ScalarType::Float) most = convert(most, c10::ScalarType::Float);
    const TensorId some = scalar("aten::clamp_min", {most, smallest});
    const TensorId exponent =
        scalar("aten::ceil", {scalar("aten::log2", {scalar("aten::div.Scalar", {some, greatest})})});
    const TensorId inverse = scalar("aten::exp2", {scalar("aten::neg", {exponent})});
    const TensorId scaled = emit("aten::mul.Tensor", {id, inverse}, make(layout.sizes, layout.strides, wide));
    const TensorId inside = emit("aten::clamp", {scaled, -greatest, greatest}, make_like(scaled, wide));
    return known->second = {convert(inside, float8), scalar("aten::exp2", {exponent})};
  }
  /// As the product would have seen it; exact.
  TensorId dequantise(const Quantised& quantised, TensorId like) {
    const auto [known, fresh] = dequantised_.try_emplace(quantised.numbers);
    if (!fresh) return known->second;
    const TensorId numbers = convert(quantised.numbers, c10::ScalarType::Float);
    const TensorId out =
        emit("aten::mul.Tensor", {numbers, quantised.scale}, make_like(numbers, c10::ScalarType::Float));
    const c10::ScalarType type = type_of(body_[like]);
    return known->second = type == c10::ScalarType::Float ? out : convert(out, type);
  }
  /// One row behind the other.
  TensorId by_rows(TensorId id) {
    if (is_contiguous(body_[id].layout)) return id;
    const auto [known, fresh] = by_rows_.try_emplace(id);
    if (!fresh) return known->second;
    return known->second = emit("aten::clone", {id, static_cast<int64_t>(c10::MemoryFormat::Contiguous)},
                                make(sizes(id), row_major, float8));
  }
  TensorId by_columns(TensorId id) { return transposed(by_rows(transposed(id))); }
  TensorId transposed(TensorId id) {
    const auto [known, fresh] = transposed_.try_emplace(id);
    if (!fresh) return known->second;
    GraphTensor view = body_[id];
    std::swap(view.layout.sizes[0], view.layout.sizes[1]);
    std::swap(view.layout.strides[0], view.layout.strides[1]);
    body_.tensors.push_back(std::move(view));
    return known->second = emit("aten::t", {id}, TensorId(body_.tensors.size() - 1));
  }

  // ---- new calls

  /// With strides in the order of these.
  TensorId make(const Sizes& sizes, const Sizes& order, c10::ScalarType type) {
    const TensorId id(body_.tensors.size());
    GraphTensor made;
    made.storage = StorageId(body_.storages.size());
    made.layout = {static_cast<int8_t>(type), static_cast<int64_t>(c10::elementSize(type)), sizes,
                   strides_like(sizes, order), 0};
    body_.storages.push_back({element_count(made.layout) * made.layout.element_bytes, id});
    body_.tensors.push_back(std::move(made));
    return id;
  }
  TensorId make_like(TensorId id, c10::ScalarType type) {
    const TensorLayout layout = body_[id].layout;
    return make(layout.sizes, layout.strides, type);
  }
  TensorId convert(TensorId id, c10::ScalarType type) {
    return emit("aten::_to_copy", {id, static_cast<int64_t>(type), None{}, None{}, None{}, false, None{}},
                make_like(id, type));
  }
  TensorId emit(std::string_view op, std::vector<Argument> arguments, TensorId result) {
    Call call;
    call.op = operator_named(graph_, op);
    call.arguments = std::move(arguments);
    call.results = {result};
    call.segment = from_->segment;
    call.backward = from_->backward;
    call.forward = from_->forward;
    body_.calls.push_back(std::move(call));
    return result;
  }

  ChunkIr body_;
  const std::vector<Call> old_;
  const OperatorGraph& graph_;
  const c10::Device device_;
  const Call* from_ = nullptr;
  std::map<std::tuple<StorageId, Sizes, Sizes, int64_t, size_t>, Quantised> quantised_;
  std::map<TensorId, TensorId> dequantised_, by_rows_, transposed_;
};

}  // namespace

Result<ChunkIr> multiply_in_float8(ChunkIr body, const OperatorGraph& graph, const std::set<StorageId>& matrices,
                                   const std::string& chunk, Pass pass, c10::Device device) {
  const std::vector<char> linear = linear_products(graph, body, matrices);
  return Float8Rewriter(std::move(body), graph, device).run(linear, chunk, pass);
}

Checked check_multiplies_float8(const ChunkIr& body, const OperatorGraph& graph, const OperatorTable& table,
                                const std::string& chunk, TriedCalls& tried) {
  for (const Call& call : body.calls) {
    if (graph[call.op].name != "aten::_scaled_mm") continue;
    if (const TriedCall& seen = tried.find(body, call, table); !seen.problem.empty())
      return error(ErrorCode::E320, {},
                   fmt::format("precision: {}: this GPU does not multiply float8: {}", chunk, seen.problem))
          .help("it needs compute capability 8.9 or higher; leave the directive out on others");
  }
  return Ok{};
}

}  // namespace piper
