// The messages that docs/errors shows.
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>

#include "checkpoint/sample_folder.h"
#include "expect_golden.h"
#include "must.h"

namespace piper::checkpoint_tests {
namespace {

namespace fs = std::filesystem;

/// In a folder with a checkpoint of step 1000, so that names in messages are the same everywhere.
class Messages : public ::testing::Test {
 protected:
  Messages() : before_(fs::current_path()) {
    fs::current_path(folder_.path());
    save("run", 1000, small_layout());
  }
  ~Messages() override { fs::current_path(before_); }

  void expect(const std::string& name, const Diagnostic& problem) {
    expect_golden_in("checkpoint", name, render(problem));
  }

  const std::string step = "run/step-00001000";

 private:
  TemporaryFolder folder_;
  const fs::path before_;
};

TEST_F(Messages, NotACheckpoint) {
  expect("E901_no_such_folder", FolderReader::open("run/step-00002000").error());
  expect("E901_no_piper_json", FolderReader::open("run").error());
  expect("E901_no_model_folder", FolderReader::open_foreign("run").error());
  expect("E901_nowhere", list_checkpoints("runs").error());
  write_text(step + "/piper.json", R"({"format": "piper-checkpoint", "version": 2})");
  expect("E901_version", FolderReader::open(step).error());
}

TEST_F(Messages, Damaged) {
  const LayoutPtr layout = small_layout();
  flip(step + "/model-00001-of-00001.safetensors", layout->find("head.bias")->entry.begin, 0);
  expect("E902_block", FolderReader::open_verified(step).problems.at(0));
  fs::remove(step + "/optimizer-00001-of-00001.safetensors");
  expect("E902_missing", FolderReader::open_verified(step).problems.at(0));
  write_text("./model.safetensors", print(make_header({{"a", StoredDType::F32, {3}}})) + "too short");
  expect("E902_header", FolderReader::open_foreign(".").error());
  const std::string json = read_text(step + "/piper.json");
  write_text(step + "/piper.json", std::string(json).replace(json.find("32000"), 1, "4"));
  expect("E902_piper_json", FolderReader::open(step).error());
}

TEST_F(Messages, CannotBeWritten) {
  FileCalls full = system_calls;
  full.pwrite = [](int, const void*, size_t, off_t) -> ssize_t { return errno = ENOSPC, -1; };
  expect("E903_disk_full", FolderWriter::prepare("run", 2000, small_layout(), full).error());
  const auto writer = must(FolderWriter::prepare("run", 2000, small_layout()));
  expect("E903_not_written", writer->commit(state_at(2000), must(writer->ranges())).error());
  expect("E903_same_name", make_layout({{"a", StoredDType::F32, {1}}, {"a", StoredDType::F32, {1}}}, {}).error());
}

}  // namespace
}  // namespace piper::checkpoint_tests
