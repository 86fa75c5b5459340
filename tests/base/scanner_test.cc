// Tokens of all our text forms.
#include "base/text/scanner.h"

#include <gtest/gtest.h>

namespace piper {
namespace {

Scanner scan(std::string text) {
  auto scanner = Scanner::scan(make_source("t", std::move(text)));
  EXPECT_TRUE(scanner) << (scanner ? "" : render(scanner.error()));
  return *std::move(scanner);
}

std::vector<std::string> words(std::string text) {
  Scanner in = scan(std::move(text));
  std::vector<std::string> out;
  while (!in.at_end()) out.push_back(in.take().text);
  return out;
}

using Words = std::vector<std::string>;

TEST(Scanner, WordsNumbersAndSymbols) {
  EXPECT_EQ(words("place({layer=0..3}, at=[1,2])"), (Words{"place", "(", "{", "layer", "=", "0", "..", "3", "}", ",",
                                                           "at", "=", "[", "1", ",", "2", "]", ")"}));
  EXPECT_EQ(words("a->b|c*d"), (Words{"a", "->", "b", "|", "c", "*", "d"}));
}

TEST(Scanner, DotsInsideWordsAndNumbers) {
  EXPECT_EQ(words("model.layers.0.wq 1.5 25MB 1f1b %7"), (Words{"model.layers.0.wq", "1.5", "25MB", "1f1b", "%7"}));
  EXPECT_EQ(words("a..b"), (Words{"a", "..", "b"}));
}

TEST(Scanner, Kinds) {
  Scanner in = scan("word 12 \"text\" (");
  EXPECT_EQ(in.take().kind, TokenKind::Word);
  EXPECT_EQ(in.take().kind, TokenKind::Number);
  EXPECT_EQ(in.take().kind, TokenKind::String);
  EXPECT_EQ(in.take().kind, TokenKind::Symbol);
  EXPECT_EQ(in.take().kind, TokenKind::End);
  EXPECT_EQ(in.take().kind, TokenKind::End);  // the end never goes away
}

TEST(Scanner, CommentsAndLines) {
  Scanner in = scan("a b # c\n// d\n  e\r\n");
  EXPECT_TRUE(in.at_line_start());
  in.take();
  EXPECT_FALSE(in.at_line_start());
  in.take();
  EXPECT_TRUE(in.at_line_start());
  EXPECT_EQ(in.take().text, "e");
  EXPECT_TRUE(in.at_end());
  EXPECT_TRUE(in.at_line_start());
}

TEST(Scanner, StringsHoldAnythingButNewlines) {
  EXPECT_EQ(words(R"("a b" "say \"x\"" "back\\slash" "# no comment")"),
            (Words{"a b", "say \"x\"", "back\\slash", "# no comment"}));
  for (const char* text : {"\"open", "\"open\n\"", "\"", "\"\\"}) {
    auto scanner = Scanner::scan(make_source("t", text));
    ASSERT_FALSE(scanner) << text;
    EXPECT_EQ(scanner.error().code, ErrorCode::E101);
    EXPECT_EQ(scanner.error().where.begin, 0);
  }
}

TEST(Scanner, ForeignBytesAreNamed) {
  auto scanner = Scanner::scan(make_source("t", "a ?"));
  ASSERT_FALSE(scanner);
  EXPECT_EQ(scanner.error().message, "unexpected '?'");
  EXPECT_EQ(scanner.error().where.begin, 2);
  scanner = Scanner::scan(make_source("t", std::string("a\0b", 3)));
  ASSERT_FALSE(scanner);
  EXPECT_EQ(scanner.error().message, "unexpected byte 0x00");
}

TEST(Scanner, ExpectSaysWhatStandsThereInstead) {
  Scanner in = scan("a");
  auto missing = in.expect("(", "before the arguments");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().message, "expected '(' before the arguments, found 'a'");
  in.take();
  missing = in.expect_word("x");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().message, "expected 'x', found the end of the text");
}

TEST(Scanner, Integers) {
  EXPECT_EQ(*scan("12").integer("a number"), 12);
  EXPECT_EQ(*scan("-12").integer("a number"), -12);
  EXPECT_EQ(scan("1.5").integer("a number").error().code, ErrorCode::E102);
  EXPECT_EQ(scan("99999999999999999999").integer("a number").error().code, ErrorCode::E102);
  EXPECT_EQ(scan("x").integer("a number").error().code, ErrorCode::E101);
}

TEST(Scanner, RangesCoverWhatWasTaken) {
  Scanner in = scan("ab (cd) ef");
  const Token first = in.take();
  in.take();
  in.take();
  in.take();
  const SourceRange range = in.range_from(first);
  EXPECT_EQ(range.begin, 0);
  EXPECT_EQ(range.end, 7);
}

TEST(Scanner, NamesSurviveWriting) {
  for (const char* name :
       {"layer", "model.layers.0", "1f1b", "with space", "a\"b", "back\\", "", "*", "a.", "-x", "ä"}) {
    Scanner in = scan(as_name(name));
    EXPECT_EQ(*in.name("a name"), name);
    EXPECT_TRUE(in.at_end()) << name;
  }
  EXPECT_EQ(as_name("layer"), "layer");
  EXPECT_EQ(as_name("zb-h1"), "\"zb-h1\"");
}

TEST(Scanner, WholeNumbersOnly) {
  EXPECT_EQ(parse_integer("7"), 7);
  EXPECT_EQ(parse_integer("-7"), -7);
  for (const char* text : {"", "7x", "7.0", " 7", "99999999999999999999"}) EXPECT_EQ(parse_integer(text), std::nullopt);
}

}  // namespace
}  // namespace piper
