// TOML files: what is wrong is said in our words, at its place; every value knows where it stands.
#include <gtest/gtest.h>

#include "base/text/toml_section.h"

namespace piper {
namespace {

std::string toml_refusal(const std::string& text) {
  auto root = parse_toml(make_source("c.toml", text));
  return root ? "" : render(root.error());
}

void expect_refused(const std::string& text, const std::vector<std::string>& parts) {
  const std::string out = toml_refusal(text);
  for (const std::string& part : parts) EXPECT_NE(out.find(part), std::string::npos) << text << "\n" << out;
  EXPECT_NE(out.find("help: "), std::string::npos) << out;
  EXPECT_EQ(out.find("Error while parsing"), std::string::npos) << out;
}

TEST(Toml, MistakesOfOneLine) {
  expect_refused("a = \n", {"c.toml:1:1", "a has no value"});
  expect_refused("a\n", {"c.toml:1:1", "expected KEY = VALUE or [SECTION]"});
  expect_refused("= 3\n", {"c.toml:1:1", "expected KEY = VALUE"});
  expect_refused("[m]\na: 3\n", {"c.toml:2:1", "expected KEY = VALUE", "write a = 3\n"});
  expect_refused("name: Qwen3-8B # the model\n", {"c.toml:1:1", "write name = \"Qwen3-8B\"\n"});
  expect_refused("a = foo # bar\n", {"c.toml:1:5", "foo stands without quotes", "a = \"foo\"\n"});
  expect_refused("a = 80GB\n", {"c.toml:1:5", "80GB is not a number", "a = \"80GB\""});
  expect_refused("a = 1.2.3\n", {"c.toml:1:5", "1.2.3 is not a number"});
  expect_refused("a = 99999999999999999999\n", {"c.toml:1:5", "too large"});
  expect_refused("a = 007\n", {"c.toml:1:5", "needless 0"});
  expect_refused("a = True\n", {"c.toml:1:5", "True is not a value", "write true"});
  expect_refused("a = \"x\n", {"c.toml:1:5", "not closed"});
  expect_refused("a = \"x\\q\"\n", {"c.toml:1:5", "a backslash is written twice"});
  expect_refused("a = [1, 2\n", {"c.toml:1:5", "the list is not closed"});
  expect_refused("a = [1, # one\n  2\n\nb = 3\n", {"c.toml:1:5", "the list is not closed"});
  expect_refused("a = [1 2]\n", {"c.toml:1:5", "the list"});
  expect_refused("a = {b = 1\n}\n", {"c.toml:1:5", "the table is not closed"});
  expect_refused("a = 1 2\n", {"c.toml:1:7", "unexpected text after the value of a"});
  expect_refused("[m\n", {"c.toml:1:1", "a section is its name in brackets"});
  expect_refused("[m] x = 1\n", {"c.toml:1:1", "a section is its name in brackets"});
  expect_refused("x = 1\r\ny = \r\n", {"c.toml:2:1", "y has no value"});
}

TEST(Toml, TwiceShowsTheFirst) {
  expect_refused("[m]\na = 1\n[n]\na = 1\n a = 2 # again\n",
                 {"c.toml:5:2", "a stands twice", "c.toml:4:1: note: first here"});
  expect_refused("[m]\na = 1\n[n]\n[m]\n", {"c.toml:4:1", "[m] stands twice", "c.toml:1:1: note"});
}

TEST(Toml, DeepNestingIsRefusedNotACrash) {
  std::string dotted, lists, both;
  for (int i = 0; i < 100'000; ++i) dotted += "a.", lists += "[";
  for (int i = 0; i < 250; ++i) both += "{a.a=";
  expect_refused(dotted + "a = 1\n", {"nested more than 200"});
  expect_refused("a = " + lists + "\n", {"nested more than 200"});
  expect_refused("a = " + both + "\n", {"nested more than 200"});
  std::string numbers = "a = [";
  for (int i = 0; i < 1000; ++i) numbers += "0.5, ";
  EXPECT_EQ(toml_refusal(numbers + "]\nb = \"[[[\" # {{{\n"), "");
}

TEST(Toml, ASizeNeedsAUnit) {
  auto root = parse_toml(make_source(
      "c.toml", "a = 80\nb = \"80\"\nc = 80000000000\nd = \"80GB\"\ne = \"5KB\"\nf = -1\ng = \"80 gigs\"\nh = 1.5\n"));
  ASSERT_TRUE(root);
  const TomlSection section("the file", *root);
  const auto refused = [&](std::string_view key) {
    auto bytes = section.bytes(key);
    return bytes ? "" : render(bytes.error());
  };
  EXPECT_EQ(refused("a"),
            "c.toml:1:5: error[E111]: a = 80 without a unit is 80 bytes\n  a = 80\n      ^^\n"
            "help: write a = \"80GB\"\n");
  EXPECT_NE(refused("b").find("without a unit"), std::string::npos);
  EXPECT_EQ(**section.bytes("c"), 80'000'000'000);
  EXPECT_EQ(**section.bytes("d"), 80'000'000'000);
  EXPECT_EQ(**section.bytes("e"), 5'000);
  for (const char* key : {"f", "g", "h"}) EXPECT_NE(refused(key).find("must be a size"), std::string::npos) << key;
  EXPECT_FALSE(section.bytes("none")->has_value());
}

TEST(Toml, SectionsInTheOrderOfTheFile) {
  auto root = parse_toml(make_source("c.toml", "[[link]]\nz = 1\na = 2.5\n[[link]]\non = true\n[device]\n"));
  ASSERT_TRUE(root);
  const TomlSection whole("the file", *root);
  auto links = whole.sections("link");
  ASSERT_TRUE(links);
  ASSERT_EQ(links->size(), 2u);
  EXPECT_EQ((*links)[0].table().items[0].key, "z");
  EXPECT_EQ(**(*links)[0].number("z"), 1.0);
  EXPECT_EQ(**(*links)[0].number("a"), 2.5);
  EXPECT_TRUE(**(*links)[1].flag("on"));
  auto unknown = (*links)[1].only({"of"});
  ASSERT_FALSE(unknown);
  EXPECT_NE(render(unknown.error()).find("c.toml:5:1: error[E111]: unknown key \"on\" in [[link]]"), std::string::npos);
  EXPECT_TRUE(whole.section("device")->has_value());
  EXPECT_FALSE(whole.section("link"));
}

}  // namespace
}  // namespace piper
