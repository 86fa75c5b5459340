// Places in text: line and column from 1, the text of the line, and what happens at the ends.
#include "base/source.h"

#include <gtest/gtest.h>

namespace piper {
namespace {

SourcePosition at(const SourceFilePtr& file, int byte) {
  return position_of({file, byte, byte + 1});
}

TEST(Source, LineAndColumnFromOne) {
  const SourceFilePtr file = make_source("f", "ab\ncd\n\nx");
  EXPECT_EQ(at(file, 0).line, 1);
  EXPECT_EQ(at(file, 0).column, 1);
  EXPECT_EQ(at(file, 1).column, 2);
  EXPECT_EQ(at(file, 3).line, 2);
  EXPECT_EQ(at(file, 4).column, 2);
  EXPECT_EQ(at(file, 4).line_text, "cd");
  EXPECT_EQ(at(file, 7).line, 4);
  EXPECT_EQ(at(file, 7).line_text, "x");
}

TEST(Source, ANewlineBelongsToItsLine) {
  const SourceFilePtr file = make_source("f", "ab\n\nc");
  EXPECT_EQ(at(file, 2).line, 1);
  EXPECT_EQ(at(file, 2).column, 3);
  EXPECT_EQ(at(file, 3).line, 2);
  EXPECT_EQ(at(file, 3).line_text, "");
}

TEST(Source, BehindTheEndIsTheEnd) {
  const SourceFilePtr file = make_source("f", "ab");
  EXPECT_EQ(at(file, 100).line, 1);
  EXPECT_EQ(at(file, 100).column, 3);
  const SourceFilePtr empty = make_source("f", "");
  EXPECT_EQ(at(empty, 0).column, 1);
  EXPECT_EQ(at(empty, 0).line_text, "");
}

TEST(Source, ShortPlace) {
  EXPECT_EQ(short_place({}), "-");
  EXPECT_EQ(short_place({make_source("run.piper", "a\nb"), 2, 3}), "run.piper:2");
}

TEST(Source, WhereItWasWrittenMakesNoDifference) {
  EXPECT_EQ((SourceRange{make_source("a", "x"), 0, 1}), SourceRange{});
}

}  // namespace
}  // namespace piper
