#include "checkpoint/layout.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "must.h"

namespace piper::checkpoint_tests {
namespace {

/// A line per file and tensor; places count from the first tensor.
std::string describe(const FolderLayout& layout) {
  std::string out;
  for (const StoredFile& file : layout.files) {
    out += fmt::format("{}\n", file.name);
    for (const TensorEntry& entry : file.tensors)
      out += fmt::format("  {} {} at {}\n", entry.tensor.name, print_type(entry.tensor),
                         entry.begin - static_cast<int64_t>(file.head.size()));
  }
  return out;
}

TEST(Layout, FilesAreFilledInTheOrderOfTensors) {
  const FolderLayout layout = must(make_layout({{"a", StoredDType::F32, {2, 2}},
                                                {"b", StoredDType::BF16, {2}},
                                                {"huge", StoredDType::F32, {100}},
                                                {"c", StoredDType::F32, {1}},
                                                {"d", StoredDType::F32, {4}}},
                                               {{"a.exp_avg", StoredDType::F32, {2, 2}}}, 20));
  EXPECT_EQ(describe(layout), R"(model-00001-of-00003.safetensors
  a F32 [2, 2] at 0
  b BF16 [2] at 16
model-00002-of-00003.safetensors
  huge F32 [100] at 0
model-00003-of-00003.safetensors
  c F32 [1] at 0
  d F32 [4] at 4
model.safetensors.index.json
optimizer-00001-of-00001.safetensors
  a.exp_avg F32 [2, 2] at 0
)");
  EXPECT_EQ(layout.files[3].head, R"({
  "metadata": {
    "total_size": 440
  },
  "weight_map": {
    "a": "model-00001-of-00003.safetensors",
    "b": "model-00001-of-00003.safetensors",
    "c": "model-00003-of-00003.safetensors",
    "d": "model-00003-of-00003.safetensors",
    "huge": "model-00002-of-00003.safetensors"
  }
}
)");
  ASSERT_TRUE(layout.find("d"));
  EXPECT_EQ(layout.find("d")->file, 2);
  EXPECT_EQ(layout.find("a.exp_avg")->file, 4);
  EXPECT_EQ(layout.find("none"), nullptr);
  for (const StoredFile& file : layout.files) {
    if (file.tensors.empty()) continue;
    EXPECT_EQ(must(parse_header(file.name, file.head, file.bytes)).tensors, file.tensors);
  }
}

TEST(Layout, NoOptimizerNoFileOfIt) {
  EXPECT_EQ(describe(must(make_layout({}, {}))), "model-00001-of-00001.safetensors\nmodel.safetensors.index.json\n");
}

TEST(Layout, TextsAreFilesToo) {
  FolderLayout layout = must(make_layout({}, {}));
  add_text(layout, "config.json", "{}\n");
  EXPECT_EQ(layout.files.back().name, "config.json");
  EXPECT_EQ(layout.files.back().bytes, 3);
}

TEST(Layout, NamesThatCannotBe) {
  const auto message = [](std::vector<StoredTensor> model, std::vector<StoredTensor> optimizer) {
    const auto layout = make_layout(std::move(model), std::move(optimizer));
    return layout ? "none" : layout.error().message;
  };
  const auto tensor = [](const std::string& name) { return StoredTensor{name, StoredDType::U8, {1}}; };
  EXPECT_EQ(message({tensor("a"), tensor("a")}, {}), "tensor \"a\" cannot be saved: another one has the same name");
  EXPECT_EQ(message({tensor("a.exp_avg"), tensor("a")}, {tensor("a.exp_avg")}),
            "tensor \"a.exp_avg\" cannot be saved: another one has the same name");
  EXPECT_EQ(message({tensor("__metadata__")}, {}),
            "tensor \"__metadata__\" cannot be saved: safetensors files keep this name for themselves");
  EXPECT_EQ(message({tensor("\xff")}, {}), "tensor \"\xff\" cannot be saved: its name is no UTF-8");
}

TEST(Layout, TensorsOfARange) {
  const FolderLayout layout = must(make_layout({{"a", StoredDType::U8, {10}},
                                                {"none", StoredDType::U8, {0}},
                                                {"b", StoredDType::U8, {10}},
                                                {"c", StoredDType::U8, {10}},
                                                {"d", StoredDType::U8, {10}},
                                                {"e", StoredDType::U8, {10}}},
                                               {}));
  const StoredFile& file = layout.files[0];
  const auto head = static_cast<int64_t>(file.head.size());
  EXPECT_EQ(tensors_in(file, head, head + 10), "a");
  EXPECT_EQ(tensors_in(file, head + 9, head + 11), "a, b");
  EXPECT_EQ(tensors_in(file, head, head + 50), "a, b, c and 2 more");
  EXPECT_EQ(tensors_in(file, 0, head + 1), "its header, a");
  EXPECT_EQ(tensors_in(layout.files[1], 0, 10), "");
}

}  // namespace
}  // namespace piper::checkpoint_tests
