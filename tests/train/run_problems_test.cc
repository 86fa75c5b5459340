#include "train/run_problems.h"

#include <gtest/gtest.h>

#include "train/golden_text.h"

namespace piper {
namespace {

TEST(RunProblems, NotFinite) {
  expect_golden(
      "E803_not_finite",
      render(as_diagnostic({RunProblem::NotFinite, "step 7 is not finite: loss nan, norm of the gradients nan"})));
}

TEST(RunProblems, WithoutLibtorch) {
  expect_golden("E804_without_libtorch", render(built_without_libtorch()));
}

TEST(RunProblems, DoNotFit) {
  expect_golden(
      "E805_do_not_fit",
      render(do_not_fit("\n  rank 2 on node7: libtorch is 2.10.0, but 2.11.0 at rank 0\n  rank 3 does not answer")));
}

TEST(RunProblems, WithoutMpi) {
  expect_golden("E806_without_mpi", render(built_without_mpi()));
  expect_golden("E807_without_gpus", render(built_without_gpus()));
  expect_golden("E807_without_nccl", render(built_without_nccl()));
}

}  // namespace
}  // namespace piper
