// "did you mean": what counts as near, and what is said when nothing is.
#include "base/suggest.h"

#include <gtest/gtest.h>

namespace piper {
namespace {

const std::vector<std::string> verbs = {"devices", "mesh", "split", "place", "replicate", "shard"};

TEST(Suggest, LettersMissingWrongSwappedOrTooMany) {
  EXPECT_EQ(nearest("plce", verbs), "place");
  EXPECT_EQ(nearest("plase", verbs), "place");
  EXPECT_EQ(nearest("palce", verbs), "place");
  EXPECT_EQ(nearest("placce", verbs), "place");
  EXPECT_EQ(nearest("PLACE", verbs), "place");
}

TEST(Suggest, OneLetterInThreeMayBeWrong) {
  EXPECT_EQ(nearest("replcat", verbs), "replicate");
  EXPECT_EQ(nearest("banana", verbs), "");
}

TEST(Suggest, AWordWithoutACommonLetterIsNotMeant) {
  EXPECT_EQ(nearest("x", {"F", "B"}), "");
  EXPECT_EQ(nearest("f", {"F", "B"}), "F");
  EXPECT_EQ(nearest("", {"F", "B"}), "");
}

TEST(Suggest, UnderscoresAreHyphens) {
  EXPECT_EQ(nearest("zb_h3", {"zb-v", "zb-h1", "gpipe"}), "zb-h1");
  EXPECT_EQ(nearest("zb_h1", {"zb-h2", "zb-h1"}), "zb-h1");
}

TEST(Suggest, TheNearestWins) {
  EXPECT_EQ(nearest("layer", {"layers", "layer"}), "layer");
}

TEST(Suggest, LongAndForeignTextIsHarmless) {
  EXPECT_EQ(nearest(std::string(100'000, 'x'), verbs), "");
  EXPECT_EQ(nearest("\xC3\xA4\xFF", verbs), "");
}

TEST(Suggest, Sentences) {
  EXPECT_EQ(did_you_mean("plce", verbs), "did you mean \"place\"?");
  EXPECT_EQ(did_you_mean("banana", {"F", "B"}), "known: F, B");
  EXPECT_EQ(did_you_mean("banana", {}), "");
  EXPECT_EQ(did_you_mean("zzzzzz", {"a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8", "a9", "b1", "b2", "b3", "b4"}),
            "known: a1, a2, a3, a4, a5, a6, a7, a8, a9, b1, b2, b3, … (13 in all)");
}

}  // namespace
}  // namespace piper
