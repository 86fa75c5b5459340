// Kernels on disk: what is found was built of the same text and is whole.
#include "kernels/kernel_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/folders.h"

namespace piper {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

/// As if something was compiled.
std::string built(const KernelCache& cache, const std::string& text, const std::string& library = "code") {
  const CachePath begun = cache.begin(text);
  EXPECT_EQ(begun.problem, "");
  put_text(begun.path + "/kernel.so", library);
  put_text(begun.path + "/left.over.cpp", "not needed");
  const CachePath done = cache.finish(begun.path, text);
  EXPECT_EQ(done.problem, "");
  EXPECT_FALSE(std::filesystem::exists(begun.path));
  return done.path;
}

std::string folder_of(const std::string& library) {
  return std::filesystem::path(library).parent_path().string();
}

TEST(KernelCache, FindsWhatWasBuiltOfTheSameText) {
  const TestFolder folder;
  const KernelCache cache(folder / "new/cache");
  EXPECT_EQ(cache.find("one").path, "");
  EXPECT_EQ(cache.find("one").problem, "");
  const std::string library = built(cache, "one");
  EXPECT_THAT(library, EndsWith("/kernel.so"));
  EXPECT_EQ(cache.find("one").path, library);
  EXPECT_EQ(cache.find("two").path, "");
  EXPECT_EQ(text_in(folder_of(library) + "/text"), "one");
  EXPECT_FALSE(std::filesystem::exists(folder_of(library) + "/left.over.cpp"));
}

TEST(KernelCache, DamageIsFound) {
  const TestFolder folder;
  const KernelCache cache(folder.path());
  const std::string library = built(cache, "one");
  put_text(library, "Code");
  EXPECT_THAT(cache.find("one").problem, HasSubstr("is damaged: its checksums are wrong"));
  EXPECT_EQ(cache.find("one").path, "");
  std::filesystem::remove(folder_of(library) + "/sums");
  EXPECT_THAT(cache.find("one").problem, HasSubstr("has no checksums"));
  EXPECT_EQ(built(cache, "one"), library);
  EXPECT_EQ(text_in(library), "code");
  EXPECT_EQ(cache.find("one").path, library);
}

TEST(KernelCache, AnEntryOfSomethingElseIsFound) {
  const TestFolder folder;
  const KernelCache cache(folder.path());
  const std::string one = folder_of(built(cache, "one")), two = folder_of(built(cache, "two"));
  std::filesystem::remove_all(one);
  std::filesystem::rename(two, one);
  EXPECT_THAT(cache.find("one").problem, HasSubstr("was made of something else"));
}

TEST(KernelCache, OfTwoThatBuildTheSameTheFirstStays) {
  const TestFolder folder;
  const KernelCache cache(folder.path());
  const CachePath slow = cache.begin("one");
  put_text(slow.path + "/kernel.so", "slow");
  const std::string library = built(cache, "one", "fast");
  EXPECT_EQ(cache.finish(slow.path, "one").path, library);
  EXPECT_EQ(text_in(library), "fast");
  EXPECT_FALSE(std::filesystem::exists(slow.path));
}

TEST(KernelCache, AFolderThatCannotBeMade) {
  const TestFolder folder;
  put_text(folder / "file", "");
  EXPECT_THAT(KernelCache(folder / "file/cache").begin("one").problem, HasSubstr("cannot be made: "));
}

}  // namespace
}  // namespace piper
