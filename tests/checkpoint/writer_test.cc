#include "checkpoint/writer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <thread>

#include "checkpoint/sample_folder.h"
#include "must.h"
#include "property/random.h"

namespace piper::checkpoint_tests {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A piece of a tensor that one writer writes.
struct Piece {
  int file;
  int64_t begin;
  std::vector<std::byte> bytes;
};

std::vector<Piece> random_pieces(const LayoutPtr& layout, int64_t step, Random& random) {
  std::vector<Piece> pieces;
  for (const auto& [name, place] : layout->places) {
    const std::vector<std::byte> bytes = bytes_of_tensor(name, place.entry.bytes, step);
    for (int64_t at = 0; at < place.entry.bytes;) {
      const int64_t size = std::min(place.entry.bytes - at, 1 + up_to(random, place.entry.bytes / 3));
      pieces.push_back({place.file, place.entry.begin + at, {bytes.begin() + at, bytes.begin() + at + size}});
      at += size;
    }
  }
  std::ranges::shuffle(pieces, random);
  return pieces;
}

TEST(Writer, ManyWritersGiveTheBytesOfOne) {
  Random random(2);
  for (int round = property::cases(15, 15); round > 0; --round) {
    const TemporaryFolder alone, together;
    const LayoutPtr layout = random_layout(random);
    save(alone.path(), 7, layout);
    std::vector<std::unique_ptr<FolderWriter>> writers;
    writers.push_back(must(FolderWriter::prepare(together.path(), 7, layout)));
    for (int64_t more = up_to(random, 4); more > 0; --more)
      writers.push_back(must(FolderWriter::open(together.path(), 7, layout)));
    const std::vector<Piece> pieces = random_pieces(layout, 7, random);
    {
      std::vector<std::jthread> threads;
      for (size_t w = 0; w < writers.size(); ++w)
        threads.emplace_back([&, w] {
          for (size_t i = w; i < pieces.size(); i += writers.size())
            must(writers[w]->write(pieces[i].file, pieces[i].begin, pieces[i].bytes));
        });
    }
    std::vector<SummedRange> ranges;
    for (const auto& writer : writers) {
      must(writer->sync());
      const std::vector<SummedRange> its = must(writer->ranges());
      ranges.insert(ranges.end(), its.begin(), its.end());
    }
    must(writers[0]->commit(state_at(7), ranges));
    EXPECT_THAT(names_in(together.path()), ElementsAre("step-00000007"));
    const std::string one = alone.path() + "/step-00000007/", many = together.path() + "/step-00000007/";
    ASSERT_EQ(names_in(one).size(), names_in(many).size());
    for (const std::string& name : names_in(one)) EXPECT_TRUE(read_text(one + name) == read_text(many + name)) << name;
    expect_saved(*must(FolderReader::open(many)), layout, 7);
  }
}

TEST(Writer, CountsWrites) {
  const TemporaryFolder folder;
  const auto layout = std::make_shared<const FolderLayout>(must(make_layout({{"a", StoredDType::U8, {100}}}, {})));
  const auto writer = must(FolderWriter::prepare(folder.path(), 1, layout));
  EXPECT_TRUE(writer->sizes().empty()) << "heads do not count";
  const TensorPlace& a = *layout->find("a");
  const std::vector<std::byte> bytes(100);
  int64_t at = a.entry.begin;
  for (const int64_t size : {10, 50, 5, 35}) {
    must(writer->write(a.file, at, std::span(bytes).first(size)));
    at += size;
  }
  const WriteCounts counts = count(writer->sizes());
  EXPECT_EQ(counts.writes, 4);
  EXPECT_EQ(counts.bytes, 100);
  EXPECT_EQ(counts.smallest, 5);
  EXPECT_EQ(counts.median, 10);
}

TEST(Writer, WritesNoMoreThanABlockAtOnce) {
  const TemporaryFolder folder;
  const auto layout =
      std::make_shared<const FolderLayout>(must(make_layout({{"a", StoredDType::U8, {block_bytes + 5}}}, {})));
  const auto writer = must(FolderWriter::prepare(folder.path(), 1, layout));
  const TensorPlace& a = *layout->find("a");
  must(writer->write(a.file, a.entry.begin, std::vector<std::byte>(block_bytes + 5)));
  EXPECT_EQ(writer->sizes(), (WriteSizes{{a.entry.begin + 5, 1}, {block_bytes - a.entry.begin, 1}}));
}

TEST(Writer, WhatIsNotWrittenIsNotCommitted) {
  const TemporaryFolder folder;
  const LayoutPtr layout = small_layout();
  const auto writer = must(FolderWriter::prepare(folder.path(), 1, layout));
  const auto committed = writer->commit(state_at(1), must(writer->ranges()));
  ASSERT_FALSE(committed);
  EXPECT_THAT(committed.error().message, HasSubstr("of model-00001-of-00001.safetensors were not written"));
  EXPECT_THAT(names_in(folder.path()), ElementsAre("step-00000001.partial"));
  must(writer->abandon());
  EXPECT_THAT(names_in(folder.path()), ElementsAre());
}

TEST(Writer, TakesThePlaceOfWhatHadItsName) {
  const TemporaryFolder folder;
  const LayoutPtr layout = small_layout();
  write_text(folder.path() + "/step-00000003.partial/leftover", "of a crash");
  save(folder.path(), 3, layout);
  EXPECT_FALSE(fs::exists(folder.path() + "/step-00000003/leftover"));
  flip(folder.path() + "/step-00000003/piper.json", 5, 0);
  save(folder.path(), 3, layout);
  expect_saved(*must(FolderReader::open(folder.path() + "/step-00000003")), layout, 3);
  EXPECT_THAT(names_in(folder.path()), ElementsAre("step-00000003"));
  flip(folder.path() + "/step-00000003/piper.json", 5, 0);
  FileCalls old = system_calls;
  old.exchange = [](const char*, const char*) { return errno = EINVAL, -1; };
  save(folder.path(), 3, layout, old);
  expect_saved(*must(FolderReader::open(folder.path() + "/step-00000003")), layout, 3);
  EXPECT_THAT(names_in(folder.path()), ElementsAre("step-00000003"));
}

TEST(Writer, MakesTheFoldersAbove) {
  const TemporaryFolder folder;
  save(folder.path() + "/a/b/c", 1, small_layout());
  EXPECT_TRUE(fs::exists(folder.path() + "/a/b/c/step-00000001/piper.json"));
}

TEST(Writer, ShortAndInterruptedWritesGoOn) {
  static int calls;
  calls = 0;
  FileCalls slow = system_calls;
  slow.pwrite = [](int file, const void* bytes, size_t count, off_t at) -> ssize_t {
    if (++calls % 3 == 0) return errno = EINTR, -1;
    return system_calls.pwrite(file, bytes, std::max<size_t>(1, count / 2), at);
  };
  const TemporaryFolder folder;
  const LayoutPtr layout = small_layout();
  save(folder.path(), 1, layout, slow);
  expect_saved(*must(FolderReader::open(folder.path() + "/step-00000001")), layout, 1);
}

/// The nth call of its kind fails; whatever came of it, the older checkpoint is the newest sound one.
TEST(Writer, EveryFailingCallIsReportedAndLeavesTheOlderCheckpoint) {
  static int left, reason;
  const auto fails = [] {
    if (left-- != 0) return false;
    errno = reason;
    return true;
  };
  static bool (*const fail)() = +fails;
  FileCalls faulty[3] = {system_calls, system_calls, system_calls};
  faulty[0].pwrite = [](int file, const void* bytes, size_t count, off_t at) -> ssize_t {
    return fail() ? -1 : system_calls.pwrite(file, bytes, count, at);
  };
  faulty[1].fsync = [](int file) { return fail() ? -1 : system_calls.fsync(file); };
  faulty[2].rename = [](const char* from, const char* to) { return fail() ? -1 : system_calls.rename(from, to); };
  const TemporaryFolder folder;
  const LayoutPtr layout = small_layout();
  save(folder.path(), 1, layout);
  int failed = 0;
  for (const FileCalls& calls : faulty)
    for (const int why : {ENOSPC, EIO, EDQUOT})
      for (int nth = 0;; ++nth) {
        left = nth, reason = why;
        try {
          save(folder.path(), 2, layout, calls);
          break;  // there are no more calls of this kind
        } catch (const std::exception& problem) {
          ++failed;
          EXPECT_THAT(problem.what(), HasSubstr("error[E903]: cannot write " + folder.path()));
          EXPECT_THAT(problem.what(), HasSubstr(std::strerror(why)));
        }
        const NewestSound newest = newest_sound(folder.path());
        ASSERT_TRUE(newest.reader);
        // where only the last fsync of the parent failed the name is there, and so are all bytes
        const bool named = fs::exists(folder.path() + "/step-00000002");
        expect_saved(*newest.reader, layout, named ? 2 : 1);
        fs::remove_all(folder.path() + "/step-00000002");
      }
  EXPECT_GE(failed, 30);
}

TEST(Writer, AFolderRemovedUnderItIsReported) {
  const TemporaryFolder folder;
  const LayoutPtr layout = small_layout();
  for (const bool parent : {false, true}) {
    const auto writer = must(FolderWriter::prepare(folder.path() + "/run", 1, layout));
    fs::remove_all(folder.path() + (parent ? "/run" : "/run/step-00000001.partial"));
    for (const auto& [name, place] : layout->places)
      must(writer->write(place.file, place.entry.begin, bytes_of_tensor(name, place.entry.bytes, 1)));
    const auto committed = writer->commit(state_at(1), must(writer->ranges()));
    ASSERT_FALSE(committed);
    EXPECT_EQ(committed.error().code, ErrorCode::E903);
    EXPECT_THAT(committed.error().message, HasSubstr("No such file or directory"));
    EXPECT_FALSE(fs::exists(folder.path() + "/run/step-00000001"));
    EXPECT_FALSE(FolderWriter::open(folder.path() + "/run", 1, layout));
  }
}

}  // namespace
}  // namespace piper::checkpoint_tests
