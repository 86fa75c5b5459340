#include "schedule/arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/suggest.h"
#include "schedule/schedule_text.h"

namespace piper {
namespace {

constexpr int most_nested = 8;
constexpr int most_devices = 1 << 20;

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

Result<Argument> parse_argument(Scanner& in, int depth);

Result<Argument> parse_list(Scanner& in, int depth) {
  Argument list;
  const Token first = in.take();
  list.kind = Argument::Kind::List;
  while (!in.is_symbol("]")) {
    PIPER_TRY(Argument item, parse_argument(in, depth + 1));
    list.items.push_back(std::move(item));
    if (!in.accept(",")) break;
  }
  PIPER_CHECK(expect_closing(in, "]", "after the list", first));
  list.where = in.range_from(first);
  return list;
}

Result<Argument> parse_argument(Scanner& in, int depth) {
  const Token first = in.peek();
  if (depth > most_nested)
    return error(ErrorCode::E101, in.here(), "lists are nested too deeply").help("no argument needs lists in lists");
  Argument argument;
  if (in.is_symbol("{")) {
    argument.kind = Argument::Kind::Filter;
    PIPER_TRY(argument.filter, parse_filter(in));
  } else if (in.is_symbol("[")) {
    PIPER_TRY(argument, parse_list(in, depth));
  } else if (first.kind == TokenKind::Number && in.is_symbol("..", 1)) {
    argument.kind = Argument::Kind::Range;
    PIPER_TRY(argument.range, parse_range(in));
  } else if (in.is_symbol("-") && in.peek(1).kind == TokenKind::Number) {
    in.take();
    argument.text = "-" + in.take().text;
  } else {
    PIPER_TRY(argument.text, in.name("an argument"));
  }
  argument.where = in.range_from(first);
  if (depth > 0 || !in.is_symbol("|")) return argument;
  Argument alternatives;
  alternatives.kind = Argument::Kind::Alternatives;
  alternatives.items.push_back(std::move(argument));
  while (in.accept("|")) {
    PIPER_TRY(Argument item, parse_argument(in, depth + 1));
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

Result<std::vector<Argument>> parse_arguments(Scanner& in) {
  std::vector<Argument> arguments;
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
    PIPER_TRY(Argument argument, parse_argument(in, 0));
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

ArgumentPlace place_of(const Argument& argument) {
  ArgumentPlace place{argument.key, argument.where};
  if (argument.kind == Argument::Kind::Range) place.numbers = int64_t{1} + argument.range.high - argument.range.low;
  if (argument.items.empty()) return place;
  place.numbers = 0;
  for (const Argument& item : argument.items) {
    place.items.push_back(place_of(item));
    place.numbers += place.items.back().numbers;
  }
  return place;
}

}  // namespace

ArgumentPlaces places_of(const std::vector<Argument>& arguments) {
  ArgumentPlaces places;
  for (const Argument& argument : arguments) places.all.push_back(place_of(argument));
  return places;
}

ArgumentReader::ArgumentReader(std::string_view verb, std::vector<Argument> arguments, SourceRange where)
    : verb_(verb), arguments_(std::move(arguments)), where_(std::move(where)) {}

void ArgumentReader::fail(Diagnostic problem) {
  if (!problem_) problem_ = std::move(problem);
}

std::optional<Argument> ArgumentReader::take(const std::string& key) {
  known_.push_back(key);
  const auto is_key = [&](const Argument& a) { return a.key == key; };
  const auto found = std::find_if(arguments_.begin(), arguments_.end(), is_key);
  if (found == arguments_.end()) return std::nullopt;
  Argument argument = std::move(*found);
  arguments_.erase(found);
  if (const auto again = std::find_if(arguments_.begin(), arguments_.end(), is_key); again != arguments_.end())
    fail(error(ErrorCode::E104, again->where, fmt::format("{}: argument \"{}\" is given twice", verb_, key))
             .note(argument.where, "first given here")
             .help("keep one of them"));
  return argument;
}

std::optional<Argument> ArgumentReader::take_positional() {
  const auto found =
      std::find_if(arguments_.begin(), arguments_.end(), [](const Argument& a) { return a.key.empty(); });
  if (found == arguments_.end()) return std::nullopt;
  Argument argument = std::move(*found);
  arguments_.erase(found);
  return argument;
}

Filter ArgumentReader::filter(std::string_view what) {
  auto argument = take_positional();
  if (!argument) {
    fail(error(ErrorCode::E104, where_, fmt::format("{}: {} is missing", verb_, what))
             .help(
                 fmt::format("the first argument is a filter: {}({{layer=0..3}}, …); {{}} selects everything", verb_)));
    return {};
  }
  if (argument->kind != Argument::Kind::Filter) {
    fail(error(ErrorCode::E105, argument->where,
               fmt::format("{}: {} must be a filter such as {{layer=0..3}}", verb_, what))
             .help("{} selects everything"));
    return {};
  }
  return std::move(argument->filter);
}

void ArgumentReader::keyword(std::string_view word) {
  const auto argument = take_positional();
  if (!argument || argument->text != word)
    fail(error(argument ? ErrorCode::E105 : ErrorCode::E104, argument ? argument->where : where_,
               fmt::format("{}: the first argument must be \"{}\"", verb_, word))
             .help(fmt::format("write {}({}, …)", verb_, word)));
}

std::string ArgumentReader::required_word(std::string_view what) {
  const auto argument = take_positional();
  if (argument && argument->kind == Argument::Kind::Text && !argument->text.empty()) return argument->text;
  fail(error(argument ? ErrorCode::E105 : ErrorCode::E104, argument ? argument->where : where_,
             fmt::format("{}: the first argument must be {}", verb_, what))
           .help("write it in quotes"));
  return "";
}

std::optional<int> ArgumentReader::to_integer(const Argument& argument, int low, int high) {
  const auto value = argument.kind == Argument::Kind::Text ? parse_integer(argument.text) : std::nullopt;
  if (value && *value >= low && *value <= high) return static_cast<int>(*value);
  const std::string example = fmt::format("{}", std::clamp(4, low, high));
  fail(error(ErrorCode::E105, argument.where,
             fmt::format("{}: {} must be a whole number between {} and {}", verb_,
                         argument.key.empty() ? "the argument" : argument.key, low, high))
           .help(argument.key.empty() ? fmt::format("for example {}({})", verb_, example)
                                      : fmt::format("for example {}={}", argument.key, example)));
  return std::nullopt;
}

std::optional<int> ArgumentReader::integer(const std::string& key, int low, int high) {
  const auto argument = take(key);
  return argument ? to_integer(*argument, low, high) : std::nullopt;
}

int ArgumentReader::required_integer(const std::string& key, int low, int high) {
  const auto argument = key.empty() ? take_positional() : take(key);
  if (argument) return to_integer(*argument, low, high).value_or(low);
  fail(key.empty() ? error(ErrorCode::E104, where_, fmt::format("{}: the number is missing", verb_))
                         .help(fmt::format("write it without a name: {}(4)", verb_))
                   : error(ErrorCode::E104, where_, fmt::format("{}: argument \"{}\" is missing", verb_, key))
                         .help(fmt::format("add {}=4, or another number", key)));
  return low;
}

std::optional<int> ArgumentReader::integer_unless(const std::string& key, std::string_view word, int usual, int low,
                                                  int high) {
  const auto argument = take(key);
  if (!argument) return usual;
  if (argument->kind == Argument::Kind::Text && argument->text == word) return std::nullopt;
  const auto value = argument->kind == Argument::Kind::Text ? parse_integer(argument->text) : std::nullopt;
  if (value && *value >= low && *value <= high) return static_cast<int>(*value);
  fail(error(ErrorCode::E105, argument->where,
             fmt::format("{}: {} must be a whole number between {} and {}, or {}", verb_, key, low, high, word))
           .help(fmt::format("for example {}={}, or {}={}", key, usual, key, word)));
  return usual;
}

std::optional<std::string> ArgumentReader::word(const std::string& key) {
  const auto argument = take(key);
  if (!argument) return std::nullopt;
  if (argument->kind == Argument::Kind::Text && !argument->text.empty()) return argument->text;
  fail(error(ErrorCode::E105, argument->where, fmt::format("{}: {} must be a name", verb_, key))
           .help(fmt::format("for example {}=name", key)));
  return std::nullopt;
}

std::vector<ShardSeed> ArgumentReader::shard_seeds(const std::string& key) {
  const auto argument = take(key);
  if (!argument) return {};
  std::vector<ShardSeed> seeds;
  const auto trimmed = [](std::string_view text) {
    while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
    while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
    return std::string(text);
  };
  const std::string text = argument->kind == Argument::Kind::Text ? argument->text : "";
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view one = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), one.size() + 1));
    const size_t colon = one.rfind(':');
    const std::string pattern = trimmed(one.substr(0, colon));
    const int64_t dim = colon == one.npos ? -1 : parse_integer(trimmed(one.substr(colon + 1))).value_or(-1);
    if (dim < 0 || dim >= most_dims || pattern.empty()) {
      seeds.clear();
      break;
    }
    seeds.push_back({pattern, static_cast<int>(dim)});
  }
  if (seeds.empty())
    fail(error(ErrorCode::E105, argument->where,
               fmt::format("{}: {} must be names of parameters, each with a dimension", verb_, key))
             .help(fmt::format("for example {}=\"*.wo: 1, *.w_down: 1\"", key)));
  return seeds;
}

std::optional<int64_t> ArgumentReader::bytes(const std::string& key) {
  const auto argument = take(key);
  if (!argument) return std::nullopt;
  const auto value = argument->kind == Argument::Kind::Text ? parse_bytes(argument->text) : std::nullopt;
  if (value && *value > 0) return value;
  fail(error(ErrorCode::E102, argument->where, fmt::format("{}: {} must be a size such as 25MB or 512KiB", verb_, key))
           .help("units are B, KB, MB, GB, TB and KiB, MiB, GiB, TiB; without one it is bytes"));
  return std::nullopt;
}

std::optional<std::vector<int>> ArgumentReader::integers(const std::string& key) {
  const auto argument = take(key);
  if (!argument) return std::nullopt;
  return to_devices(*argument);
}

std::optional<int> ArgumentReader::choice(const std::string& key, const std::vector<std::string>& words) {
  const auto argument = take(key);
  if (!argument) return std::nullopt;
  const auto found = std::find(words.begin(), words.end(), argument->text);
  if (argument->kind == Argument::Kind::Text && found != words.end()) return static_cast<int>(found - words.begin());
  fail(error(ErrorCode::E105, argument->where,
             fmt::format("{}: {} must be one of {}", verb_, key, fmt::join(words, ", ")))
           .help(argument->text.empty() ? "" : did_you_mean(argument->text, words)));
  return std::nullopt;
}

std::optional<DeviceList> ArgumentReader::to_devices(const Argument& argument) {
  DeviceList devices;
  const Argument* wrong = argument.kind == Argument::Kind::List && !argument.items.empty() ? nullptr : &argument;
  for (size_t i = 0; i < argument.items.size() && !wrong; ++i) {
    const Argument& item = argument.items[i];
    const int room = most_devices - static_cast<int>(devices.size());
    const int64_t number = item.kind == Argument::Kind::Text ? parse_integer(item.text).value_or(-1) : -1;
    if (item.kind == Argument::Kind::Range && item.range.high - item.range.low < room)
      for (int d = item.range.low; d <= item.range.high; ++d) devices.push_back(d);
    else if (number >= 0 && number < 1'000'000'000)
      devices.push_back(static_cast<int>(number));
    else
      wrong = &item;
  }
  if (!wrong) return devices;
  const bool lonely = wrong->kind == Argument::Kind::Text && parse_integer(wrong->text) && wrong == &argument;
  fail(error(ErrorCode::E105, wrong->where,
             fmt::format("{}: expected a list of numbers and ranges such as [0, 2..5]", verb_))
           .help(lonely ? fmt::format("write {}=[{}]", wrong->key, wrong->text)
                        : fmt::format("numbers count from 0; at most {} in one list", most_devices)));
  return std::nullopt;
}

DeviceChoice ArgumentReader::devices() {
  DeviceChoice choice;
  choice.where = where_;
  if (const auto argument = take("devices")) {
    choice.where = argument->where;
    const std::vector<Argument> lists =
        argument->kind == Argument::Kind::Alternatives ? argument->items : std::vector<Argument>{*argument};
    for (const Argument& list : lists)
      if (auto devices = to_devices(list)) choice.lists.push_back(std::move(*devices));
  }
  if (auto argument = take("mesh")) {
    choice.where = argument->where;
    if (argument->kind != Argument::Kind::Filter)
      fail(error(ErrorCode::E105, argument->where, fmt::format("{}: mesh must be coordinates such as {{pp=0}}", verb_))
               .help("mesh={} is all devices"));
    choice.mesh = std::move(argument->filter);
  }
  if (const auto argument = take("along")) {
    choice.where = argument->where;
    const std::vector<Argument> axes =
        argument->kind == Argument::Kind::List ? argument->items : std::vector<Argument>{*argument};
    for (const Argument& axis : axes) {
      if (axis.kind != Argument::Kind::Text || axis.text.empty())
        fail(error(ErrorCode::E105, axis.where, fmt::format("{}: along takes names of mesh axes", verb_))
                 .help("for example along=dp, or along=[edp, ep]"));
      else
        choice.along.push_back(axis.text);
    }
  }
  const int given = !choice.lists.empty() + choice.mesh.has_value() + !choice.along.empty();
  if (given == 0)
    fail(error(ErrorCode::E104, where_, fmt::format("{}: does not say on which devices", verb_))
             .help("add devices=[0, 1], mesh={pp=0} or along=AXIS"));
  if (given > 1)
    fail(error(ErrorCode::E104, choice.where, fmt::format("{}: devices, mesh and along exclude each other", verb_))
             .help("keep one of them"));
  return choice;
}

std::vector<MeshAxis> ArgumentReader::named_integers(int low, int high) {
  std::vector<MeshAxis> out;
  for (const Argument& argument : arguments_) {
    if (argument.key.empty()) {
      fail(error(ErrorCode::E104, argument.where, fmt::format("{}: every axis needs a name", verb_))
               .help(fmt::format("for example {}(pp=2, dp=4)", verb_)));
      continue;
    }
    if (std::any_of(out.begin(), out.end(), [&](const MeshAxis& axis) { return axis.name == argument.key; }))
      fail(error(ErrorCode::E104, argument.where, fmt::format("{}: axis \"{}\" is given twice", verb_, argument.key))
               .help("give it another name, or take it out"));
    out.push_back({argument.key, to_integer(argument, low, high).value_or(low)});
  }
  arguments_.clear();
  return out;
}

Checked ArgumentReader::finish() {
  const auto misspelt = std::find_if(arguments_.begin(), arguments_.end(), [&](const Argument& a) {
    return !a.key.empty() && std::find(known_.begin(), known_.end(), a.key) == known_.end() &&
           !nearest(a.key, known_).empty();
  });
  const bool explains =
      problem_ && problem_->code == ErrorCode::E104 && misspelt != arguments_.end();  // why one is missing
  if (problem_ && !explains) return std::move(*problem_);
  if (arguments_.empty()) return Ok{};
  const Argument& extra = explains ? *misspelt : arguments_[0];
  if (extra.key.empty())
    return error(ErrorCode::E104, extra.where, fmt::format("{}: one argument too many", verb_))
        .help("take it out, or give it a name: NAME=VALUE");
  return error(ErrorCode::E104, extra.where, fmt::format("{}: unknown argument \"{}\"", verb_, extra.key))
      .help(known_.empty() ? fmt::format("{} takes no named arguments", verb_) : did_you_mean(extra.key, known_));
}

}  // namespace piper
