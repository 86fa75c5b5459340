#include "schedule/arguments.h"

#include <fmt/format.h>

#include "base/bytes.h"
#include "schedule/schedule_text.h"

namespace piper {
namespace {

constexpr int most_nested = 8;

/// Takes the closing bracket, or says what stands there instead and where the bracket was opened.
Checked expect_closing(Scanner& in, std::string_view bracket, std::string_view what_for, const Token& opened) {
  auto closed = in.expect(bracket, what_for);
  if (closed) return Ok{};
  return std::move(closed.error())
      .note(in.range(opened), "opened here")
      .help(fmt::format("add {}, or a comma if more follows", bracket));
}

Result<IndexRange> parse_range(Scanner& in) {
  const Token first = in.peek();
  const auto small = [&](int64_t value) { return value >= 0 && value <= 1'000'000'000; };
  PIPER_TRY(const int64_t low, in.integer("a number"));
  int64_t high = low;
  if (in.accept("..")) {
    PIPER_TRY(high, in.integer("the end of the range"));
  }
  if (!small(low) || !small(high))
    return error(ErrorCode::E102, in.range_from(first), "an index is between 0 and 10^9").help("indices count from 0");
  if (high < low)
    return error(ErrorCode::E102, in.range_from(first), fmt::format("the range {}..{} is empty", low, high))
        .help(fmt::format("write {}..{}; both ends are included", high, low));
  return IndexRange{static_cast<int>(low), static_cast<int>(high)};
}

Result<TagCondition> parse_condition(Scanner& in) {
  TagCondition condition;
  const Token first = in.peek();
  PIPER_TRY(condition.tag, in.name("a tag such as layer, mb or pass"));
  PIPER_CHECK(in.expect("=", fmt::format("after the tag \"{}\"", condition.tag)));
  const auto one = [&]() -> Checked {
    if (in.peek().kind == TokenKind::Word) {
      condition.words.push_back(in.take().text);
    } else {
      PIPER_TRY(const IndexRange range, parse_range(in));
      condition.indices.push_back(range);
    }
    return Ok{};
  };
  if (in.accept("*")) {
    condition.any = true;
  } else if (const Token bracket = in.peek(); in.accept("[")) {
    do PIPER_CHECK(one());
    while (in.accept(","));
    PIPER_CHECK(expect_closing(in, "]", "after the list", bracket));
  } else {
    PIPER_CHECK(one());
  }
  condition.where = in.range_from(first);
  const bool worded = condition.tag == "pass" || condition.tag == "comm";
  if (worded && !condition.indices.empty())
    return error(ErrorCode::E105, condition.where, fmt::format("{} takes a word, not a number", condition.tag))
        .help(condition.tag == "pass" ? "pass=F, B, BI, BW or R"
                                      : "comm=gather, reduce, exchange, sum, transfer or scalars");
  const bool none = condition.words == std::vector<std::string>{"none"} && condition.indices.empty();
  if (!worded && !none && !condition.words.empty())
    return error(ErrorCode::E105, condition.where,
                 fmt::format("{} takes an index, a range, a list, * or none, not \"{}\"", condition.tag,
                             condition.words[0]))
        .help(fmt::format("write {}=0, {}=0..3, {}=[0, 2], {}=* or {}=none", condition.tag, condition.tag,
                          condition.tag, condition.tag, condition.tag));
  return condition;
}

Result<ParsedArgument> parse_argument(Scanner& in, int depth);

Result<ParsedArgument> parse_list(Scanner& in, int depth) {
  ParsedArgument list;
  const Token first = in.take();
  list.kind = ParsedArgument::Kind::List;
  while (!in.is_symbol("]")) {
    PIPER_TRY(ParsedArgument item, parse_argument(in, depth + 1));
    list.items.push_back(std::move(item));
    if (!in.accept(",")) break;
  }
  PIPER_CHECK(expect_closing(in, "]", "after the list", first));
  list.where = in.range_from(first);
  return list;
}

Result<ParsedArgument> parse_argument(Scanner& in, int depth) {
  const Token first = in.peek();
  if (depth > most_nested)
    return error(ErrorCode::E101, in.here(), "lists are nested too deeply").help("no argument needs lists in lists");
  ParsedArgument argument;
  if (in.is_symbol("{")) {
    argument.kind = ParsedArgument::Kind::Filter;
    PIPER_TRY(argument.filter, parse_filter(in));
  } else if (in.is_symbol("[")) {
    PIPER_TRY(argument, parse_list(in, depth));
  } else if (first.kind == TokenKind::Number && in.is_symbol("..", 1)) {
    argument.kind = ParsedArgument::Kind::Range;
    PIPER_TRY(argument.range, parse_range(in));
  } else if (in.is_symbol("-") && in.peek(1).kind == TokenKind::Number) {
    in.take();
    argument.text = "-" + in.take().text;
  } else {
    PIPER_TRY(argument.text, in.name("an argument"));
  }
  argument.where = in.range_from(first);
  if (depth > 0 || !in.is_symbol("|")) return argument;
  ParsedArgument alternatives;
  alternatives.kind = ParsedArgument::Kind::Alternatives;
  alternatives.items.push_back(std::move(argument));
  while (in.accept("|")) {
    PIPER_TRY(ParsedArgument item, parse_argument(in, depth + 1));
    alternatives.items.push_back(std::move(item));
  }
  alternatives.where = in.range_from(first);
  return alternatives;
}

}  // namespace

Result<Filter> parse_filter(Scanner& in) {
  Filter filter;
  const Token first = in.peek();
  PIPER_CHECK(in.expect("{", "before a filter"));
  while (!in.is_symbol("}")) {
    PIPER_TRY(TagCondition condition, parse_condition(in));
    if (const TagCondition* other = filter.find(condition.tag))
      return error(ErrorCode::E104, condition.where,
                   fmt::format("tag \"{}\" stands twice in one filter", condition.tag))
          .note(other->where, "first here")
          .help(fmt::format("several indices are a list: {}=[0, 2]", condition.tag));
    filter.conditions.push_back(std::move(condition));
    if (!in.accept(",")) break;
  }
  PIPER_CHECK(expect_closing(in, "}", "after the filter", first));
  filter.where = in.range_from(first);
  return filter;
}

Result<std::vector<ParsedArgument>> parse_arguments(Scanner& in) {
  std::vector<ParsedArgument> arguments;
  const Token bracket = in.peek();
  if (auto opened = in.expect("(", "before the arguments"); !opened)
    return std::move(opened.error()).help("brackets are needed also without arguments: ()");
  while (!in.is_symbol(")")) {
    const Token first = in.peek();
    std::string key;
    if (first.kind != TokenKind::Symbol && in.is_symbol("=", 1)) {
      key = in.take().text;
      in.take();
    }
    PIPER_TRY(ParsedArgument argument, parse_argument(in, 0));
    argument.key = std::move(key);
    argument.where = in.range_from(first);
    arguments.push_back(std::move(argument));
    if (!in.accept(",")) break;
  }
  const Token next = in.peek();
  if (auto closed = expect_closing(in, ")", "after the arguments", bracket); !closed) {
    const bool unit = !arguments.empty() && next.kind == TokenKind::Word && !next.first_on_line &&
                      parse_integer(arguments.back().text) && parse_bytes(arguments.back().text + next.text);
    if (unit) closed.error().helps = {fmt::format("write {}{} without a blank", arguments.back().text, next.text)};
    return std::move(closed.error());
  }
  return arguments;
}

namespace {

ArgumentPlace place_of(const ParsedArgument& argument) {
  ArgumentPlace place{argument.key, argument.where};
  if (argument.kind == ParsedArgument::Kind::Range)
    place.numbers = int64_t{1} + argument.range.high - argument.range.low;
  if (argument.items.empty()) return place;
  place.numbers = 0;
  for (const ParsedArgument& item : argument.items) {
    place.items.push_back(place_of(item));
    place.numbers += place.items.back().numbers;
  }
  return place;
}

}  // namespace

ArgumentPlaces places_of(const std::vector<ParsedArgument>& arguments) {
  ArgumentPlaces places;
  for (const ParsedArgument& argument : arguments) places.all.push_back(place_of(argument));
  return places;
}

}  // namespace piper
