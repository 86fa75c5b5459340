#include "checkpoint/compare.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "checkpoint/sample_folder.h"
#include "must.h"

namespace piper::checkpoint_tests {
namespace {

struct Values {
  StoredTensor tensor;
  std::string bytes;
};

template <class T>
std::string raw(std::initializer_list<T> values) {
  return {reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(T)};
}

/// A checkpoint of these tensors.
std::unique_ptr<FolderReader> saved(const std::string& parent, const std::vector<Values>& values) {
  std::vector<StoredTensor> tensors;
  for (const Values& value : values) tensors.push_back(value.tensor);
  const auto layout = std::make_shared<const FolderLayout>(must(make_layout(tensors, {})));
  const auto writer = must(FolderWriter::prepare(parent, 1, layout));
  for (const Values& value : values) {
    const TensorPlace& place = *layout->find(value.tensor.name);
    must(writer->write(place.file, place.entry.begin, std::as_bytes(std::span(value.bytes))));
  }
  must(writer->commit(state_at(1), must(writer->ranges())));
  return must(FolderReader::open(parent + "/step-00000001"));
}

std::string describe(const FolderDifference& difference) {
  std::string out;
  for (const std::string& name : difference.only_first) out += fmt::format("- {}\n", name);
  for (const std::string& name : difference.only_second) out += fmt::format("+ {}\n", name);
  for (const TypeDifference& type : difference.types)
    out += fmt::format("{}: {} / {}\n", type.first.name, print_type(type.first), print_type(type.second));
  for (const TensorDifference& value : difference.values)
    out += fmt::format("{}: {} elements{}\n", value.name, value.elements,
                       value.largest ? fmt::format(", at most {}", *value.largest) : "");
  return out + fmt::format("{} equal\n", difference.equal);
}

TEST(Compare, NamesTypesAndValues) {
  const TemporaryFolder a, b;
  using enum StoredDType;
  const std::vector<Values> same = {{{"same", F32, {2}}, raw<float>({1, 2})}, {{"empty", F32, {0}}, ""}};
  std::vector<Values> first = same, second = same;
  first.push_back({{"old", I8, {1}}, "x"});
  second.push_back({{"new", I8, {1}}, "x"});
  first.push_back({{"shape", I8, {1, 2}}, "xy"});
  second.push_back({{"shape", I8, {2}}, "xy"});
  first.push_back({{"type", I8, {2}}, "xy"});
  second.push_back({{"type", U8, {2}}, "xy"});
  first.push_back({{"f64", F64, {3}}, raw<double>({1, 2, 3})});
  second.push_back({{"f64", F64, {3}}, raw<double>({1, 2.5, 2.75})});
  first.push_back({{"f32", F32, {2}}, raw<float>({0.0f, -1})});
  second.push_back({{"f32", F32, {2}}, raw<float>({-0.0f, -1})});
  first.push_back({{"f16", F16, {4}}, raw<uint16_t>({0x3c00, 0xc000, 0x0001, 0x7c00})});   // 1, -2, 2^-24, inf
  second.push_back({{"f16", F16, {4}}, raw<uint16_t>({0x3c00, 0x4000, 0x0000, 0x7c00})});  // 1, 2, 0, inf
  first.push_back({{"bf16", BF16, {2}}, raw<uint16_t>({0x3f80, 0x4000})});                 // 1, 2
  second.push_back({{"bf16", BF16, {2}}, raw<uint16_t>({0x3f81, 0x4000})});                // 1 + 2^-7, 2
  first.push_back({{"nan", F32, {2}}, raw<float>({5, NAN})});
  second.push_back({{"nan", F32, {2}}, raw<float>({6, 0})});
  first.push_back({{"i32", I32, {2}}, raw<int32_t>({1, 2})});
  second.push_back({{"i32", I32, {2}}, raw<int32_t>({3, 2})});
  EXPECT_EQ(describe(must(diff(*saved(a.path(), first), *saved(b.path(), second)))), R"(- old
+ new
shape: I8 [1, 2] / I8 [2]
type: I8 [2] / U8 [2]
bf16: 1 elements, at most 0.0078125
f16: 2 elements, at most 4
f32: 1 elements, at most 0
f64: 2 elements, at most 0.5
i32: 1 elements
nan: 2 elements, at most nan
2 equal
)");
}

TEST(Compare, LongTensorsAndDamage) {
  const TemporaryFolder a, b;
  std::string bytes(static_cast<size_t>(block_bytes) * 2 + 10, 'x');
  const StoredTensor tensor{"long", StoredDType::U8, {static_cast<int64_t>(bytes.size())}};
  const auto first = saved(a.path(), {{tensor, bytes}});
  bytes.back() = 'y', bytes.front() = 'y';
  const auto second = saved(b.path(), {{tensor, bytes}});
  EXPECT_EQ(describe(must(diff(*first, *second))), "long: 2 elements\n0 equal\n");
  EXPECT_TRUE(must(diff(*first, *first)).none());
  flip(first->folder() + "/model-00001-of-00001.safetensors", block_bytes + 10, 0);
  const auto damaged = must(FolderReader::open(first->folder()));
  const auto result = diff(*damaged, *second);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::E902);
}

}  // namespace
}  // namespace piper::checkpoint_tests
