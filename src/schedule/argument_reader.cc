#include "schedule/argument_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/suggest.h"

namespace piper {
namespace {

constexpr int most_in_list = 1 << 20;

}  // namespace

ArgumentReader::ArgumentReader(std::string_view verb, std::vector<ParsedArgument> arguments, SourceRange where)
    : verb_(verb), arguments_(std::move(arguments)), where_(std::move(where)) {}

void ArgumentReader::fail(Diagnostic problem) {
  if (!problem_) problem_ = std::move(problem);
}

std::optional<ParsedArgument> ArgumentReader::take(std::string_view name) {
  known_.emplace_back(name);
  const auto is_key = [&](const ParsedArgument& a) { return a.key == name; };
  const auto found = std::find_if(arguments_.begin(), arguments_.end(), is_key);
  if (found == arguments_.end()) return std::nullopt;
  ParsedArgument argument = std::move(*found);
  arguments_.erase(found);
  if (const auto again = std::find_if(arguments_.begin(), arguments_.end(), is_key); again != arguments_.end())
    fail(error(ErrorCode::E104, again->where, fmt::format("{}: argument \"{}\" is given twice", verb_, name))
             .note(argument.where, "first given here")
             .help("keep one of them"));
  return argument;
}

std::optional<ParsedArgument> ArgumentReader::take_positional() {
  const auto found =
      std::find_if(arguments_.begin(), arguments_.end(), [](const ParsedArgument& a) { return a.key.empty(); });
  if (found == arguments_.end()) return std::nullopt;
  ParsedArgument argument = std::move(*found);
  arguments_.erase(found);
  return argument;
}

void ArgumentReader::read(std::string_view, const kind::Selected& kind, Filter& value) {
  auto argument = take_positional();
  if (!argument)
    fail(error(ErrorCode::E104, where_, fmt::format("{}: {} is missing", verb_, kind.what))
             .help(
                 fmt::format("the first argument is a filter: {}({{layer=0..3}}, …); {{}} selects everything", verb_)));
  else if (argument->kind != ParsedArgument::Kind::Filter)
    fail(error(ErrorCode::E105, argument->where,
               fmt::format("{}: {} must be a filter such as {{layer=0..3}}", verb_, kind.what))
             .help("{} selects everything"));
  else
    value = std::move(argument->filter);
}

void ArgumentReader::keyword(std::string_view word) {
  const auto argument = take_positional();
  if (!argument || argument->text != word)
    fail(error(argument ? ErrorCode::E105 : ErrorCode::E104, argument ? argument->where : where_,
               fmt::format("{}: the first argument must be \"{}\"", verb_, word))
             .help(fmt::format("write {}({}, …)", verb_, word)));
}

void ArgumentReader::read(std::string_view, const kind::File&, std::string& value) {
  const auto argument = take_positional();
  if (argument && argument->kind == ParsedArgument::Kind::Text && !argument->text.empty()) {
    value = argument->text;
    return;
  }
  fail(error(argument ? ErrorCode::E105 : ErrorCode::E104, argument ? argument->where : where_,
             fmt::format("{}: the first argument must be the name of a file", verb_))
           .help("write it in quotes"));
}

std::optional<int> ArgumentReader::to_integer(const ParsedArgument& argument, int low, int high) {
  const auto value = argument.kind == ParsedArgument::Kind::Text ? parse_integer(argument.text) : std::nullopt;
  if (value && *value >= low && *value <= high) return static_cast<int>(*value);
  const std::string example = fmt::format("{}", std::clamp(4, low, high));
  fail(error(ErrorCode::E105, argument.where,
             fmt::format("{}: {} must be a whole number between {} and {}", verb_,
                         argument.key.empty() ? "the argument" : argument.key, low, high))
           .help(argument.key.empty() ? fmt::format("for example {}({})", verb_, example)
                                      : fmt::format("for example {}={}", argument.key, example)));
  return std::nullopt;
}

void ArgumentReader::read(std::string_view name, const kind::Integer& kind, std::optional<int>& value) {
  if (const auto argument = take(name))
    value = to_integer(*argument, kind.low, kind.high);
  else if (kind.required)
    fail(error(ErrorCode::E104, where_, fmt::format("{}: argument \"{}\" is missing", verb_, name))
             .help(fmt::format("add {}=4, or another number", name)));
}

void ArgumentReader::read(std::string_view name, const kind::Integer& kind, int& value) {
  std::optional<int> given;
  read(name, kind, given);
  value = given.value_or(value);
}

void ArgumentReader::read(std::string_view, const kind::Count& kind, int& value) {
  if (const auto argument = take_positional())
    value = to_integer(*argument, kind.low, kind.high).value_or(value);
  else
    fail(error(ErrorCode::E104, where_, fmt::format("{}: the number is missing", verb_))
             .help(fmt::format("write it without a name: {}(4)", verb_)));
}

void ArgumentReader::read(std::string_view name, const kind::IntegerOr& kind, std::optional<int>& value) {
  const auto argument = take(name);
  if (!argument) return;
  const auto number = argument->kind == ParsedArgument::Kind::Text ? parse_integer(argument->text) : std::nullopt;
  if (argument->kind == ParsedArgument::Kind::Text && argument->text == kind.word)
    value.reset();
  else if (number && *number >= kind.low && *number <= kind.high)
    value = static_cast<int>(*number);
  else
    fail(error(ErrorCode::E105, argument->where,
               fmt::format("{}: {} must be a whole number between {} and {}, or {}", verb_, name, kind.low, kind.high,
                           kind.word))
             .help(fmt::format("for example {}=1, or {}={}", name, name, kind.word)));
}

void ArgumentReader::read(std::string_view name, const kind::Name&, std::string& value) {
  const auto argument = take(name);
  if (!argument) return;
  if (argument->kind == ParsedArgument::Kind::Text && !argument->text.empty())
    value = argument->text;
  else
    fail(error(ErrorCode::E105, argument->where, fmt::format("{}: {} must be a name", verb_, name))
             .help(fmt::format("for example {}=name", name)));
}

void ArgumentReader::read(std::string_view name, const kind::Seeds&, std::vector<ShardSeed>& value) {
  const auto argument = take(name);
  if (!argument) return;
  std::vector<ShardSeed>& seeds = value = {};
  const auto trimmed = [](std::string_view text) {
    while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
    while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
    return std::string(text);
  };
  const std::string text = argument->kind == ParsedArgument::Kind::Text ? argument->text : "";
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
               fmt::format("{}: {} must be names of parameters, each with a dimension", verb_, name))
             .help(fmt::format("for example {}=\"*.wo: 1, *.w_down: 1\"", name)));
}

void ArgumentReader::read(std::string_view name, const kind::Bytes&, int64_t& value) {
  const auto argument = take(name);
  if (!argument) return;
  const auto bytes = argument->kind == ParsedArgument::Kind::Text ? parse_bytes(argument->text) : std::nullopt;
  if (bytes && *bytes > 0)
    value = *bytes;
  else
    fail(error(ErrorCode::E102, argument->where,
               fmt::format("{}: {} must be a size such as 25MB or 512KiB", verb_, name))
             .help("units are B, KB, MB, GB, TB and KiB, MiB, GiB, TiB; without one it is bytes"));
}

void ArgumentReader::read(std::string_view name, const kind::Load&, int64_t& value) {
  const auto argument = take(name);
  if (!argument) return;
  const auto load = argument->kind == ParsedArgument::Kind::Text ? parse_load(argument->text) : std::nullopt;
  if (load && *load > 0)
    value = *load;
  else
    fail(error(ErrorCode::E102, argument->where,
               fmt::format("{}: {} must be a number above 0 with at most four digits behind the point", verb_, name))
             .help(fmt::format("for example {}=1.5", name)));
}

void ArgumentReader::read(std::string_view name, const kind::Integers& kind, std::vector<int>& value) {
  if (const auto argument = take(name))
    value = to_integers(*argument).value_or(value);
  else if (kind.required)
    fail(error(ErrorCode::E104, where_, fmt::format("{}: argument \"{}\" is missing", verb_, name))
             .help(fmt::format("add {}=[0], or other numbers", name)));
}

void ArgumentReader::read(std::string_view name, const kind::Flag&, bool& value) {
  value = choice(name, {"off", "on"}).value_or(value) == 1;
}

std::optional<int> ArgumentReader::choice(std::string_view name, const std::vector<std::string>& words) {
  const auto argument = take(name);
  if (!argument) return std::nullopt;
  const auto found = std::find(words.begin(), words.end(), argument->text);
  if (argument->kind == ParsedArgument::Kind::Text && found != words.end())
    return static_cast<int>(found - words.begin());
  fail(error(ErrorCode::E105, argument->where,
             fmt::format("{}: {} must be one of {}", verb_, name, fmt::join(words, ", ")))
           .help(argument->text.empty() ? "" : did_you_mean(argument->text, words)));
  return std::nullopt;
}

std::optional<std::vector<int>> ArgumentReader::to_integers(const ParsedArgument& argument) {
  std::vector<int> numbers;
  const ParsedArgument* wrong =
      argument.kind == ParsedArgument::Kind::List && !argument.items.empty() ? nullptr : &argument;
  for (size_t i = 0; i < argument.items.size() && !wrong; ++i) {
    const ParsedArgument& item = argument.items[i];
    const int room = most_in_list - static_cast<int>(numbers.size());
    const int64_t number = item.kind == ParsedArgument::Kind::Text ? parse_integer(item.text).value_or(-1) : -1;
    if (item.kind == ParsedArgument::Kind::Range && item.range.high - item.range.low < room)
      for (int d = item.range.low; d <= item.range.high; ++d) numbers.push_back(d);
    else if (number >= 0 && number < 1'000'000'000)
      numbers.push_back(static_cast<int>(number));
    else
      wrong = &item;
  }
  if (!wrong) return numbers;
  const bool lonely = wrong->kind == ParsedArgument::Kind::Text && parse_integer(wrong->text) && wrong == &argument;
  fail(error(ErrorCode::E105, wrong->where,
             fmt::format("{}: expected a list of numbers and ranges such as [0, 2..5]", verb_))
           .help(lonely ? fmt::format("write {}=[{}]", wrong->key, wrong->text)
                        : fmt::format("numbers count from 0; at most {} in one list", most_in_list)));
  return std::nullopt;
}

void ArgumentReader::read(std::string_view, const kind::Where&, DeviceChoice& choice) {
  choice.where = where_;
  if (const auto argument = take("devices")) {
    choice.where = argument->where;
    const std::vector<ParsedArgument> lists =
        argument->kind == ParsedArgument::Kind::Alternatives ? argument->items : std::vector<ParsedArgument>{*argument};
    for (const ParsedArgument& list : lists)
      if (auto devices = to_integers(list)) choice.lists.push_back(std::move(*devices));
  }
  if (auto argument = take("mesh")) {
    choice.where = argument->where;
    if (argument->kind != ParsedArgument::Kind::Filter)
      fail(error(ErrorCode::E105, argument->where, fmt::format("{}: mesh must be coordinates such as {{pp=0}}", verb_))
               .help("mesh={} is all devices"));
    choice.mesh = std::move(argument->filter);
  }
  if (const auto argument = take("along")) {
    choice.where = argument->where;
    const std::vector<ParsedArgument> axes =
        argument->kind == ParsedArgument::Kind::List ? argument->items : std::vector<ParsedArgument>{*argument};
    for (const ParsedArgument& axis : axes) {
      if (axis.kind != ParsedArgument::Kind::Text || axis.text.empty())
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
}

void ArgumentReader::read(std::string_view, const kind::Axes& kind, std::vector<MeshAxis>& value) {
  for (const ParsedArgument& argument : arguments_) {
    if (argument.key.empty()) {
      fail(error(ErrorCode::E104, argument.where, fmt::format("{}: every axis needs a name", verb_))
               .help(fmt::format("for example {}(pp=2, dp=4)", verb_)));
      continue;
    }
    if (std::any_of(value.begin(), value.end(), [&](const MeshAxis& axis) { return axis.name == argument.key; }))
      fail(error(ErrorCode::E104, argument.where, fmt::format("{}: axis \"{}\" is given twice", verb_, argument.key))
               .help("give it another name, or take it out"));
    value.push_back({argument.key, to_integer(argument, kind.low, kind.high).value_or(kind.low)});
  }
  arguments_.clear();
}

std::optional<OrderElement> ArgumentReader::to_element(ParsedArgument argument) {
  OrderElement element{{}, argument.where};
  const bool bracket = argument.kind == ParsedArgument::Kind::List;
  if (!argument.key.empty()) {
    fail(error(ErrorCode::E104, argument.where, fmt::format("{}: unknown argument \"{}\"", verb_, argument.key))
             .help(fmt::format("{} takes filters, and brackets of filters, without names", verb_)));
    return std::nullopt;
  }
  if (argument.kind == ParsedArgument::Kind::Filter) {
    element.parts.push_back(std::move(argument.filter));
    return element;
  }
  if (!bracket || argument.items.size() < 2) {
    fail(error(ErrorCode::E105, argument.where,
               fmt::format("{}: an element is a filter, or a bracket of at least two filters that may run interleaved",
                           verb_))
             .help(bracket && argument.items.size() == 1
                       ? "take the bracket away"
                       : "for example {mb=0, pass=F}, or [{mb=1, pass=F}, {mb=0, pass=B}]"));
    return std::nullopt;
  }
  for (ParsedArgument& item : argument.items) {
    if (item.kind != ParsedArgument::Kind::Filter) {
      fail(error(ErrorCode::E105, item.where, fmt::format("{}: a bracket holds filters", verb_))
               .help("for example [{mb=1, pass=F}, {mb=0, pass=B}]"));
      return std::nullopt;
    }
    element.parts.push_back(std::move(item.filter));
  }
  return element;
}

void ArgumentReader::read(std::string_view, const kind::Elements&, std::vector<OrderElement>& value) {
  for (ParsedArgument& argument : std::exchange(arguments_, {}))
    if (auto element = to_element(std::move(argument))) value.push_back(std::move(*element));
  if (value.size() < 2)
    fail(error(ErrorCode::E104, where_, fmt::format("{}: needs at least two elements", verb_))
             .help(fmt::format("{}({{mb=0, pass=F}}, {{mb=1, pass=F}}) runs the second after the first", verb_)));
}

Checked ArgumentReader::finish() {
  const auto misspelt = std::find_if(arguments_.begin(), arguments_.end(), [&](const ParsedArgument& a) {
    return !a.key.empty() && std::find(known_.begin(), known_.end(), a.key) == known_.end() &&
           !nearest(a.key, known_).empty();
  });
  const bool explains =
      problem_ && problem_->code == ErrorCode::E104 && misspelt != arguments_.end();  // why one is missing
  if (problem_ && !explains) return std::move(*problem_);
  if (arguments_.empty()) return Ok{};
  const ParsedArgument& extra = explains ? *misspelt : arguments_[0];
  if (extra.key.empty())
    return error(ErrorCode::E104, extra.where, fmt::format("{}: one argument too many", verb_))
        .help("take it out, or give it a name: NAME=VALUE");
  return error(ErrorCode::E104, extra.where, fmt::format("{}: unknown argument \"{}\"", verb_, extra.key))
      .help(known_.empty() ? fmt::format("{} takes no named arguments", verb_) : did_you_mean(extra.key, known_));
}

}  // namespace piper
