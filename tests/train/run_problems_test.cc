#include "train/run_problems.h"

#include <gtest/gtest.h>

#include "train/golden_text.h"

namespace piper {
namespace {

TEST(RunProblems, NotFinite) {
  expect_golden("E803_not_finite",
                render(as_diagnostic({RunProblem::NotFinite,
                                      "device 1: op 31 update bucket0.head on compute: step 7 is not "
                                      "finite: loss nan, norm of the gradients nan"})));
}

TEST(RunProblems, WithoutLibtorch) {
  expect_golden("E804_without_libtorch", render(built_without_libtorch()));
}

}  // namespace
}  // namespace piper
