// Damaged headers of safetensors files and damaged piper.json: read, printed and read again.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "checkpoint/run_state.h"
#include "checkpoint/safetensors.h"
#include "fuzz/trial.h"

namespace piper::fuzz {
namespace {

/// A file whose header this is, and the number of bytes behind it: `one_32.json` has 32.
struct HeaderFile {
  std::string text;
  int64_t bytes;
};
HeaderFile file_with(const Seed& seed, const std::string& json) {
  std::string text;
  for (size_t i = 0; i < 8; ++i) text += static_cast<char>(json.size() >> (8 * i));
  text += json;
  return {text, static_cast<int64_t>(text.size()) + std::stoll(seed.name.substr(seed.name.find('_') + 1))};
}

TEST(Mutations, OfSafetensorsHeaders) {
  const auto run = [](const Seed& seed, const std::string& json) {
    const HeaderFile file = file_with(seed, json);
    const auto header = parse_header(seed.name, file.text, file.bytes);
    if (!header) return Outcome::Refused;
    int64_t at = header->bytes;
    for (const TensorEntry& entry : header->tensors) {
      EXPECT_EQ(entry.begin, at) << json;
      at += entry.bytes;
    }
    EXPECT_EQ(at, file.bytes) << json;
    const std::string printed = print(*header);
    const auto again = parse_header("printed", printed, static_cast<int64_t>(printed.size()) + at - header->bytes);
    EXPECT_TRUE(again && again->metadata == header->metadata) << json;
    EXPECT_EQ(again->tensors.size(), header->tensors.size()) << json;
    for (size_t i = 0; i < header->tensors.size(); ++i)
      EXPECT_EQ(again->tensors[i].tensor, header->tensors[i].tensor) << json;
    return Outcome::Parsed;
  };
  try_mutations("safetensors", scaled(20'000), run);
}

/// With the sum at its end that its other bytes have, so that more than sums is tried.
std::string summed(std::string text) {
  constexpr size_t digits = 8, behind = 4;  // `"\n}\n`
  if (text.size() < digits + behind) return text;
  const size_t at = text.size() - behind - digits;
  text.replace(at, digits, digits, '0');
  return text.replace(at, digits, fmt::format("{:08x}", crc_of(std::as_bytes(std::span(text)))));
}

TEST(Mutations, OfPiperJson) {
  const auto run = [](const Seed& seed, const std::string& text) {
    EXPECT_TRUE(text == seed.text || !parse_piper_json(seed.name, text)) << text;
    const auto json = parse_piper_json(seed.name, summed(text));
    if (!json) return Outcome::Refused;
    const auto again = parse_piper_json("printed", print(*json));
    EXPECT_TRUE(again && *again == *json) << text;
    return Outcome::Parsed;
  };
  try_mutations("piper_json", scaled(20'000), run);
}

}  // namespace
}  // namespace piper::fuzz
