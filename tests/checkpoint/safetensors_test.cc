#include "checkpoint/safetensors.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "checkpoint/sample_folder.h"
#include "must.h"

namespace piper::checkpoint_tests {
namespace {

/// A file that begins with this JSON.
std::string with_length(const std::string& json) {
  std::string out;
  for (size_t i = 0; i < 8; ++i) out += static_cast<char>(json.size() >> (8 * i));
  return out + json;
}

std::string problem(const std::string& json, int64_t data_bytes) {
  const std::string text = with_length(json);
  const auto header = parse_header("f", text, static_cast<int64_t>(text.size()) + data_bytes);
  return header ? "none" : header.error().message;
}

TEST(Safetensors, HeaderIsAlignedAndLargeElementsComeFirst) {
  const SafetensorsHeader header = make_header({{"flag", StoredDType::Bool, {3}},
                                                {"a", StoredDType::BF16, {2, 3}},
                                                {"b", StoredDType::F32, {2}},
                                                {"c", StoredDType::F64, {}}},
                                               {{"format", "pt"}});
  const std::string text = print(header);
  EXPECT_EQ(
      text.substr(8),
      R"({"__metadata__":{"format":"pt"},"c":{"dtype":"F64","shape":[],"data_offsets":[0,8]},)"
      R"("b":{"dtype":"F32","shape":[2],"data_offsets":[8,16]},"a":{"dtype":"BF16","shape":[2,3],"data_offsets":[16,28]},)"
      R"("flag":{"dtype":"BOOL","shape":[3],"data_offsets":[28,31]}} )");
  EXPECT_EQ(text.size() % 8, 0u);
  const SafetensorsHeader again = must(parse_header("f", text, header.bytes + 31));
  EXPECT_EQ(again.tensors, header.tensors);
  EXPECT_EQ(again.metadata, header.metadata);
  EXPECT_EQ(again.bytes, static_cast<int64_t>(text.size()));
  for (const TensorEntry& entry : header.tensors) EXPECT_EQ(entry.begin % bytes_of(entry.tensor.dtype), 0);
}

TEST(Safetensors, NamesAreAnyUtf8) {
  const SafetensorsHeader header = make_header({{"a\"b\\\n\u00e9", StoredDType::U8, {1}}});
  EXPECT_EQ(must(parse_header("f", print(header), header.bytes + 1)).tensors, header.tensors);
}

TEST(Safetensors, EveryMistakeIsNamed) {
  const std::string a = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  const auto b = [](int begin, int end) {
    return fmt::format(R"("b":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}})", end - begin, begin, end);
  };
  EXPECT_EQ(problem("{" + a + "," + b(8, 12) + "}  ", 12), "none");
  EXPECT_EQ(problem("{}", 0), "none");
  EXPECT_EQ(problem("[]", 0), "f: its header is no JSON object");
  EXPECT_EQ(problem("{", 0), "f: its header is not JSON");
  EXPECT_EQ(problem("{" + a + "," + a + "}", 8), "f: its header names \"a\" twice");
  EXPECT_EQ(problem("{" + a + "," + b(7, 12) + "}", 12),
            "f: tensor \"b\" begins at byte 7 of the data when it should at 8");
  EXPECT_EQ(problem("{" + a + "," + b(9, 12) + "}", 12),
            "f: tensor \"b\" begins at byte 9 of the data when it should at 8");
  EXPECT_EQ(problem("{" + a + "}", 9), "f: its tensors have 8 bytes and the file has 9 for them");
  EXPECT_EQ(problem("{" + a + "}", 7), "f: its tensors have 8 bytes and the file has 7 for them");
  EXPECT_EQ(problem(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8),
            "f: tensor \"a\" has 8 bytes when F32 [3] should have 12");
  EXPECT_EQ(problem(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8),
            "f: tensor \"a\" has a shape that is no list of sizes");
  EXPECT_EQ(problem(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8),
            "f: tensor \"a\" has data_offsets that are no range of bytes");
  EXPECT_EQ(problem(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", 0),
            "f: tensor \"a\" has 0 bytes when F32 [4611686018427387904, 4] should have 4611686018427387904");
  EXPECT_EQ(problem(R"({"a":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}})", 1),
            "f: tensor \"a\" has the unknown dtype F4");
  EXPECT_EQ(problem(R"({"a":{"dtype":"F32","shape":[2]}})", 8),
            "f: tensor \"a\" has other members than dtype, shape and data_offsets");
  EXPECT_EQ(problem(R"({"__metadata__":{"a":1}})", 0), "f: the metadata in its header are no texts");
  EXPECT_EQ(parse_header("f", "1234567", 7).error().message, "f: 7 bytes are too few for a safetensors file");
  EXPECT_EQ(parse_header("f", with_length("{}").substr(0, 9), 9).error().message,
            "f: its header would have 2 bytes; at most 1 can be");
  EXPECT_EQ(parse_header("f", std::string(8, '\xff'), 1 << 20).error().message,
            "f: its header would have 18446744073709551615 bytes; at most 1048568 can be");
  EXPECT_EQ(problem(std::string(100, '[') + std::string(100, ']'), 0), "f: its header is nested more than 16 deep");
}

TEST(Safetensors, FilesOnDisk) {
  const TemporaryFolder folder;
  const SafetensorsHeader header = make_header({{"a", StoredDType::I16, {5}}});
  const std::string path = folder.path() + "/x.safetensors", text = print(header) + std::string(10, 'x');
  write_text(path, text);
  EXPECT_EQ(must(read_header(path)).tensors, header.tensors);
  for (size_t size = 0; size < text.size(); ++size) {
    write_text(path, text.substr(0, size));
    const auto cut = read_header(path);
    ASSERT_FALSE(cut) << size;
    EXPECT_EQ(cut.error().code, ErrorCode::E902) << size;
  }
  EXPECT_EQ(read_header(folder.path() + "/none").error().code, ErrorCode::E901);
}

}  // namespace
}  // namespace piper::checkpoint_tests
