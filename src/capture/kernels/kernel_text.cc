#include "capture/kernels/kernel_text.h"

#include <ATen/Context.h>
#include <c10/core/ScalarType.h>
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/overloaded.h"

namespace piper {
namespace {

using Json = nlohmann::ordered_json;

std::string dtype_name(int64_t type) {
  return c10::getDtypeNames(static_cast<c10::ScalarType>(type)).first;
}

Json number(double value) {
  if (std::isfinite(value)) return value;
  return {{"number", fmt::format("{}", value)}};
}

/// An integer that stands for something else, as the operator's schema says.
Json integer(int64_t value, const c10::Argument& of) {
  c10::TypePtr type = of.real_type();
  if (const auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
  if (type->kind() == c10::TypeKind::ScalarTypeType) return {{"dtype", dtype_name(value)}};
  if (type->kind() == c10::TypeKind::LayoutType) return {{"layout", value}};
  if (type->kind() == c10::TypeKind::MemoryFormatType) return {{"memory_format", value}};
  return value;
}

/// None: it cannot be written.
std::optional<Json> opaque(const c10::IValue& value) {
  if (value.isString()) return Json{{"text", value.toStringRef()}};
  if (value.isDevice()) return Json{{"device", value.toDevice().str()}};
  if (!value.isDoubleList()) return std::nullopt;
  Json list = Json::array();
  for (const double item : value.toDoubleVector()) list.push_back(number(item));
  return list;
}

/// `tensor(id)`: its number.
template <class F>
std::optional<Json> text_of(const Argument& argument, const c10::Argument& of, const OperatorTable& table, F tensor) {
  return std::visit(overloaded{
                        [](None) -> std::optional<Json> { return Json(nullptr); },
                        [](bool value) -> std::optional<Json> { return Json(value); },
                        [&](int64_t value) -> std::optional<Json> { return integer(value, of); },
                        [](double value) -> std::optional<Json> { return number(value); },
                        [](const Ints& values) -> std::optional<Json> { return Json(values); },
                        [](const Bools& values) -> std::optional<Json> { return Json(values); },
                        [&](Opaque value) { return opaque(table.opaque[static_cast<size_t>(value.index)]); },
                        [](TargetDevice) -> std::optional<Json> {
                          return Json{{"device", "target"}};
                        },
                        [](PartStart) -> std::optional<Json> { return std::nullopt; },
                        [&](TensorId id) -> std::optional<Json> {
                          if (!id.valid()) return Json(nullptr);
                          return Json{{"tensor", tensor(id)}};
                        },
                        [&](const TensorList& list) -> std::optional<Json> {
                          Json items = Json::array();
                          for (const TensorId id : list.tensors)
                            items.push_back(id.valid() ? Json(tensor(id)) : Json());
                          return Json{{"tensors", std::move(items)}};
                        },
                    },
                    argument);
}

/// Gives tensors their numbers.
class Numbering {
 public:
  explicit Numbering(const ChunkIr& body) : numbers_(body.tensors.size(), -1) {}
  int operator[](TensorId id) const { return numbers_[id.index()]; }
  int add(TensorId id) {
    if (numbers_[id.index()] < 0) numbers_[id.index()] = next_++;
    return numbers_[id.index()];
  }

 private:
  std::vector<int> numbers_;
  int next_ = 0;
};

/// A number that the model wrote down.
Json constant_call(const at::Tensor& constant, int result) {
  const Json value = constant.is_floating_point()          ? number(constant.item<double>())
                     : constant.scalar_type() == at::kBool ? Json(constant.item<bool>())
                                                           : Json(constant.item<int64_t>());
  const Json dtype = {{"dtype", dtype_name(static_cast<int64_t>(constant.scalar_type()))}};
  return {{"op", "aten::full"},
          {"arguments", Json::array({Json::array(), value, dtype, nullptr, Json{{"device", "target"}}, nullptr})},
          {"results", Json::array({result})}};
}

}  // namespace

bool has_kernel_text(const Call& call, const OperatorTable& table) {
  const std::vector<c10::Argument>& schema = table.operators[call.op.index()].schema().arguments();
  for (size_t i = 0; i < call.arguments.size(); ++i)
    if (!text_of(call.arguments[i], schema[i], table, [](TensorId) { return 0; })) return false;
  return true;
}

std::string kernel_text(const ChunkIr& body, const KernelRegion& region, const OperatorTable& table,
                        const KernelTarget& target) {
  Numbering numbers(body);
  Json inputs = Json::array(), calls = Json::array(), outputs = Json::array();
  for (const TensorId id : region.inputs) {
    const TensorLayout& layout = body[id].layout;
    numbers.add(id);
    const bool shares = body[id].kind == TensorKind::Parameter || body[id].kind == TensorKind::Buffer;
    const int offset = shares && target.device.is_cuda() ? 1 : 0;
    inputs.push_back(Json::array({dtype_name(layout.element), layout.sizes, layout.strides, offset}));
  }
  for (const TensorId id : region.numbers)
    calls.push_back(constant_call(table.constants[static_cast<size_t>(body[id].constant)], numbers.add(id)));
  for (const size_t i : region.calls) {
    const Call& call = body.calls[i];
    const c10::OperatorHandle& op = table.operators[call.op.index()];
    Json arguments = Json::array(), results = Json::array();
    for (size_t a = 0; a < call.arguments.size(); ++a)
      arguments.push_back(
          *text_of(call.arguments[a], op.schema().arguments()[a], table, [&](TensorId id) { return numbers[id]; }));
    const auto made = [&](TensorId id) { return id.valid() ? Json(numbers.add(id)) : Json(); };
    for (const Argument& result : call.results) {
      if (const auto* list = std::get_if<TensorList>(&result)) {
        Json items = Json::array();
        for (const TensorId id : list->tensors) items.push_back(made(id));
        results.push_back(std::move(items));
      } else {
        results.push_back(std::holds_alternative<TensorId>(result) ? made(std::get<TensorId>(result)) : Json());
      }
    }
    calls.push_back({{"op", full_name(op)}, {"arguments", std::move(arguments)}, {"results", std::move(results)}});
  }
  for (const TensorId id : region.outputs) outputs.push_back(numbers[id]);
  return Json{{"device", c10::DeviceTypeName(target.device.type(), true)},
              {"gpu", target.device.is_cuda() ? target.gpu : ""},
              {"threads", target.threads},
              {"deterministic", at::globalContext().deterministicAlgorithms()},
              {"inputs", std::move(inputs)},
              {"calls", std::move(calls)},
              {"outputs", std::move(outputs)}}
      .dump();
}

}  // namespace piper
