// Tables for people, letter by letter.
#include "base/text_table.h"

#include <gtest/gtest.h>

#include "base/invariant.h"

namespace piper {
namespace {

TEST(TextTable, NumbersRightWordsLeft) {
  TextTable table({"device", "peak", "largest"});
  table.add({"0", "1.50 GiB", "weights"});
  table.add({"10", "80.0 GiB", "activations"});
  EXPECT_EQ(table.print(),
            "device      peak  largest\n"
            "     0  1.50 GiB  weights\n"
            "    10  80.0 GiB  activations\n");
}

TEST(TextTable, AnEmptyCellKeepsAColumnNumeric) {
  TextTable table({"n", "what"});
  table.add({"", "a"});
  table.add({"100", ""});
  EXPECT_EQ(table.print(),
            "  n  what\n"
            "     a\n"
            "100\n");
}

TEST(TextTable, HeaderAlone) {
  EXPECT_EQ(TextTable({"a", "b"}).print(), "a  b\n");
}

TEST(TextTable, WidthIsWhatATerminalShows) {
  EXPECT_EQ(display_width("abc"), 3u);
  EXPECT_EQ(display_width("ä…"), 2u);
  EXPECT_EQ(display_width("\x1b[1;31mred\x1b[0m"), 3u);
  TextTable table({"x", "y"});
  table.add({"…", "b"});
  EXPECT_EQ(table.print(), "x  y\n…  b\n");
}

TEST(TextTable, ARowOfAnotherLengthIsOurBug) {
  TextTable table({"a", "b"});
  EXPECT_THROW(table.add({"1"}), InternalError);
}

}  // namespace
}  // namespace piper
