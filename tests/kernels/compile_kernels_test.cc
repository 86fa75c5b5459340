// Processes that compile, with something in place of Python.
#include "kernels/compile_kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/folders.h"

namespace piper {
namespace {

using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// What is said of each of these folders, once.
std::vector<std::string> problems(const TestFolder& folder, const std::string& script,
                                  const std::vector<std::string>& folders, int processes = 2) {
  put_text(folder / "python", "#!/bin/sh\n" + script);
  std::filesystem::permissions(folder / "python", std::filesystem::perms::owner_all);
  std::vector<std::string> out(folders.size(), "nothing");
  compile_kernels({folder / "python", processes}, folders, [&](size_t i, const std::string& problem) {
    EXPECT_EQ(out[i], "nothing");
    out[i] = problem;
  });
  return out;
}

const std::string begins = "echo '{}'\nwhile read folder; do\n";

TEST(CompileKernels, EveryFolderIsHeardOf) {
  const TestFolder folder;
  const std::string script =
      begins + "case $folder in bad) echo '{\"problem\": \"cannot\"}';; *) echo '{}';; esac\ndone\n";
  EXPECT_THAT(problems(folder, script, {"a", "b", "bad", "c", "d"}), ElementsAre("", "", "cannot", "", ""));
  EXPECT_THAT(problems(folder, script, {}), IsEmpty());
}

TEST(CompileKernels, NoInterpreter) {
  std::vector<std::string> said;
  compile_kernels({"/no/such/python", 2}, {"a", "b"},
                  [&](size_t, const std::string& problem) { said.push_back(problem); });
  EXPECT_THAT(said, Each(HasSubstr("/no/such/python: No such file or directory")));
  EXPECT_EQ(said.size(), 2u);
}

TEST(CompileKernels, AnInterpreterThatCannotBegin) {
  const TestFolder folder;
  EXPECT_THAT(problems(folder, "echo '{\"problem\": \"no torch\"}'\n", {"a", "b"}), Each("no torch"));
  EXPECT_THAT(problems(folder, "echo first >&2\necho 'it breaks' >&2\nexit 1\n", {"a"}), Each(HasSubstr("it breaks")));
}

TEST(CompileKernels, AProcessThatDiesTakesNoOtherWithIt) {
  const TestFolder folder;
  const std::string script = begins + "case $folder in bad) kill -9 $$;; *) echo '{}';; esac\ndone\n";
  EXPECT_THAT(problems(folder, script, {"a", "bad", "b", "bad", "c"}, 1),
              ElementsAre("", "the compiler's process ended: it was ended by signal 9", "",
                          "the compiler's process ended: it was ended by signal 9", ""));
}

}  // namespace
}  // namespace piper
