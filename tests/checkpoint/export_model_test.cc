#include "checkpoint/export_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "checkpoint/sample_folder.h"
#include "must.h"

namespace piper::checkpoint_tests {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

TEST(ExportModel, HasTheModelWithoutTheOptimizer) {
  const TemporaryFolder folder;
  FolderLayout with_config = *small_layout();
  add_text(with_config, "config.json", "{}\n");
  save(folder.path(), 1, std::make_shared<const FolderLayout>(with_config));
  const std::string step = folder.path() + "/step-00000001", out = folder.path() + "/exports/model";
  must(export_model(*must(FolderReader::open(step)), out));
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(out)) {
    names.push_back(entry.path().filename());
    EXPECT_EQ(read_text(entry.path()), read_text(step + "/" + names.back()));
  }
  EXPECT_THAT(names,
              UnorderedElementsAre("model-00001-of-00001.safetensors", "model.safetensors.index.json", "config.json"));
  EXPECT_EQ(must(FolderReader::open_foreign(out))->layout().places.size(), 2u);
  const auto again = export_model(*must(FolderReader::open(step)), out);
  ASSERT_FALSE(again);
  EXPECT_THAT(render(again.error()), HasSubstr("error[E903]: cannot write " + out + ": Directory not empty"));
}

}  // namespace
}  // namespace piper::checkpoint_tests
