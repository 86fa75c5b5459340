#include <fmt/format.h>

#include "base/suggest.h"
#include "schedule/argument_reader.h"
#include "schedule/fields.h"
#include "schedule/schedule_text.h"

namespace piper {
namespace {

template <class Body>
void read_arguments(ArgumentReader& in, Body& body) {
  if (!opening_word<Body>.empty()) in.keyword(opening_word<Body>);
  for_each_field<Body>([&](const auto& row) {
    if (!row.applies || row.applies(body)) in.read(row.name, row.kind, body.*row.member);
  });
}

/// `zb-h1` is three tokens.
Result<std::string> parse_timeline_name(Scanner& in) {
  PIPER_TRY(std::string name, in.name("the name of a timeline, as in use dualpipev(stages=stage, microbatches=mb)"));
  while (in.accept("-")) {
    PIPER_TRY(const std::string rest, in.name("the rest of the name"));
    name += "-" + rest;
  }
  return name;
}

Result<Directive> parse_directive(Scanner& in) {
  const Token first = in.peek();
  PIPER_TRY(const std::string verb, in.name("a directive"));
  std::optional<DirectiveBody> body = directive_named(verb);
  if (!body)
    return error(ErrorCode::E103, in.range(first), fmt::format("unknown directive \"{}\"", verb))
        .help(verb == "cut" ? "tensor parallelism is shard(…, along=tp)" : did_you_mean(verb, all_verbs()));
  const SourceRange where = in.range(first);
  std::optional<ArgumentPlace> timeline;
  if (auto* use = std::get_if<Use>(&*body)) {
    const Token second = in.peek();
    PIPER_TRY(use->timeline, parse_timeline_name(in));
    timeline = {"timeline", in.range_from(second)};
  }
  PIPER_TRY(std::vector<ParsedArgument> arguments, parse_arguments(in));
  ArgumentPlaces places = places_of(arguments);
  ArgumentReader reader(verb, std::move(arguments), where);
  std::visit([&](auto& directive) { read_arguments(reader, directive); }, *body);
  PIPER_CHECK(reader.finish());
  if (timeline) places.all.push_back(std::move(*timeline));
  return Directive{std::move(*body), where, std::move(places)};
}

}  // namespace

Result<Schedule> parse_schedule(const SourceFilePtr& file) {
  PIPER_TRY(Scanner in, Scanner::scan(file));
  Schedule schedule;
  if (in.is_symbol("["))
    return in.unexpected("a directive")
        .help("is this the original Piper's JSON? then the file's name must end in .json");
  while (!in.at_end()) {
    if (auto ended = in.end_of_line(); !ended) return std::move(ended.error()).help("one directive per line");
    PIPER_TRY(Directive directive, parse_directive(in));
    schedule.directives.push_back(std::move(directive));
  }
  if (schedule.directives.empty())
    return error(ErrorCode::E101, {file, 0, 1}, "the schedule is empty")
        .help("start with devices(1) and place({}, devices=[0])");
  return schedule;
}

}  // namespace piper
