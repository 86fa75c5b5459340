#include <fmt/format.h>

#include <functional>
#include <map>

#include "base/suggest.h"
#include "schedule/arguments.h"
#include "schedule/schedule_text.h"

namespace piper {
namespace {

DirectiveBody read_devices(ArgumentReader& in) {
  return Devices{in.required_integer("", 1, most_parts)};
}

DirectiveBody read_mesh(ArgumentReader& in) {
  return Mesh{in.named_integers(1, most_parts)};
}

DirectiveBody read_split(ArgumentReader& in) {
  Split split;
  in.keyword("batch");
  split.parts = in.required_integer("parts", 1, most_parts);
  split.as = in.word("as").value_or("mb");
  return split;
}

DirectiveBody read_place(ArgumentReader& in) {
  Place place;
  place.what = in.filter("what to place");
  place.devices = in.devices();
  place.stages = in.integer("stages", 1, most_parts).value_or(0);
  place.at = in.integers("at").value_or(std::vector<int>{});
  place.shape = static_cast<StageShape>(in.choice("shape", {"loop", "v", "two_way"}).value_or(0));
  place.ranks = in.integers("ranks").value_or(std::vector<int>{});
  place.stage = in.integer("stage", 0, most_parts - 1);
  place.as = in.word("as").value_or(place.as);
  place.stream = in.word("stream").value_or(place.stream);
  place.transfers = in.word("transfers").value_or(place.transfers);
  return place;
}

DirectiveBody read_replicate(ArgumentReader& in) {
  Replicate replicate;
  replicate.what = in.filter("what to replicate");
  replicate.devices = in.devices();
  replicate.zero = in.integer("zero", 0, 3).value_or(0);
  replicate.bucket = in.bytes("bucket").value_or(replicate.bucket);
  replicate.gather_stream = in.word("gather_stream").value_or(replicate.gather_stream);
  replicate.reduce_stream = in.word("reduce_stream").value_or(replicate.reduce_stream);
  replicate.release = static_cast<Release>(in.choice("release", {"use", "pass", "step"}).value_or(0));
  return replicate;
}

DirectiveBody read_shard(ArgumentReader& in) {
  Shard shard;
  shard.what = in.filter("what to shard");
  shard.devices = in.devices();
  shard.parameters = in.shard_seeds("parameters");
  shard.vocabulary = in.choice("vocabulary", {"off", "on"}).value_or(0) == 1;
  shard.sequence = in.choice("sequence", {"off", "on"}).value_or(0) == 1;
  shard.regather = in.choice("regather", {"off", "on"}).value_or(0) == 1;
  shard.stream = in.word("stream").value_or(shard.stream);
  return shard;
}

DirectiveBody read_recompute(ArgumentReader& in) {
  return Recompute{in.filter("what to recompute")};
}

DirectiveBody read_prefetch(ArgumentReader& in) {
  Prefetch prefetch;
  prefetch.what = in.filter("which gathers to prefetch");
  prefetch.distance = in.integer_unless("distance", "all", 1, 0, most_parts);
  return prefetch;
}

DirectiveBody read_use(ArgumentReader& in) {
  Use use;
  use.stages = in.word("stages").value_or(use.stages);
  use.microbatches = in.word("microbatches").value_or(use.microbatches);
  use.group = in.integer("group", 1, most_parts);
  use.memory_limit = in.integer("memory_limit", 1, most_parts);
  use.backward = static_cast<Backward>(in.choice("backward", {"split", "whole"}).value_or(0));
  return use;
}

/// use file("NAME", …): sizes are the file's.
DirectiveBody read_use_file(ArgumentReader& in) {
  Use use;
  use.file = in.required_word("the name of a file");
  use.stages = in.word("stages").value_or(use.stages);
  use.microbatches = in.word("microbatches").value_or(use.microbatches);
  return use;
}

using Read = DirectiveBody (*)(ArgumentReader&);
const std::map<std::string, Read, std::less<>> readers = {
    {"devices", read_devices},     {"mesh", read_mesh},   {"split", read_split},         {"place", read_place},
    {"replicate", read_replicate}, {"shard", read_shard}, {"recompute", read_recompute}, {"prefetch", read_prefetch}};

Result<Order> read_order(std::vector<Argument> arguments, const SourceRange& where) {
  Order order;
  for (Argument& argument : arguments) {
    OrderElement element{{}, argument.where};
    if (!argument.key.empty())
      return error(ErrorCode::E104, argument.where, fmt::format("order: unknown argument \"{}\"", argument.key))
          .help("order takes filters, and brackets of filters, without names");
    if (argument.kind == Argument::Kind::Filter) {
      element.parts.push_back(std::move(argument.filter));
    } else if (argument.kind == Argument::Kind::List && argument.items.size() > 1) {
      for (Argument& item : argument.items) {
        if (item.kind != Argument::Kind::Filter)
          return error(ErrorCode::E105, item.where, "order: a bracket holds filters")
              .help("for example [{mb=1, pass=F}, {mb=0, pass=B}]");
        element.parts.push_back(std::move(item.filter));
      }
    } else {
      return error(ErrorCode::E105, argument.where,
                   "order: an element is a filter, or a bracket of at least two filters that may run interleaved")
          .help(argument.kind == Argument::Kind::List && argument.items.size() == 1
                    ? "take the bracket away"
                    : "for example {mb=0, pass=F}, or [{mb=1, pass=F}, {mb=0, pass=B}]");
    }
    order.elements.push_back(std::move(element));
  }
  if (order.elements.size() < 2)
    return error(ErrorCode::E104, where, "order: needs at least two elements")
        .help("order({mb=0, pass=F}, {mb=1, pass=F}) runs the second after the first");
  return order;
}

Result<Directive> parse_directive(Scanner& in) {
  const Token first = in.peek();
  PIPER_TRY(const std::string verb, in.name("a directive"));
  std::string timeline;
  const Token second = in.peek();
  if (verb == "use") {
    PIPER_TRY(timeline, in.name("the name of a timeline, as in use dualpipev(stages=stage, microbatches=mb)"));
    while (in.accept("-")) {  // zb-h1 is three tokens
      PIPER_TRY(const std::string rest, in.name("the rest of the name"));
      timeline += "-" + rest;
    }
  } else if (verb != "order" && !readers.contains(verb)) {
    return error(ErrorCode::E103, in.range(first), fmt::format("unknown directive \"{}\"", verb))
        .help(verb == "cut" ? "tensor parallelism is shard(…, along=tp)" : did_you_mean(verb, all_verbs()));
  }
  const SourceRange where = in.range(first), timeline_place = in.range_from(second);
  PIPER_TRY(std::vector<Argument> arguments, parse_arguments(in));
  ArgumentPlaces places = places_of(arguments);
  if (verb == "order") {
    PIPER_TRY(Order order, read_order(std::move(arguments), where));
    return Directive{std::move(order), where, std::move(places)};
  }
  ArgumentReader reader(verb, std::move(arguments), where);
  DirectiveBody body = timeline == "file" ? read_use_file(reader)
                       : verb == "use"    ? read_use(reader)
                                          : readers.find(verb)->second(reader);
  PIPER_CHECK(reader.finish());
  if (auto* use = std::get_if<Use>(&body)) {
    use->timeline = timeline;
    places.all.push_back({"timeline", timeline_place});
  }
  return Directive{std::move(body), where, std::move(places)};
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
