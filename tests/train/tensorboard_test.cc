// Event files, read back by hand: lengths, sums, fields.
#include "train/tensorboard.h"

#include <gmock/gmock.h>

#include <cstring>
#include <fstream>
#include <sstream>

#include "train/in_empty_folder.h"
#include "train/metrics.h"

namespace piper {
namespace {

using testing::ElementsAre;
using testing::Pair;

/// Bit by bit, as the polynomial is defined.
uint32_t masked_sum(std::string_view bytes) {
  uint32_t sum = ~0u;
  for (const char byte : bytes) {
    sum ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) sum = sum & 1 ? sum >> 1 ^ 0x82F63B78u : sum >> 1;
  }
  sum = ~sum;
  return (sum >> 15 | sum << 17) + 0xA282EAD8u;
}

template <class T>
T read(std::string_view from) {
  T out;
  std::memcpy(&out, from.data(), sizeof out);
  return out;
}

/// Fields of a protocol buffer, in their order: numbers as they lie there, or bytes.
std::vector<std::pair<int, std::string>> fields(std::string_view message) {
  std::vector<std::pair<int, std::string>> out;
  const auto varint = [&] {
    uint64_t number = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(message.at(0));
      message.remove_prefix(1);
      number |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return number;
    }
  };
  while (!message.empty()) {
    const uint64_t key = varint();
    size_t size = 0;
    if (key % 8 == 0) {
      out.emplace_back(static_cast<int>(key / 8), std::to_string(varint()));
      continue;
    }
    size = key % 8 == 1 ? 8 : key % 8 == 5 ? 4 : varint();
    out.emplace_back(static_cast<int>(key / 8), std::string(message.substr(0, size)));
    message.remove_prefix(size);
  }
  return out;
}

std::vector<std::string> events_in(const std::string& path) {
  std::ostringstream all;
  all << std::ifstream(path, std::ios::binary).rdbuf();
  const std::string text = all.str();
  std::vector<std::string> out;
  for (std::string_view left = text; !left.empty();) {
    const auto size = read<uint64_t>(left);
    EXPECT_EQ(read<uint32_t>(left.substr(8)), masked_sum(left.substr(0, 8)));
    out.emplace_back(left.substr(12, size));
    EXPECT_EQ(read<uint32_t>(left.substr(12 + size)), masked_sum(out.back()));
    left.remove_prefix(16 + size);
  }
  return out;
}

TEST(TensorBoard, SumsAreCastagnolis) {
  // RFC 3720: 32 bytes of zeros give 0x8A9136AA
  const std::string record = event_record(std::string(32, '\0'));
  const uint32_t sum = 0x8A9136AAu;
  EXPECT_EQ(read<uint32_t>(record.substr(12 + 32)), (sum >> 15 | sum << 17) + 0xA282EAD8u);
}

class EventFiles : public InEmptyFolder {};

TEST_F(EventFiles, HaveTheScalarsOfEverySort) {
  auto file = EventFile::create({"runs/one", {}});
  ASSERT_TRUE(file);
  ASSERT_TRUE(file->add(300, {{"loss", 2.5}, {"mfu", 0.5}}, 17.25));
  const std::vector<std::string> events = events_in(file->path());
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(fields(events[0])[1], std::pair(3, std::string("brain.Event:2")));
  const auto event = fields(events[1]);
  ASSERT_EQ(event.size(), 3u);
  EXPECT_EQ(read<double>(event[0].second), 17.25);
  EXPECT_EQ(event[1], std::pair(2, std::string("300")));
  std::vector<std::pair<std::string, float>> values;
  for (const auto& [number, value] : fields(event[2].second)) {
    EXPECT_EQ(number, 1);
    const auto scalar = fields(value);
    ASSERT_EQ(scalar.size(), 2u);
    values.emplace_back(scalar[0].second, read<float>(scalar[1].second));
  }
  EXPECT_THAT(values, ElementsAre(Pair("loss", 2.5f), Pair("mfu", 0.5f)));
}

TEST_F(EventFiles, WhatIsNotKnownIsLeftOut) {
  StepMetrics step;
  const size_t known = scalars_of(step).size();
  step.mfu = 0.5;
  EXPECT_EQ(scalars_of(step).size(), known + 1);
}

TEST_F(EventFiles, WhatCannotBeWritten) {
  std::ofstream("taken") << "a file";
  const auto file = EventFile::create({"taken", {}});
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, ErrorCode::E108);
}

}  // namespace
}  // namespace piper
