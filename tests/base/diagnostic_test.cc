// How errors look, letter by letter.
#include "base/diagnostic.h"

#include <gtest/gtest.h>

#include "base/result.h"

namespace piper {
namespace {

const SourceFilePtr file = make_source("run.piper", "devices(2)\nplace({}, devices=[7])\n");

Diagnostic example() {
  return error(ErrorCode::E205, {file, 21, 32}, "device 7 does not exist; there are devices 0 to 1")
      .note({file, 0, 7}, "devices are declared here")
      .help("raise devices(n), or correct the list");
}

TEST(Diagnostic, ForPeople) {
  EXPECT_EQ(render(example()),
            "run.piper:2:11: error[E205]: device 7 does not exist; there are devices 0 to 1\n"
            "  place({}, devices=[7])\n"
            "            ^^^^^^^^^^^\n"
            "run.piper:1:1: note: devices are declared here\n"
            "  devices(2)\n"
            "  ^^^^^^^\n"
            "help: raise devices(n), or correct the list\n");
}

TEST(Diagnostic, Coloured) {
  EXPECT_EQ(render(error(ErrorCode::E101, {file, 0, 7}, "no").help("yes"), Color::Always),
            "run.piper:1:1: \x1b[1;31merror[E101]\x1b[0m: no\n"
            "  devices(2)\n"
            "  \x1b[32m^^^^^^^\x1b[0m\n"
            "\x1b[1;36mhelp\x1b[0m: yes\n");
}

TEST(Diagnostic, WithoutPlace) {
  EXPECT_EQ(render(error(ErrorCode::E108, {}, "cannot read").note({}, "because").help("")),
            "piper: error[E108]: cannot read\n"
            "note: because\n");
}

TEST(Diagnostic, ForMachines) {
  EXPECT_EQ(
      render_json(example()),
      R"({"code": "E205", "title": "unknown device", "message": "device 7 does not exist; there are devices 0 to 1", )"
      R"("place": {"file": "run.piper", "line": 2, "column": 11}, )"
      R"("notes": [{"message": "devices are declared here", "place": {"file": "run.piper", "line": 1, "column": 1}}], )"
      R"("help": ["raise devices(n), or correct the list"]})"
      "\n");
}

TEST(Diagnostic, JsonKeepsUtf8AndEscapesTheRest) {
  const std::string json = render_json(error(ErrorCode::E108, {}, "a \"b\" \\ \n … \x7f \xFF \xED\xA0\x80"));
  EXPECT_NE(json.find(R"("message": "a \"b\" \\ \u000a … \u007f \ufffd \ufffd\ufffd\ufffd")"), std::string::npos)
      << json;
  EXPECT_NE(json.find(R"("place": null)"), std::string::npos);
}

TEST(Diagnostic, TheCaretStaysOnItsLine) {
  const SourceFilePtr two = make_source("f", "ab\ncd");
  EXPECT_EQ(render(error(ErrorCode::E101, {two, 1, 5}, "m")), "f:1:2: error[E101]: m\n  ab\n   ^\n");
  EXPECT_EQ(render(error(ErrorCode::E101, {two, 5, 5}, "m")), "f:2:3: error[E101]: m\n  cd\n    ^\n");
}

TEST(Diagnostic, TabsAndControlCharactersTakeOneColumn) {
  const SourceFilePtr odd = make_source("f", "\ta\x01z\r\nb");
  EXPECT_EQ(render(error(ErrorCode::E101, {odd, 3, 4}, "m")), "f:1:4: error[E101]: m\n   a?z\n     ^\n");
}

TEST(Diagnostic, LongLinesAreCutAroundTheCaret) {
  const SourceFilePtr wide = make_source("f", std::string(1000, 'a') + "X" + std::string(1000, 'b'));
  const std::string text = render(error(ErrorCode::E101, {wide, 1000, 1001}, "m"));
  EXPECT_EQ(text, "f:1:1001: error[E101]: m\n  " + std::string(80, 'a') + "X" + std::string(79, 'b') + "\n  " +
                      std::string(80, ' ') + "^\n");
}

TEST(Diagnostic, EveryCodeHasNameAndTitle) {
  EXPECT_EQ(name(ErrorCode::E101), "E101");
  EXPECT_EQ(title(ErrorCode::E107), "bad JSON directive");
  EXPECT_EQ(name(ErrorCode::E410), "E410");
}

TEST(Diagnostic, ResultsCarryThem) {
  const auto half = [](int n) -> Result<int> {
    if (n % 2 != 0) return error(ErrorCode::E102, {}, "odd");
    return n / 2;
  };
  const auto quarter = [&](int n) -> Result<int> {
    PIPER_TRY(const int once, half(n));
    return half(once);
  };
  EXPECT_EQ(*quarter(8), 2);
  EXPECT_EQ(quarter(6).error().message, "odd");
  EXPECT_THROW(*quarter(6), InternalError);
}

TEST(Diagnostic, TheCaretCountsCharactersNotBytes) {
  const SourceFilePtr file = make_source("f", "\xC3\xA9t\xC3\xA9 \xFF\there\n");
  const int at = static_cast<int>(file->text.find("here"));
  EXPECT_EQ(render(error(ErrorCode::E101, {file, at, at + 4}, "bad")),
            "f:1:9: error[E101]: bad\n"
            "  \xC3\xA9t\xC3\xA9 ? here\n"
            "        ^^^^\n");
}

}  // namespace
}  // namespace piper
