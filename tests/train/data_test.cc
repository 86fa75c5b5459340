// Samples: the same wherever they are asked for; files that cannot serve are refused.
#include <gmock/gmock.h>

#include <functional>
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

struct Sample {
  Tokens tokens, targets;
};
Sample both(const TokenSource& source, int64_t number, size_t sequence) {
  Sample out{Tokens(sequence), Tokens(sequence)};
  EXPECT_TRUE(source.sample(number, out.tokens, out.targets));
  return out;
}
/// Tokens and the last target, where every target is the token that follows.
Tokens sample(const TokenSource& source, int64_t number, size_t length) {
  Sample of = both(source, number, length - 1);
  EXPECT_TRUE(std::equal(of.tokens.begin() + 1, of.tokens.end(), of.targets.begin()));
  of.tokens.push_back(of.targets.back());
  return of.tokens;
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
    DataConfig config{.kind = kind, .width = width, .seed = seed};
    if (!paths.empty()) config.sources = {{.paths = named(paths)}};
    return open_tokens(config, shape);
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

TEST_F(Data, PlacesInDocuments) {
  write("a.txt", "abc");
  write("b.txt", "defgh");
  write("c.txt", "i");
  write("d.txt", "jklmnopq");
  DataConfig config{.kind = DataKind::Text, .attention = AttentionWithin::Document, .shuffle_window = 1};
  config.sources = {{.paths = named({"*.txt"})}};
  const auto source = *open_tokens(config, {.sequence = 4, .vocabulary = 256});
  Tokens tokens(4), targets(4), places(4);
  const auto at = [&](int64_t number) {
    EXPECT_TRUE(source->sample(number, tokens, targets));
    source->places(number, places);
  };
  at(0);  // abcd
  EXPECT_THAT(places, ElementsAre(0, 1, 2, 0));
  EXPECT_THAT(targets, ElementsAre('b', 'c', left_out_target, 'e'));
  at(1);  // efgh, whose document began before
  EXPECT_THAT(places, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(targets, ElementsAre('f', 'g', 'h', left_out_target));
  at(2);  // ijkl
  EXPECT_THAT(places, ElementsAre(0, 0, 1, 2));
  EXPECT_THAT(targets, ElementsAre(left_out_target, 'k', 'l', 'm'));
  config.attention = AttentionWithin::Sample;
  (*open_tokens(config, {.sequence = 4, .vocabulary = 256}))->places(0, places);
  EXPECT_THAT(places, ElementsAre(0, 1, 2, 3));
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
  Tokens tokens(static_cast<size_t>(sequence)), targets(static_cast<size_t>(sequence));
  auto checked = (*source)->sample(0, tokens, targets);
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

// ---- documents

/// Data folders as docs/data.md describes them.
class DataFolders : public Data {
 protected:
  using Documents = std::vector<std::vector<uint16_t>>;

  /// `counted`: of all tokens, in their order; none: the loss counts all.
  static void write_folder(const std::string& folder, const std::vector<Documents>& shards,
                           const std::vector<uint8_t>& counted = {}, const std::string& changed = "") {
    std::string records;
    size_t done = 0;
    for (size_t s = 0; s < shards.size(); ++s) {
      const std::string name = "0000" + std::to_string(s);
      std::vector<uint16_t> tokens;
      std::vector<uint64_t> ends;
      for (const auto& document : shards[s]) {
        tokens.insert(tokens.end(), document.begin(), document.end());
        ends.push_back(tokens.size());
      }
      write_numbers(folder + "/" + name + ".tokens", tokens);
      write_numbers(folder + "/" + name + ".documents", ends);
      if (!counted.empty())
        write_numbers(folder + "/" + name + ".loss",
                      std::vector<uint8_t>(counted.begin() + static_cast<int64_t>(done),
                                           counted.begin() + static_cast<int64_t>(done + tokens.size())));
      done += tokens.size();
      records += (s == 0 ? "" : ", ") + std::string("{\"name\": \"") + name +
                 "\", \"tokens\": " + std::to_string(tokens.size()) +
                 ", \"documents\": " + std::to_string(ends.size()) + "}";
    }
    write(folder + "/data.json",
          changed.empty()
              ? "{\"format\": \"piper-data\", \"version\": 1, \"dtype\": \"uint16\", \"loss\": \"" +
                    std::string(counted.empty() ? "all" : "completions") + "\", \"shards\": [" + records + "]}"
              : changed);
  }
  static DataConfig config_of(const std::vector<std::string>& paths) {
    return {.kind = DataKind::Tokens, .sources = {{.paths = named(paths)}}, .shuffle_window = 1};
  }
  static std::string refusal_of(const DataConfig& config, SampleShape shape) {
    const auto opened = open_tokens(config, shape);
    return opened ? "" : render(opened.error());
  }
};

TEST_F(DataFolders, ShardsFollowEachOther) {
  write_folder("data", {{{1, 2, 3}, {4, 5}}, {{6}, {7, 8, 9}}});
  const auto source = open_tokens(config_of({"data"}), {.sequence = 4, .vocabulary = 10});
  ASSERT_TRUE(source) << render(source.error());
  EXPECT_THAT(sample(**source, 0, 5), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(sample(**source, 1, 5), ElementsAre(5, 6, 7, 8, 9));
  EXPECT_EQ((*source)->describe(), "2 files, 18 B, 2 samples of 4 tokens");
}

TEST_F(DataFolders, TruncatedSamplesBeginWithADocument) {
  write_folder("data", {{{1, 2}, {3, 4, 5, 6}, {7, 8}}, {{9, 10, 11}, {12}}});
  DataConfig config = config_of({"data"});
  config.packing = DocumentPacking::Truncate;
  const auto source = open_tokens(config, {.sequence = 4, .vocabulary = 20});
  ASSERT_TRUE(source) << render(source.error());
  EXPECT_EQ((*source)->describe(), "2 files, 24 B, 2 samples of 4 tokens");
  EXPECT_THAT(sample(**source, 0, 5), ElementsAre(1, 2, 3, 4, 5));  // 6 is cut off
  EXPECT_THAT(sample(**source, 1, 5), ElementsAre(7, 8, 9, 10, 11));
}

TEST_F(DataFolders, ADocumentIsASample) {
  write_folder("data", {{{1, 2}, {3}, {4, 5, 6, 7, 8, 9}}, {{10, 11, 12}}});
  DataConfig config = config_of({"data"});
  config.packing = DocumentPacking::None;
  const auto source = open_tokens(config, {.sequence = 3, .vocabulary = 20});
  ASSERT_TRUE(source) << render(source.error());
  EXPECT_EQ((*source)->describe(), "2 files, 24 B, 3 samples of 3 tokens");  // 3 has no successor
  const Sample padded = both(**source, 0, 3), cut = both(**source, 1, 3), last = both(**source, 2, 3);
  EXPECT_THAT(padded.tokens, ElementsAre(1, 2, 0));
  EXPECT_THAT(padded.targets, ElementsAre(2, -100, -100));
  EXPECT_THAT(cut.tokens, ElementsAre(4, 5, 6));
  EXPECT_THAT(cut.targets, ElementsAre(5, 6, 7));
  EXPECT_THAT(last.tokens, ElementsAre(10, 11, 12));
  EXPECT_THAT(last.targets, ElementsAre(11, 12, -100));
}

TEST_F(DataFolders, TheLossCountsCompletionsOnly) {
  write_folder("data", {{{1, 2, 3}}, {{4, 5}}}, {0, 0, 1, 0, 1});
  DataConfig config = config_of({"data"});
  const SampleShape shape{.sequence = 4, .vocabulary = 20};
  expect_golden("E111_loss_not_said", refusal_of(config, shape));
  config.loss = LossOn::Completions;
  const Sample counted = both(**open_tokens(config, shape), 0, 4);
  EXPECT_THAT(counted.tokens, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(counted.targets, ElementsAre(-100, 3, -100, 5));
  config.loss = LossOn::All;
  EXPECT_THAT(sample(**open_tokens(config, shape), 0, 5), ElementsAre(1, 2, 3, 4, 5));
  write_folder("plain", {{{1, 2, 3, 4, 5}}});
  config = config_of({"plain"});
  config.loss = LossOn::Completions;
  EXPECT_THAT(refusal_of(config, shape), testing::HasSubstr("does not say which tokens they are"));
}

TEST_F(DataFolders, NeighboursAreShuffledInsideAWindow) {
  std::vector<uint16_t> numbers(101);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<uint16_t>(i);
  write_numbers<uint16_t>("a.bin", numbers);
  DataConfig config = config_of({"a.bin"});
  config.shuffle_window = 8;
  const auto source = open_tokens(config, {.sequence = 1, .vocabulary = 101});
  std::set<int64_t> seen;
  int64_t moved = 0;
  for (int64_t number = 0; number < 100; ++number) {
    const int64_t token = sample(**source, number, 2)[0];
    EXPECT_EQ(token / 8, number / 8);
    moved += token != number;
    seen.insert(token);
  }
  EXPECT_EQ(seen.size(), 100u);
  EXPECT_GT(moved, 50);
  config.shuffle_window = 1;
  const auto in_order = open_tokens(config, {.sequence = 1, .vocabulary = 101});
  for (int64_t number = 0; number < 200; ++number) EXPECT_EQ(sample(**in_order, number, 2)[0], number % 100);
}

TEST_F(DataFolders, SourcesHaveTheirSharesAtAnyTime) {
  write_numbers<uint16_t>("a.bin", std::vector<uint16_t>(64, 1));
  write_numbers<uint16_t>("b.bin", std::vector<uint16_t>(11, 2));
  write_numbers<uint16_t>("c.bin", {3, 4, 5, 6, 7});
  DataConfig config = config_of({"a.bin"});
  config.sources[0].weight = 7;
  config.sources.push_back({.paths = named({"b.bin"}), .weight = 2});
  config.sources.push_back({.paths = named({"c.bin"}), .weight = 1});
  const auto source = open_tokens(config, {.sequence = 1, .vocabulary = 10});
  ASSERT_TRUE(source);
  std::map<int64_t, double> count;
  Tokens of_c;
  for (int64_t number = 0; number < 70'000; ++number) {  // more than the order of turns is long
    const int64_t token = both(**source, number, 1).tokens[0];
    if (token >= 3) of_c.push_back(token);
    ++count[std::min<int64_t>(token, 3)];
    const auto done = static_cast<double>(number + 1);
    ASSERT_LE(std::abs(count[1] - 0.7 * done), 2) << number;
    ASSERT_LE(std::abs(count[2] - 0.2 * done), 2) << number;
  }
  for (size_t i = 0; i < of_c.size(); ++i) ASSERT_EQ(of_c[i], 3 + static_cast<int64_t>(i) % 4);  // each once an epoch
}

TEST_F(DataFolders, EpochsLimitARun) {
  write_numbers<uint16_t>("a.bin", std::vector<uint16_t>(21, 1));
  write_numbers<uint16_t>("b.bin", std::vector<uint16_t>(5, 2));
  DataConfig config = config_of({"a.bin"});
  config.sources.push_back({.paths = named({"b.bin"}), .epochs = 2, .where = named({"b.bin"})[0].where});
  const auto source = open_tokens(config, {.sequence = 1, .vocabulary = 10});
  EXPECT_TRUE((*source)->check_length(16));
  const auto refused = (*source)->check_length(20);
  ASSERT_FALSE(refused);
  expect_golden("E701_epochs", render(refused.error()));
}

TEST_F(DataFolders, ValidationIsWhatTrainingDoesNotSee) {
  std::vector<uint16_t> numbers(51);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<uint16_t>(i);
  write_numbers<uint16_t>("a.bin", numbers);
  DataConfig config = config_of({"a.bin"});
  config.shuffle_window = std::numeric_limits<int64_t>::max();
  config.validation = 0.1;
  const SampleShape shape{.sequence = 1, .vocabulary = 100};
  std::set<int64_t> train, held;
  const auto training = open_tokens(config, shape), validation = open_tokens(config, shape, DataSplit::Validation);
  for (int64_t number = 0; number < 90; ++number) train.insert(sample(**training, number, 2)[0]);
  for (int64_t number = 0; number < 10; ++number) held.insert(sample(**validation, number, 2)[0]);
  EXPECT_EQ(train.size(), 45u);
  EXPECT_THAT(held, ElementsAre(45, 46, 47, 48, 49));
  EXPECT_EQ(*train.rbegin(), 44);
  config.validation = 0.001;
  expect_golden("E701_validation", refusal_of(config, shape));
}

TEST_F(DataFolders, Refusals) {
  const SampleShape shape{.sequence = 2, .vocabulary = 100};
  write("begun/progress/plan.json", "{}");
  expect_golden("E703_not_complete", refusal_of(config_of({"begun"}), shape));
  write_folder("other", {}, {}, "{\"format\": \"piper-data\", \"version\": 2}");
  expect_golden("E703_version", refusal_of(config_of({"other"}), shape));
  write_folder("short", {{{1, 2, 3, 4}}});
  std::filesystem::resize_file("short/00000.tokens", 6);
  expect_golden("E703_shard", refusal_of(config_of({"short"}), shape));
  for (const char* text : {"", "[]", "{}", "{\"format\": 1}", "{\"format\": \"piper-data\"}",
                           "{\"format\": \"piper-data\", \"version\": 1, \"dtype\": \"int8\"}",
                           "{\"format\": \"piper-data\", \"version\": 1, \"dtype\": \"uint16\", \"loss\": \"all\", "
                           "\"shards\": [{\"name\": 1}]}"}) {
    write("broken/data.json", text);
    EXPECT_THAT(refusal_of(config_of({"broken"}), shape), testing::HasSubstr("error[E703]: \"broken\" ")) << text;
  }
  write_numbers<uint16_t>("a.bin", {1, 2, 3, 4});
  DataConfig config = config_of({"a.bin"});
  config.packing = DocumentPacking::None;
  expect_golden("E111_no_documents", refusal_of(config, shape));
}

// ---- Megatron

class Megatron : public DataFolders {
 protected:
  /// A dataset of these documents, each one sequence.
  static void write_megatron(const std::string& prefix, const Documents& documents, uint8_t code = 8) {
    std::string index("MMIDIDX\0\0", 9);
    const auto add = [&](auto number) { index.append(reinterpret_cast<const char*>(&number), sizeof(number)); };
    std::vector<uint16_t> tokens;
    add(uint64_t{1});
    add(code);
    add(uint64_t{documents.size()});
    add(uint64_t{documents.size() + 1});
    for (const auto& document : documents) add(static_cast<int32_t>(document.size()));
    for (const auto& document : documents) {
      add(static_cast<int64_t>(tokens.size() * 2));
      tokens.insert(tokens.end(), document.begin(), document.end());
    }
    for (size_t d = 0; d <= documents.size(); ++d) add(static_cast<int64_t>(d));
    write(prefix + ".idx", index);
    write_numbers(prefix + ".bin", tokens);
  }
};

TEST_F(Megatron, IsReadAsItIs) {
  write_megatron("text_document", {{1, 2, 3}, {4, 5}});
  const SampleShape shape{.sequence = 2, .vocabulary = 10};
  for (const char* path : {"text_document", "text_document.bin", "text_*"}) {
    DataConfig config = config_of({path});
    config.packing = DocumentPacking::None;
    const auto source = open_tokens(config, shape);
    ASSERT_TRUE(source) << path << render(source.error());
    EXPECT_EQ((*source)->describe(), "1 file, 10 B, 2 samples of 2 tokens") << path;
    EXPECT_THAT(both(**source, 1, 2).tokens, ElementsAre(4, 5));
    EXPECT_THAT(both(**source, 1, 2).targets, ElementsAre(5, -100));
  }
}

TEST_F(Megatron, Refusals) {
  const SampleShape shape{.sequence = 2, .vocabulary = 10};
  const auto refusal_with = [&](const std::function<void(std::string&)>& change) {
    write_megatron("x", {{1, 2, 3}, {4, 5}});
    std::ifstream file("x.idx", std::ios::binary);
    std::string index((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    change(index);
    write("x.idx", index);
    return refusal_of(config_of({"x.bin"}), shape);
  };
  expect_golden("E703_megatron", refusal_with([](std::string& index) { index[0] = 'X'; }));
  EXPECT_THAT(refusal_with([](std::string& index) { index[9] = 2; }), testing::HasSubstr("its version is 2"));
  EXPECT_THAT(refusal_with([](std::string& index) { index[17] = 7; }), testing::HasSubstr("its dtype has code 7"));
  EXPECT_THAT(refusal_with([](std::string& index) { index.pop_back(); }), testing::HasSubstr("it is too short"));
  EXPECT_THAT(refusal_with([](std::string& index) { index.resize(12); }), testing::HasSubstr("it is too short"));
  EXPECT_THAT(refusal_with([](std::string& index) { index[34] = 2; }), testing::HasSubstr("does not follow"));
  EXPECT_THAT(refusal_with([](std::string& index) { index[38] = 9; }),
              testing::HasSubstr("5 tokens, and its index 12"));
  EXPECT_THAT(refusal_with([](std::string& index) { index[index.size() - 8] = 9; }),
              testing::HasSubstr("document 2 ends with sequence 9"));
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
