#include "train/gpu_claims.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "train/golden_text.h"

namespace piper {
namespace {

using testing::ElementsAre;

TEST(GpuClaims, EveryProcessGetsOneOfItsOwn) {
  const std::vector<std::string> left = {"a", "b"}, right = {"c", "d"};
  EXPECT_THAT(*give_out({{"0", left}, {"1", left}, {"2", right}, {"3", right}}), ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(*give_out({{"0", left}, {"1", right}, {"2", left}, {"3", right}}), ElementsAre(0, 0, 1, 1));
  // a launcher may show each process only its own, or in another order
  EXPECT_THAT(*give_out({{"0", {"a"}}, {"1", {"b"}}}), ElementsAre(0, 0));
  EXPECT_THAT(*give_out({{"0", {"b", "a"}}, {"1", {"a", "b"}}}), ElementsAre(0, 0));
}

TEST(GpuClaims, TooFew) {
  const std::vector<std::string> two = {"a", "b"};
  auto refused = give_out({{"rank 0 on node7", two}, {"rank 1 on node7", two}, {"rank 2 on node7", two}});
  ASSERT_FALSE(refused);
  expect_golden("E807_too_few_gpus", render(refused.error()));
  EXPECT_THAT(render(give_out({{"rank 0 on node7", {}}}).error()),
              testing::HasSubstr("rank 0 on node7 sees no GPU that can be used"));
}

}  // namespace
}  // namespace piper
