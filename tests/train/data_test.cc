// Samples: the same wherever they are asked for; files that cannot serve are refused.
#include <gmock/gmock.h>

#include <map>
#include <set>

#include "train/data/find_files.h"
#include "train/data/mix.h"
#include "train/data/token_source.h"
#include "train/golden_text.h"
#include "train/in_empty_folder.h"

namespace piper {
namespace {

using testing::ElementsAre;

using Tokens = std::vector<int64_t>;

Tokens sample(const TokenSource& source, int64_t number, size_t length) {
  Tokens tokens(length);
  EXPECT_TRUE(source.sample(number, tokens));
  return tokens;
}

/// As a configuration names them: with a place.
std::vector<NamedFile> named(const std::vector<std::string>& paths) {
  std::string text = "[data]\nkind = \"tokens\"\npaths = [";
  std::vector<std::pair<int, int>> places;
  for (const std::string& path : paths) {
    if (!places.empty()) text += ", ";
    const int begin = static_cast<int>(text.size());
    text += '"' + path + '"';
    places.emplace_back(begin, static_cast<int>(text.size()));
  }
  const auto file = make_source("config.toml", text + "]\n");
  std::vector<NamedFile> out;
  for (size_t i = 0; i < paths.size(); ++i) out.push_back({paths[i], {file, places[i].first, places[i].second}});
  return out;
}

class Data : public InEmptyFolder {
 protected:
  static Result<std::unique_ptr<TokenSource>> open(DataKind kind, const std::vector<std::string>& paths,
                                                   SampleShape shape, uint64_t seed = 0,
                                                   TokenWidth width = TokenWidth::Bits16) {
    return open_tokens({.kind = kind, .paths = named(paths), .width = width, .seed = seed}, shape);
  }
  static std::string refusal(DataKind kind, const std::vector<std::string>& paths, SampleShape shape,
                             TokenWidth width = TokenWidth::Bits16) {
    auto source = open(kind, paths, shape, 0, width);
    return source ? "" : render(source.error());
  }
};

// ---- made by hash

TEST_F(Data, ReferenceIsWhatTheDefinitionSays) {
  // x[0] = fmix32(number + 1) % vocab, where number = step * batch + row; x[t+1] = (5 x[t] + 7) % vocab
  EXPECT_EQ(mix32(1), 0x514e28b7u);  // published value of the finaliser
  const auto source = open(DataKind::Reference, {}, {.sequence = 4, .vocabulary = 256});
  ASSERT_TRUE(source);
  EXPECT_THAT(sample(**source, 0, 5), ElementsAre(0xb7, 0x9a, 0x09, 0x34, 0x0b));
  EXPECT_EQ(sample(**source, 50, 5)[0], mix32(50 + 1) % 256);
}

TEST_F(Data, SyntheticDependsOnSeedAndNumberAlone) {
  const SampleShape shape{.sequence = 32, .vocabulary = 1000};
  const auto source = open(DataKind::Synthetic, {}, shape, 1), again = open(DataKind::Synthetic, {}, shape, 1);
  const auto other = open(DataKind::Synthetic, {}, shape, 2);
  EXPECT_EQ(sample(**source, 43, 33), sample(**again, 43, 33));
  EXPECT_NE(sample(**source, 43, 33), sample(**other, 43, 33));
  std::set<Tokens> all;
  for (int64_t number = 0; number < 80; ++number) all.insert(sample(**source, number, 33));
  EXPECT_EQ(all.size(), 80u);
}

TEST_F(Data, SyntheticCanBeLearned) {
  const auto source = open(DataKind::Synthetic, {}, {.sequence = 20'000, .vocabulary = 64});
  std::map<int64_t, std::map<int64_t, double>> followers;
  double pairs = 0;
  for (int64_t number = 0; number < 10; ++number) {
    const Tokens tokens = sample(**source, number, 20'001);
    for (size_t i = 0; i + 1 < tokens.size(); ++i, ++pairs) ++followers[tokens[i]][tokens[i + 1]];
  }
  double loss = 0;  // of the best guess from one token to the next
  for (const auto& [token, counts] : followers) {
    EXPECT_LE(counts.size(), 4u);
    double total = 0;
    for (const auto& [next, count] : counts) total += count;
    for (const auto& [next, count] : counts) loss -= count / pairs * std::log(count / total);
  }
  EXPECT_LT(loss, 1.22);
  EXPECT_GT(loss, 1.0);
}

TEST(Shuffle, TakesEveryPlaceOnce) {
  for (const uint64_t count : {1u, 2u, 3u, 7u, 64u, 1000u}) {
    std::set<uint64_t> places;
    uint64_t unmoved = 0;
    for (uint64_t i = 0; i < count; ++i) {
      places.insert(shuffled(i, count, 42));
      unmoved += shuffled(i, count, 42) == i;
    }
    EXPECT_EQ(places.size(), count);
    EXPECT_LT(*places.rbegin(), count);
    EXPECT_LT(unmoved, count < 64 ? count + 1 : 8);
  }
}

// ---- files

TEST_F(Data, TextIsSeenOncePerEpoch) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += static_cast<char>(i + 100);
  write("a.txt", text.substr(0, 37));
  write("b.txt", text.substr(37));
  const auto source = open(DataKind::Text, {"a.txt", "b.txt"}, {.sequence = 9, .vocabulary = 256}, 5);
  ASSERT_TRUE(source);
  EXPECT_EQ((*source)->describe(), "2 files, 100 B, 11 samples of 9 tokens");
  EXPECT_EQ((*source)->vocabulary(), 256);
  std::set<int64_t> starts;
  std::vector<int64_t> first_epoch, second_epoch;
  for (int64_t number = 0; number < 22; ++number) {
    const Tokens tokens = sample(**source, number, 10);
    for (size_t i = 1; i < tokens.size(); ++i)
      EXPECT_EQ(tokens[i], tokens[0] + static_cast<int64_t>(i));  // also across the two files
    EXPECT_EQ((tokens[0] - 100) % 9, 0);
    (number < 11 ? first_epoch : second_epoch).push_back(tokens[0]);
    starts.insert(tokens[0]);
  }
  EXPECT_EQ(starts.size(), 11u);
  EXPECT_NE(first_epoch, second_epoch);
  EXPECT_EQ(std::set(second_epoch.begin(), second_epoch.end()), starts);
}

TEST_F(Data, TextIsBytesNotCharacters) {
  write("a.txt", "\xc3\xa9\xff");
  const auto source = open(DataKind::Text, {"a.txt"}, {.sequence = 2, .vocabulary = 300});
  EXPECT_THAT(sample(**source, 0, 3), ElementsAre(0xc3, 0xa9, 0xff));
}

TEST_F(Data, TokensOfBothWidths) {
  write_numbers<uint16_t>("a.bin", {1, 2, 65535});
  write_numbers<uint32_t>("b.bin", {1, 2, 70'000});
  const SampleShape shape{.sequence = 2, .vocabulary = 100'000};
  EXPECT_THAT(sample(**open(DataKind::Tokens, {"a.bin"}, shape), 0, 3), ElementsAre(1, 2, 65535));
  EXPECT_THAT(sample(**open(DataKind::Tokens, {"b.bin"}, shape, 0, TokenWidth::Bits32), 0, 3),
              ElementsAre(1, 2, 70'000));
}

TEST_F(Data, EmptyFilesAmongManyAreFine) {
  write("a/1.txt", "");
  write("a/2.txt", "hello");
  const auto source = open(DataKind::Text, {"a"}, {.sequence = 4, .vocabulary = 256});
  ASSERT_TRUE(source);
  EXPECT_EQ(sample(**source, 0, 5)[4], 'o');
}

TEST_F(Data, Refusals) {
  const SampleShape shape{.sequence = 16, .vocabulary = 256};
  write("empty.txt", "");
  write("short.txt", "sixteen letters!");
  write("odd.bin", "123");
  write("numbers.npy", "\x93NUMPY and so on");
  write_numbers<uint16_t>("large.bin", std::vector<uint16_t>(32, 300));
  expect_golden("E108_no_data", refusal(DataKind::Text, {"shorts.txt"}, shape));
  expect_golden("E108_no_match",
                refusal(DataKind::Text, {"docs/**/*.md"}, shape) + refusal(DataKind::Text, {"*.markdown"}, shape));
  expect_golden("E701_empty", refusal(DataKind::Text, {"short.txt", "empty.txt"}, shape));
  expect_golden("E701_short", refusal(DataKind::Text, {"short.txt"}, shape));
  expect_golden("E702_text", refusal(DataKind::Text, {"short.txt"}, {.sequence = 4, .vocabulary = 128}));
  expect_golden("E702_token", refusal(DataKind::Tokens, {"large.bin"}, shape));
  expect_golden("E703_odd", refusal(DataKind::Tokens, {"odd.bin"}, shape));
  expect_golden("E703_numpy", refusal(DataKind::Tokens, {"numbers.npy"}, shape, TokenWidth::Bits32));
}

TEST_F(Data, ATokenThatIsFoundLaterIsRefusedLater) {
  std::vector<uint16_t> numbers((1 << 24) + 100, 1);
  numbers.back() = 9;
  write_numbers<uint16_t>("a.bin", numbers);
  const int64_t sequence = (1 << 24) + 99;
  const auto source = open(DataKind::Tokens, {"a.bin"}, {.sequence = sequence, .vocabulary = 9});
  ASSERT_TRUE(source);
  Tokens tokens(static_cast<size_t>(sequence) + 1);
  auto checked = (*source)->sample(0, tokens);
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().code, ErrorCode::E702);
}

TEST_F(Data, PipesAndFoldersThatCannotBeRead) {
  EXPECT_THAT(refusal(DataKind::Text, {"/dev/null"}, {.sequence = 4, .vocabulary = 256}),
              testing::HasSubstr("cannot read data \"/dev/null\": it is no file"));
  std::filesystem::create_directory("none");
  EXPECT_THAT(refusal(DataKind::Text, {"none"}, {.sequence = 4, .vocabulary = 256}),
              testing::HasSubstr("folder \"none\" has no files"));
}

// ---- patterns

TEST(Patterns, OfNames) {
  EXPECT_TRUE(matches("*", ""));
  EXPECT_TRUE(matches("*.md", "a.b.md"));
  EXPECT_TRUE(matches("a*b*c", "aXbYbZc"));
  EXPECT_TRUE(matches("a?c", "abc"));
  EXPECT_TRUE(matches("a**", "a"));
  EXPECT_FALSE(matches("*.md", "a.mdx"));
  EXPECT_FALSE(matches("a?c", "ac"));
  EXPECT_FALSE(matches("", "a"));
  EXPECT_FALSE(matches("a*b*c", "aXbYb"));
}

class Find : public InEmptyFolder {
 protected:
  static std::vector<std::string> find(const std::string& path) {
    auto files = find_files({path, {}});
    std::vector<std::string> out;
    if (!files) return {render(files.error())};
    for (const NamedFile& file : *files) out.push_back(file.path);
    return out;
  }
};

TEST_F(Find, FilesFoldersAndPatterns) {
  for (const char* path : {"b.md", "a.md", "c.txt", "d/e.md", "d/f/g.md", "d/f/h.txt", ".git/x.md", "d/.hidden.md"})
    write(path, "x");
  std::filesystem::create_directory_symlink("..", "d/up");
  EXPECT_THAT(find("c.txt"), ElementsAre("c.txt"));
  EXPECT_THAT(find("not_there"), ElementsAre("not_there"));  // refused when it is opened
  EXPECT_THAT(find("*.md"), ElementsAre("a.md", "b.md"));
  EXPECT_THAT(find("?.md"), ElementsAre("a.md", "b.md"));
  EXPECT_THAT(find("d"), ElementsAre("d/e.md", "d/f/g.md", "d/f/h.txt"));
  EXPECT_THAT(find("d/"), ElementsAre("d/e.md", "d/f/g.md", "d/f/h.txt"));
  EXPECT_THAT(find("**/*.md"), ElementsAre("a.md", "b.md", "d/e.md", "d/f/g.md"));
  EXPECT_THAT(find("d/**"), ElementsAre("d/e.md", "d/f/g.md", "d/f/h.txt"));
  EXPECT_THAT(find("d/**/**/g.md"), ElementsAre("d/f/g.md"));
  EXPECT_THAT(find("*/f/*"), ElementsAre("d/f/g.md", "d/f/h.txt"));
  EXPECT_THAT(find("d/.*"), ElementsAre("d/.hidden.md"));
  EXPECT_THAT(find(".git/*.md"), ElementsAre(".git/x.md"));
  EXPECT_THAT(find(std::filesystem::current_path().string() + "/*.txt"),
              ElementsAre(std::filesystem::current_path().string() + "/c.txt"));
}

}  // namespace
}  // namespace piper
