#include "checkpoint/folders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "checkpoint/folder_names.h"
#include "checkpoint/sample_folder.h"
#include "must.h"

namespace piper::checkpoint_tests {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

std::vector<int64_t> steps_in(const std::string& parent) {
  std::vector<int64_t> steps;
  for (const CheckpointFolder& folder : must(list_checkpoints(parent))) steps.push_back(folder.step);
  return steps;
}

TEST(Folders, Names) {
  EXPECT_EQ(checkpoint_name(1000), "step-00001000");
  EXPECT_EQ(checkpoint_name(123456789012), "step-123456789012");
  for (const int64_t step : {int64_t{0}, int64_t{1000}, int64_t{99999999}, int64_t{100000000}})
    EXPECT_EQ(step_of(checkpoint_name(step)), step);
  for (const char* other : {"step-1", "step-00001000.partial", "step-00001000.removed", "step--0000001", "step-",
                            "epoch-00001000", "step-0000100x", "step-000001000", "xstep-00001000", ""})
    EXPECT_EQ(step_of(other), std::nullopt) << other;
}

TEST(Folders, ListHasWholeCheckpointsOnly) {
  const TemporaryFolder folder;
  for (const char* name :
       {"step-00000020", "step-100000000", "step-00000003", "step-00000021.partial", "step-00000001.removed", "other"})
    fs::create_directory(folder.path() + "/" + name);
  write_text(folder.path() + "/step-00000004", "a file");
  EXPECT_THAT(steps_in(folder.path()), ElementsAre(3, 20, 100000000));
  const auto none = list_checkpoints(folder.path() + "/none");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::E901);
}

TEST(Folders, TheNewestSoundOneIsTaken) {
  const TemporaryFolder folder;
  const LayoutPtr layout = small_layout();
  EXPECT_FALSE(newest_sound(folder.path()).reader);
  for (const int64_t step : {1, 2, 3, 4}) save(folder.path(), step, layout);
  fs::create_directory(folder.path() + "/step-00000005.partial");
  flip(folder.path() + "/step-00000003/" + layout->files[0].name, layout->files[0].bytes - 1, 0);
  fs::remove(folder.path() + "/step-00000004/piper.json");
  const NewestSound newest = newest_sound(folder.path());
  ASSERT_TRUE(newest.reader);
  expect_saved(*newest.reader, layout, 2);
  ASSERT_EQ(newest.left_out.size(), 2u);
  EXPECT_THAT(newest.left_out[0].message, HasSubstr("step-00000004 is not a checkpoint: it has no piper.json"));
  EXPECT_THAT(newest.left_out[1].message, HasSubstr("step-00000003/model-00001-of-00001.safetensors: bytes 0 to "));
}

TEST(Folders, KeepDeletesOlderOnesAndLeftovers) {
  const TemporaryFolder folder;
  for (const int64_t step : {100, 150, 200, 250, 300, 350}) save(folder.path(), step, small_layout());
  for (const char* name : {"step-00000050.removed", "step-00000400.partial", "mine.partial"})
    write_text(folder.path() + "/" + name + "/x", "");
  must(keep(folder.path(), 2, 200));
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder.path())) names.push_back(entry.path().filename());
  EXPECT_THAT(names, UnorderedElementsAre("step-00000200", "step-00000300", "step-00000350", "mine.partial"));
  must(keep(folder.path(), 1, 0));
  EXPECT_THAT(steps_in(folder.path()), ElementsAre(350));
  must(keep(folder.path(), 5, 0));
  EXPECT_THAT(steps_in(folder.path()), ElementsAre(350));
}

}  // namespace
}  // namespace piper::checkpoint_tests
