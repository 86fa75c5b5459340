#include "checkpoint/reader.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "checkpoint/sample_folder.h"
#include "must.h"
#include "property/random.h"

namespace piper::checkpoint_tests {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::string message(const Result<std::unique_ptr<FolderReader>>& result) {
  return result ? "none" : result.error().message;
}

TEST(Reader, RandomRangesFromManyThreads) {
  Random random(3);
  for (int round = 0; round < 5; ++round) {
    const TemporaryFolder folder;
    const LayoutPtr layout = random_layout(random);
    save(folder.path(), 4, layout);
    const auto reader = must(FolderReader::open(folder.path() + "/step-00000004"));
    std::vector<std::jthread> threads;
    for (uint64_t seed = 0; seed < 4; ++seed)
      threads.emplace_back([&, seed] {
        Random own(seed);
        for (const auto& [name, place] : layout->places) {
          const std::vector<std::byte> whole = bytes_of_tensor(name, place.entry.bytes, 4);
          const int64_t first = up_to(own, place.entry.bytes), size = up_to(own, place.entry.bytes - first);
          std::vector<std::byte> bytes(static_cast<size_t>(size));
          must(reader->read(name, first, bytes));
          EXPECT_TRUE(std::ranges::equal(bytes, std::span(whole).subspan(first, size))) << name;
        }
      });
  }
}

/// Flips a bit of a random byte of a random file of a checkpoint: the block is named, and what is in it is not given
/// out.
void flip_and_look(const std::string& step, const LayoutPtr& layout, Random& random) {
  const auto which = static_cast<size_t>(up_to(random, std::ssize(layout->files)));
  const bool json = which == layout->files.size();
  const std::string path = step + "/" + (json ? "piper.json" : layout->files[which].name);
  const int64_t byte = up_to(random, static_cast<int64_t>(fs::file_size(path)) - 1);
  const int bit = static_cast<int>(up_to(random, 7));
  flip(path, byte, bit);
  const VerifiedFolder verified = FolderReader::open_verified(step);
  ASSERT_FALSE(verified.reader) << path << " " << byte;
  const Diagnostic& found = verified.problems.back();
  EXPECT_THAT(found.message, HasSubstr(path));
  if (!json) {
    const int64_t begin = byte / block_bytes * block_bytes;
    const int64_t end = std::min(begin + block_bytes, layout->files[which].bytes);
    EXPECT_THAT(found.message, HasSubstr(fmt::format("bytes {} to {}", begin, end)));
    const std::string tensor = tensors_in(layout->files[which], byte, byte + 1);
    if (auto reader = FolderReader::open(step); reader) {  // else the header was in that block
      EXPECT_THAT(found.message, HasSubstr(tensor));
      std::vector<std::byte> bytes(1);
      const auto read = (*reader)->read(tensor, byte - layout->find(tensor)->entry.begin, bytes);
      ASSERT_FALSE(read);
      EXPECT_EQ(read.error().message, found.message);
    }
  }
  flip(path, byte, bit);
  EXPECT_TRUE(FolderReader::open_verified(step).reader) << "it is repaired";
}

TEST(Reader, EveryFlippedByteIsFoundAndNamed) {
  Random random(4);
  for (int round = property::cases(10, 10); round > 0; --round) {
    const TemporaryFolder folder;
    const LayoutPtr layout = random_layout(random);
    save(folder.path(), 5, layout);
    for (int flips = 0; flips < 20; ++flips) flip_and_look(folder.path() + "/step-00000005", layout, random);
  }
}

TEST(Reader, EachBlockIsVerifiedOnce) {
  const TemporaryFolder folder;
  const LayoutPtr layout = small_layout();
  save(folder.path(), 1, layout);
  const std::string step = folder.path() + "/step-00000001";
  const auto reader = must(FolderReader::open(step));
  std::vector<std::byte> bytes(4);
  must(reader->read("embed.weight", 0, bytes));
  const TensorPlace& place = *layout->find("embed.weight");
  flip(step + "/" + layout->files[0].name, place.entry.begin + 100, 0);
  EXPECT_TRUE(reader->read("embed.weight", 0, bytes));
  EXPECT_FALSE(FolderReader::open(step));
}

TEST(Reader, FilesThatAreMissingCutOrReplaced) {
  const TemporaryFolder folder;
  const LayoutPtr layout = small_layout();
  const std::string step = folder.path() + "/step-00000001", model = step + "/model-00001-of-00001.safetensors";
  EXPECT_EQ(message(FolderReader::open(step)), step + " is not a checkpoint: there is no such folder");
  save(folder.path(), 1, layout);
  const std::string text = read_text(model);
  write_text(model, text.substr(0, text.size() - 1));
  EXPECT_EQ(message(FolderReader::open(step)),
            fmt::format("{}: it has {} bytes when it should have {}", model, text.size() - 1, text.size()));
  fs::remove(model);
  EXPECT_EQ(message(FolderReader::open(step)), model + ": the file is missing");
  fs::remove(step + "/piper.json");
  EXPECT_EQ(message(FolderReader::open(step)), step + " is not a checkpoint: it has no piper.json");
}

TEST(Reader, AllDamageIsListed) {
  const TemporaryFolder folder;
  const LayoutPtr layout = small_layout();
  const std::string step = folder.path() + "/step-00000001";
  save(folder.path(), 1, layout);
  flip(step + "/model-00001-of-00001.safetensors", layout->find("head.bias")->entry.begin, 3);
  flip(step + "/model.safetensors.index.json", 40, 3);
  fs::remove(step + "/optimizer-00001-of-00001.safetensors");
  std::string all;
  for (const Diagnostic& problem : FolderReader::open_verified(step).problems)
    all += problem.message.substr(step.size() + 1) + "\n";
  EXPECT_EQ(all, R"(optimizer-00001-of-00001.safetensors: the file is missing
model-00001-of-00001.safetensors: bytes 0 to 310 (its header, embed.weight, head.bias) have changed since they were written
model.safetensors.index.json: bytes 0 to 177 have changed since they were written
)");
}

TEST(Reader, ModelFoldersOfTransformers) {
  const TemporaryFolder folder;
  const auto write = [&](const std::string& name, const std::vector<StoredTensor>& tensors) {
    const SafetensorsHeader header = make_header(tensors, {{"format", "pt"}});
    std::string text = print(header);
    for (const StoredTensor& tensor : tensors) {
      const std::vector<std::byte> bytes = bytes_of_tensor(tensor.name, bytes_of(tensor), 0);
      text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    write_text(folder.path() + "/" + name, text);
  };
  const std::string path = folder.path();
  EXPECT_EQ(message(FolderReader::open_foreign(path)),
            path + " is no model folder: it has neither model.safetensors.index.json nor model.safetensors");
  write("model.safetensors", {{"a", StoredDType::F32, {3}}});
  const auto one = must(FolderReader::open_foreign(path));
  std::vector<std::byte> bytes(8);
  must(one->read("a", 4, bytes));
  const std::vector<std::byte> whole = bytes_of_tensor("a", 12, 0);
  EXPECT_TRUE(std::ranges::equal(bytes, std::span(whole).subspan(4)));
  EXPECT_TRUE(one->is_foreign());

  write("x.safetensors", {{"a", StoredDType::F32, {3}}});
  write("y.safetensors", {{"b", StoredDType::I64, {2, 2}}});
  const std::string index = path + "/model.safetensors.index.json";
  write_text(index, R"({"weight_map": {"a": "x.safetensors", "b": "y.safetensors"}})");
  EXPECT_EQ(must(FolderReader::open_foreign(path))->layout().places.size(), 2u);
  write_text(index, R"({"weight_map": {"a": "y.safetensors", "b": "y.safetensors"}})");
  EXPECT_EQ(message(FolderReader::open_foreign(path)),
            path + "/y.safetensors: tensor \"a\" is not in it, although model.safetensors.index.json says so");
  write_text(index, R"({"weight_map": {"a": "../x.safetensors"}})");
  EXPECT_EQ(message(FolderReader::open_foreign(path)), index + ": \"../x.safetensors\" is no name of a file");
  write_text(index, R"({"weight_map": {"a": "none.safetensors"}})");
  EXPECT_EQ(message(FolderReader::open_foreign(path)), "there is no " + path + "/none.safetensors");
  write("y.safetensors", {{"a", StoredDType::F32, {3}}});
  write_text(index, R"({"weight_map": {"a": "x.safetensors", "b": "y.safetensors"}})");
  EXPECT_EQ(message(FolderReader::open_foreign(path)), path + "/y.safetensors: tensor \"a\" is in another file too");
}

TEST(Reader, ACheckpointIsAModelFolder) {
  const TemporaryFolder folder;
  save(folder.path(), 1, small_layout());
  const auto reader = must(FolderReader::open_foreign(folder.path() + "/step-00000001"));
  EXPECT_TRUE(reader->layout().find("embed.weight"));
  EXPECT_FALSE(reader->layout().find("embed.weight.exp_avg")) << "the index names the model alone";
}

}  // namespace
}  // namespace piper::checkpoint_tests
