// Saves that something ends in the middle: afterwards there is a sound checkpoint, the old one or the new one, and
// never a part of one. PIPER_LONG=1 in the environment: many more.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <functional>
#include <iostream>

#include "checkpoint/power_loss.h"
#include "checkpoint/sample_folder.h"
#include "must.h"
#include "property/random.h"

namespace piper::checkpoint_tests {
namespace {

namespace fs = std::filesystem;

/// Enough for three writes a file, with a border of blocks in one of them.
LayoutPtr crash_layout() {
  return std::make_shared<const FolderLayout>(
      must(make_layout({{"a", StoredDType::F32, {100, 7}}, {"b", StoredDType::U8, {block_bytes + 5}}},
                       {{"a.exp_avg", StoredDType::F32, {100, 7}}}, 3'000'000)));
}

/// What is there after the end: the checkpoint of step 1 or 2, whole; then saving and keeping work as if nothing had
/// been. `committed`: it must be step 2.
void expect_recovered(const std::string& parent, const LayoutPtr& layout, bool committed) {
  const NewestSound newest = newest_sound(parent);
  ASSERT_TRUE(newest.reader);
  EXPECT_TRUE(newest.left_out.empty()) << newest.left_out[0].message;
  const int64_t step = newest.reader->state().step;
  EXPECT_GE(step, committed ? 2 : 1);
  for (const CheckpointFolder& folder : must(list_checkpoints(parent)))
    EXPECT_TRUE(FolderReader::open_verified(folder.path).reader) << folder.path << " is a part of a checkpoint";
  expect_saved(*newest.reader, layout, step);
  save(parent, 3, layout);
  must(keep(parent, 1, 0));
  for (const auto& entry : fs::directory_iterator(parent)) EXPECT_EQ(entry.path().filename(), "step-00000003");
}

/// One save of a run: step 2, where a damaged folder may have the name, then step 1 is deleted.
void save_and_keep(const std::string& parent, const LayoutPtr& layout, const FileCalls& calls = system_calls) {
  save(parent, 2, layout, calls);
  must(keep(parent, 1, 0));
}

void begin(const std::string& parent, const LayoutPtr& layout, bool name_taken) {
  save(parent, 1, layout);
  if (name_taken) write_text(parent + "/step-00000002/piper.json", "{}");
}

/// The damaged folder has the name until the new one takes it.
void free_name(const std::string& parent) {
  const std::string folder = parent + "/step-00000002";
  if (fs::exists(folder) && read_text(folder + "/piper.json") == "{}") fs::remove_all(folder);
}

/// In a process of its own; 0 if it went well.
pid_t in_child(const std::function<void()>& work) {
  std::cout.flush();
  const pid_t child = fork();
  if (child != 0) return child;
  try {
    work();
    _exit(0);
  } catch (const std::exception& problem) {
    std::cerr << problem.what();
    _exit(1);
  }
}

/// Lets a child make so many stops, two for each system call, then kills it. How many it made; nothing where no process
/// may watch another.
std::optional<int64_t> kill_at_stop(pid_t child, int64_t stops) {
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status)) return std::nullopt;
  for (int64_t made = 0;; ++made) {
    if (made == stops) kill(child, SIGKILL);
    if (made == stops || ptrace(PTRACE_SYSCALL, child, nullptr, nullptr) != 0) {
      waitpid(child, &status, 0);
      return made;
    }
    waitpid(child, &status, 0);
    if (WIFEXITED(status) || WIFSIGNALED(status)) return made;
  }
}

pid_t watched_child(const std::function<void()>& work) {
  return in_child([&] {
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(77);
    raise(SIGSTOP);
    work();
  });
}

TEST(Crash, KilledAtARandomSystemCall) {
  const LayoutPtr layout = crash_layout();
  Random random(5);
  int64_t most = 0;
  for (const bool name_taken : {false, true}) {
    const TemporaryFolder folder;
    begin(folder.path(), layout, name_taken);
    const auto stops = kill_at_stop(watched_child([&] { save_and_keep(folder.path(), layout); }), INT64_MAX);
    if (!stops) GTEST_SKIP() << "no process may watch another here";
    EXPECT_GT(*stops, 50);
    most = *stops;
    for (int round = property::cases(20, 125); round > 0; --round) {
      const TemporaryFolder other;
      begin(other.path(), layout, name_taken);
      kill_at_stop(watched_child([&] { save_and_keep(other.path(), layout); }), up_to(random, most));
      free_name(other.path());
      expect_recovered(other.path(), layout, false);
    }
  }
}

/// Of all bytes that are written; read by the calls below.
int64_t bytes_left;

TEST(Crash, KilledAtARandomByte) {
  const LayoutPtr layout = crash_layout();
  FileCalls deadly = system_calls;
  deadly.pwrite = [](int file, const void* bytes, size_t count, off_t at) -> ssize_t {
    if (bytes_left < static_cast<int64_t>(count)) {
      (void)system_calls.pwrite(file, bytes, static_cast<size_t>(bytes_left), at);
      kill(getpid(), SIGKILL);
    }
    bytes_left -= static_cast<int64_t>(count);
    return system_calls.pwrite(file, bytes, count, at);
  };
  Random random(6);
  for (int round = property::cases(20, 250); round > 0; --round) {
    const TemporaryFolder folder;
    begin(folder.path(), layout, false);
    bytes_left = up_to(random, layout->bytes() + 1500);  // with piper.json
    const pid_t child = in_child([&] { save_and_keep(folder.path(), layout, deadly); });
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
    expect_recovered(folder.path(), layout, WIFEXITED(status));
  }
}

TEST(Crash, PowerLossDropsWhatWasNotSynced) {
  const LayoutPtr layout = crash_layout();
  Random random(7);
  int lost = 0;
  for (const bool name_taken : {false, true}) {
    for (int64_t calls = 0;; ++calls) {  // one after the other: every call is once the last
      bool committed = true;
      for (int round = property::cases(2, 20); round > 0; --round) {
        const TemporaryFolder folder;
        begin(folder.path(), layout, name_taken);
        PowerLoss disk(folder.path(), calls);
        try {
          save(folder.path(), 2, layout, disk.calls());
        } catch (const PowerLoss::Now&) {
          committed = false;
          ++lost;
        }
        disk.lose(random);
        free_name(folder.path());
        expect_recovered(folder.path(), layout, committed);
        if (HasFailure()) FAIL() << "after " << calls << " calls";
      }
      if (committed) break;
    }
  }
  EXPECT_GT(lost, 20);
}

/// Three processes write step 2: parts of every tensor, so that they meet in every block. `forgetful`: one of them does
/// not sync.
void save_together(const std::string& parent, const LayoutPtr& layout, const FileCalls& calls, bool forgetful) {
  std::vector<std::unique_ptr<FolderWriter>> writers;
  writers.push_back(must(FolderWriter::prepare(parent, 2, layout, calls)));
  while (writers.size() < 3) writers.push_back(must(FolderWriter::open(parent, 2, layout, calls)));
  for (const auto& [name, place] : layout->places) {
    const std::vector<std::byte> bytes = bytes_of_tensor(name, place.entry.bytes, 2);
    for (size_t w = 0; w < writers.size(); ++w) {
      const size_t begin = bytes.size() * w / writers.size(), end = bytes.size() * (w + 1) / writers.size();
      must(writers[w]->write(place.file, place.entry.begin + static_cast<int64_t>(begin),
                             std::span(bytes).subspan(begin, end - begin)));
    }
  }
  std::vector<SummedRange> ranges = must(writers[0]->ranges());
  for (size_t w = 1; w < writers.size(); ++w) {
    if (w == 1 || !forgetful) must(writers[w]->sync());
    for (const SummedRange& range : must(writers[w]->ranges())) ranges.push_back(range);
  }
  must(writers[0]->commit(state_at(2), ranges));
}

TEST(Crash, PowerLossWhileSeveralWrite) {
  const LayoutPtr layout = small_layout();
  Random random(9);
  int lost = 0;
  for (const bool name_taken : {false, true}) {
    for (int64_t calls = 0;; ++calls) {
      bool committed = true;
      for (int round = property::cases(2, 20); round > 0; --round) {
        const TemporaryFolder folder;
        begin(folder.path(), layout, name_taken);
        PowerLoss disk(folder.path(), calls);
        try {
          save_together(folder.path(), layout, disk.calls(), false);
        } catch (const PowerLoss::Now&) {
          committed = false;
          ++lost;
        }
        disk.lose(random);
        free_name(folder.path());
        expect_recovered(folder.path(), layout, committed);
        if (HasFailure()) FAIL() << "after " << calls << " calls";
      }
      if (committed) break;
    }
  }
  EXPECT_GT(lost, 60);
}

/// The fault that the test above is for.
TEST(Crash, PowerLossFindsTheWriterThatDidNotSync) {
  const LayoutPtr layout = small_layout();
  Random random(10);
  int damaged = 0;
  for (int round = 0; round < 20; ++round) {
    const TemporaryFolder folder;
    begin(folder.path(), layout, false);
    PowerLoss disk(folder.path(), INT64_MAX);
    save_together(folder.path(), layout, disk.calls(), true);
    disk.lose(random);
    const NewestSound newest = newest_sound(folder.path());
    ASSERT_TRUE(newest.reader);
    if (newest.left_out.empty()) continue;
    ++damaged;
    EXPECT_EQ(newest.left_out[0].code, ErrorCode::E902);
    EXPECT_EQ(newest.reader->state().step, 1) << "the older one is sound";
  }
  EXPECT_GT(damaged, 0);
}

TEST(Crash, PowerLossSparesTheFoldersAboveTheFirstCheckpoint) {
  const LayoutPtr layout = small_layout();
  Random random(8);
  for (int round = 0; round < 20; ++round) {
    const TemporaryFolder folder;
    PowerLoss disk(folder.path(), INT64_MAX);
    save(folder.path() + "/new/run", 2, layout, disk.calls());
    disk.lose(random);
    expect_recovered(folder.path() + "/new/run", layout, true);
  }
}

TEST(DiskFull, IsReportedAndTheOlderCheckpointStays) {
  const TemporaryFolder folder;
  const LayoutPtr small = small_layout(), large = crash_layout();
  const pid_t child = in_child([&] {
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=2m") != 0)
      _exit(77);
    save(folder.path(), 1, small);
    for (int tries = 0; tries < 3; ++tries) {
      const auto writer = FolderWriter::prepare(folder.path(), 2, large);
      if (writer) throw std::runtime_error("a full disk was not noticed");
      const std::string message = render(writer.error());
      for (const char* part : {"error[E903]: cannot write", "No space left on device", "help: free some space"})
        if (message.find(part) == std::string::npos) throw std::runtime_error(message);
    }
    expect_saved(*newest_sound(folder.path()).reader, small, 1);
    if (fs::exists(folder.path() + "/step-00000002.partial")) throw std::runtime_error("the partial folder stayed");
    if (testing::Test::HasFailure()) _exit(1);
  });
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "needs the right to mount a small file system";
  EXPECT_EQ(status, 0);
}

TEST(NoPermission, IsReported) {
  const TemporaryFolder folder;
  chmod(folder.path().c_str(), 0555);
  const pid_t child = in_child([&] {
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) _exit(77);  // root may do anything
    const auto writer = FolderWriter::prepare(folder.path(), 2, small_layout());
    if (writer) throw std::runtime_error("it was written");
    const std::string message = render(writer.error());
    for (const char* part : {"error[E903]: cannot write", "Permission denied", "help: name a folder that may be"})
      if (message.find(part) == std::string::npos) throw std::runtime_error(message);
  });
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace piper::checkpoint_tests
