#include "checkpoint/sample_folder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "must.h"

namespace piper::checkpoint_tests {

TemporaryFolder::TemporaryFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "piper_checkpoint_XXXXXX").string();
  if (!mkdtemp(name.data())) throw std::runtime_error("no temporary folder");
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

int64_t up_to(Random& random, int64_t most) {
  return static_cast<int64_t>(random() % (static_cast<uint64_t>(most) + 1));
}

LayoutPtr small_layout() {
  return std::make_shared<const FolderLayout>(
      must(make_layout({{"embed.weight", StoredDType::F32, {4, 8}}, {"head.bias", StoredDType::BF16, {3}}},
                       {{"embed.weight.exp_avg", StoredDType::F32, {4, 8}}})));
}

LayoutPtr random_layout(Random& random) {
  const auto some = [&](const std::string& prefix, int64_t most) {
    std::vector<StoredTensor> out;
    const int64_t count = up_to(random, most);
    for (int64_t i = 0; i < count; ++i) {
      const auto dtype = static_cast<StoredDType>(up_to(random, 9));
      std::vector<int64_t> sizes;
      for (int64_t dim = up_to(random, 3); dim > 0; --dim) sizes.push_back(up_to(random, 40));
      out.push_back({fmt::format("{}.{}", prefix, i), dtype, std::move(sizes)});
    }
    return out;
  };
  std::vector<StoredTensor> model = some("layer", 6);
  model.push_back({"wide", StoredDType::U8, {block_bytes + up_to(random, 2 * block_bytes)}});
  for (StoredTensor& tensor : some("late", 3)) model.push_back(std::move(tensor));
  const int64_t shard_size = int64_t{1} << up_to(random, 24);
  return std::make_shared<const FolderLayout>(must(make_layout(std::move(model), some("moment", 5), shard_size)));
}

std::vector<std::byte> bytes_of_tensor(const std::string& tensor, int64_t bytes, int64_t step) {
  Random random(std::hash<std::string>()(tensor) + static_cast<uint64_t>(step));
  std::vector<std::byte> out(static_cast<size_t>(bytes));
  for (size_t at = 0; at < out.size(); at += 8) {
    const uint64_t word = random();
    std::memcpy(&out[at], &word, std::min<size_t>(8, out.size() - at));
  }
  return out;
}

RunState state_at(int64_t step) {
  RunState state;
  state.step = step;
  state.samples = 32 * step;
  state.updates = step;
  state.seed = 17;
  state.learning_rate = 3e-4;
  state.loss = 1.0 / 3;
  state.plan = 0x36e103b48ffcbb93;
  state.configuration = "[model]\nhidden = 8\n";
  return state;
}

const FileCalls unsynced_calls = {system_calls.pwrite, [](int) { return 0; }, system_calls.rename,
                                  system_calls.exchange};

void save(const std::string& parent, int64_t step, const LayoutPtr& layout, const FileCalls& calls) {
  const auto writer = must(FolderWriter::prepare(parent, step, layout, calls));
  for (const auto& [name, place] : layout->places)
    must(writer->write(place.file, place.entry.begin, bytes_of_tensor(name, place.entry.bytes, step)));
  must(writer->commit(state_at(step), must(writer->ranges())));
}

NewestSound newest_sound(const std::string& parent) {
  std::vector<CheckpointFolder> folders = must(list_checkpoints(parent));
  NewestSound out;
  for (; !folders.empty() && !out.reader; folders.pop_back()) {
    VerifiedFolder verified = FolderReader::open_verified(folders.back().path);
    out.reader = std::move(verified.reader);
    if (!out.reader) out.left_out.push_back(std::move(verified.problems[0]));
  }
  return out;
}

void expect_saved(const FolderReader& reader, const LayoutPtr& layout, int64_t step) {
  EXPECT_EQ(reader.state(), state_at(step));
  ASSERT_EQ(reader.layout().places.size(), layout->places.size());
  for (const auto& [name, place] : layout->places) {
    ASSERT_TRUE(reader.layout().find(name)) << name;
    EXPECT_EQ(reader.layout().find(name)->entry, place.entry);
    std::vector<std::byte> bytes(static_cast<size_t>(place.entry.bytes));
    must(reader.read(name, 0, bytes));
    EXPECT_TRUE(bytes == bytes_of_tensor(name, place.entry.bytes, step)) << name;
  }
}

std::set<std::string> names_in(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("no file " + path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

void write_text(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

void flip(const std::string& path, int64_t byte, int bit) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(byte);
  const int before = file.get();
  file.seekp(byte);
  file.put(static_cast<char>(before ^ (1 << bit)));
  if (!file) throw std::runtime_error("cannot change " + path);
}

}  // namespace piper::checkpoint_tests
