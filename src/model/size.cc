#include "model/size.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/saturate.h"

namespace piper {
namespace {

struct DTypeRow {
  DType dtype;
  std::string_view name;
  int64_t bytes;
};
constexpr DTypeRow dtypes[] = {{DType::Float64, "float64", 8},   {DType::Float32, "float32", 4},
                               {DType::BFloat16, "bfloat16", 2}, {DType::Float16, "float16", 2},
                               {DType::Int64, "int64", 8},       {DType::Int32, "int32", 4},
                               {DType::Int8, "int8", 1},         {DType::Bool, "bool", 1}};

}  // namespace

int64_t bytes_of(DType dtype) {
  return dtypes[static_cast<int>(dtype)].bytes;
}
std::string_view name(DType dtype) {
  return dtypes[static_cast<int>(dtype)].name;
}

std::optional<DType> dtype_named(std::string_view text) {
  for (const DTypeRow& row : dtypes)
    if (row.name == text) return row.dtype;
  return std::nullopt;
}

std::vector<std::string> dtype_names() {
  std::vector<std::string> names;
  for (const DTypeRow& row : dtypes) names.emplace_back(row.name);
  return names;
}

int64_t Dim::extent(int64_t samples) const {
  return per_sample ? ceil_divide(saturating_multiply(size, samples), divisor) : size;
}

bool Dim::falls_into(int64_t parts) const {
  if (blocks.empty()) return size % parts == 0;
  return std::all_of(blocks.begin(), blocks.end(), [&](int64_t block) { return block % parts == 0; });
}

int64_t elements(const Shape& shape, int64_t samples) {
  int64_t product = 1;
  for (const Dim& dim : shape) product = saturating_multiply(product, dim.extent(samples));
  return product;
}

const Dim* labelled(const Shape& shape, std::string_view label) {
  for (const Dim& dim : shape)
    if (dim.label == label) return &dim;
  return nullptr;
}

int64_t Amount::at(int64_t samples) const {
  return saturating_add(fixed, saturating_multiply(per_sample, samples));
}

std::string print(const Shape& shape) {
  std::string out = "[";
  for (const Dim& dim : shape) {
    if (out.size() > 1) out += ", ";
    if (!dim.label.empty()) out += dim.label + "=";
    if (!dim.per_sample) {
      out += dim.blocks.empty() ? fmt::format("{}", dim.size) : fmt::format("{}", fmt::join(dim.blocks, "+"));
      continue;
    }
    out += "b";
    if (dim.size != 1) out += fmt::format("*{}", dim.size);
    if (dim.divisor != 1) out += fmt::format("/{}", dim.divisor);
  }
  return out + "]";
}

std::string print(const Amount& amount) {
  if (amount.per_sample == 0) return fmt::format("{}", amount.fixed);
  const std::string scaled = fmt::format("{}*b", amount.per_sample);
  return amount.fixed == 0 ? scaled : fmt::format("{} + {}", amount.fixed, scaled);
}

}  // namespace piper
