// The text form of schedules: every directive and option survives printing and parsing; every kind of mistake is told
// with its place.
#include "schedule/schedule_text.h"

#include <gtest/gtest.h>

namespace piper {
namespace {

Schedule parsed(const std::string& text) {
  auto schedule = parse_schedule(make_source("t", text));
  EXPECT_TRUE(schedule) << text << "\n" << (schedule ? "" : render(schedule.error()));
  return schedule ? *std::move(schedule) : Schedule{};
}

/// The only directive of the text.
template <class Body>
Body only(const std::string& text) {
  const Schedule schedule = parsed(text);
  EXPECT_EQ(schedule.directives.size(), 1u);
  return std::get<Body>(schedule.directives.at(0).body);
}

struct Refused {
  std::string text;
  std::string code;
  int line, column;
  std::string message;
  std::string help = "";
};

void expect_refused(const Refused& wanted) {
  auto schedule = parse_schedule(make_source("t", wanted.text));
  ASSERT_FALSE(schedule) << wanted.text;
  const Diagnostic& problem = schedule.error();
  const SourcePosition at = position_of(problem.where);
  EXPECT_EQ(name(problem.code), wanted.code) << render(problem);
  EXPECT_EQ(at.line, wanted.line) << render(problem);
  EXPECT_EQ(at.column, wanted.column) << render(problem);
  EXPECT_EQ(problem.message, wanted.message) << render(problem);
  if (!wanted.help.empty()) {
    ASSERT_FALSE(problem.helps.empty()) << render(problem);
    EXPECT_EQ(problem.helps[0], wanted.help);
  }
}

// Canonical: what is printed is what was written.
const char* const canonical[] = {
    "devices(4)",
    "mesh(pp=16, dp=256)",
    "mesh(\"odd name\"=2)",
    "split(batch, parts=8, as=mb)",
    "split(batch, parts=1, as=MB)",
    "place({}, devices=[0])",
    "place({layer=0..3}, devices=[0, 1])",
    "place({layer=[0, 2..4, 9], mb=1}, devices=[0..3, 8], stream=side, transfers=nvlink)",
    "place({experts=*}, mesh={pp=0})",
    "place({}, mesh={})",
    "place({}, mesh={pp=[0, 2], dp=*})",
    "place({}, along=pp, stages=4)",
    "place({}, along=pp, stages=3, at=[2, 5], shape=v, as=part)",
    "place({}, along=pp, stages=2, shape=two_way)",
    "replicate({}, along=dp, zero=0)",
    "replicate({}, along=[edp, ep], zero=3, release=pass)",
    "replicate({layer=0}, devices=[0, 1], zero=2, bucket=10MB, gather_stream=g, reduce_stream=r, release=step)",
    "replicate({}, devices=[0, 1] | [2, 3], zero=1, bucket=12345)",
    "shard({layer=*, experts=*}, devices=[0, 1] | [2, 3])",
    "shard({experts=*}, along=dp, stream=all_to_all)",
    "recompute({layer=0..1})",
    "precision({layer=0..1}, matmul=float8)",
    "prefetch({comm=gather}, distance=0)",
    "prefetch({comm=gather, layer=2}, distance=all)",
    "order({mb=0, pass=F}, {mb=1, pass=[BI, BW]})",
    "order({mb=0, pass=F}, [{mb=1, pass=F}, {mb=0, pass=B}], {comm=[reduce, exchange]})",
    "order({pass=*}, {comm=*})",
    "use 1f1b(stages=stage, microbatches=mb)",
    "use interleaved_1f1b(stages=part, microbatches=MB, group=4, memory_limit=3)",
    "use \"zb-h1\"(stages=stage, microbatches=mb)",
    "use list(stages=stage, microbatches=mb, backward=whole)",
};

TEST(ScheduleText, WhatIsPrintedIsWhatWasWritten) {
  std::string all;
  for (const std::string text : canonical) {
    const Schedule schedule = parsed(text + "\n");
    EXPECT_EQ(print(schedule), text + "\n");
    all += text + "\n";
  }
  EXPECT_EQ(print(parsed(all)), all);
  EXPECT_EQ(parsed(print(parsed(all))), parsed(all));
}

TEST(ScheduleText, Defaults) {
  EXPECT_EQ(only<Split>("split(batch, parts=2)"), (Split{2, "mb"}));
  const Place place = only<Place>("place({}, devices=[0])");
  EXPECT_EQ(place.stages, 0);
  EXPECT_EQ(place.shape, StageShape::Loop);
  EXPECT_EQ(place.as, "stage");
  EXPECT_EQ(place.stream, "compute");
  EXPECT_EQ(place.transfers, "p2p");
  const Replicate replicate = only<Replicate>("replicate({}, along=dp)");
  EXPECT_EQ(replicate.zero, 0);
  EXPECT_EQ(replicate.bucket, 25'000'000);
  EXPECT_EQ(replicate.gather_stream, "dp");
  EXPECT_EQ(replicate.reduce_stream, "dp");
  EXPECT_EQ(replicate.release, Release::Use);
  const Shard shard = only<Shard>("shard({}, along=ep)");
  EXPECT_EQ(shard.stream, "");  // that of experts or of parameters
  EXPECT_TRUE(shard.parameters.empty() && !shard.vocabulary && shard.sequence == Sequence::Off && !shard.regather);
  EXPECT_EQ(only<Prefetch>("prefetch({comm=gather})").distance, 1);
  EXPECT_EQ(only<Prefetch>("prefetch({comm=gather}, distance=all)").distance, std::nullopt);
  const Use use = only<Use>("use dualpipev()");
  EXPECT_EQ(use.timeline, "dualpipev");
  EXPECT_EQ(use.stages, "stage");
  EXPECT_EQ(use.microbatches, "mb");
}

TEST(ScheduleText, DefaultsThatAreWrittenAreNotPrinted) {
  EXPECT_EQ(print(parsed("replicate({}, along=[dp], bucket=25MB, release=use, gather_stream=dp)")),
            "replicate({}, along=dp, zero=0)\n");
  EXPECT_EQ(print(parsed("place({}, devices=[0,1,2], shape=loop, stream=compute)")), "place({}, devices=[0..2])\n");
}

TEST(ScheduleText, SpacesLinesAndComments) {
  const Schedule schedule =
      parsed("# a comment\n\n  devices ( 4 )  // another\nplace({\n  layer = 0 .. 3, # inside\n},\n devices=[0,],)\n");
  EXPECT_EQ(print(schedule), "devices(4)\nplace({layer=0..3}, devices=[0])\n");
}

TEST(ScheduleText, ArgumentsInAnyOrder) {
  EXPECT_EQ(parsed("place(devices=[0], {layer=1})"), parsed("place({layer=1}, devices=[0])"));
  EXPECT_EQ(parsed("split(as=mb, parts=2, batch)"), parsed("split(batch, parts=2)"));
}

TEST(ScheduleText, TimelinesByTheirPublishedName) {
  EXPECT_EQ(only<Use>("use zb-h1()").timeline, "zb-h1");
  EXPECT_EQ(only<Use>("use interleaved-1f1b(group=2)").timeline, "interleaved-1f1b");
  expect_refused({"use zb-()", "E101", 1, 8, "expected the rest of the name, found '('"});
}

TEST(ScheduleText, WhereDirectivesAndFiltersStand) {
  const Schedule schedule = parsed("devices(1)\n  place({layer=0, mb=1}, devices=[0])\n");
  const Directive& directive = schedule.directives[1];
  EXPECT_EQ(short_place(directive.where), "t:2");
  EXPECT_EQ(position_of(directive.where).column, 3);
  const Place& place = std::get<Place>(directive.body);
  EXPECT_EQ(position_of(place.what.where).column, 9);
  EXPECT_EQ(position_of(place.what.conditions[1].where).column, 19);
  EXPECT_EQ(position_of(place.devices.where).column, 26);
}

TEST(ScheduleText, WrongText) {
  expect_refused({"", "E101", 1, 1, "the schedule is empty", "start with devices(1) and place({}, devices=[0])"});
  expect_refused({"# only a comment", "E101", 1, 1, "the schedule is empty"});
  expect_refused({"devices(1) devices(2)", "E101", 1, 12, "expected the end of the line, found 'devices'"});
  expect_refused({"devices 4", "E101", 1, 9, "expected '(' before the arguments, found '4'"});
  expect_refused({"devices(4", "E101", 1, 10, "expected ')' after the arguments, found the end of the text"});
  expect_refused({"place({layer=0, devices=[0])", "E101", 1, 28, "expected '}' after the filter, found ')'"});
  expect_refused({"place({layer}, devices=[0])", "E101", 1, 13, "expected '=' after the tag \"layer\", found '}'"});
  expect_refused({"place({}, devices=[0)", "E101", 1, 21, "expected ']' after the list, found ')'"});
  expect_refused({"place({}, stream=\"x)", "E101", 1, 18, "string without closing quote"});
  expect_refused({"place({}, stream=?)", "E101", 1, 18, "unexpected '?'"});
  expect_refused({"place({}, at=[[[[[[[[[[[1]]]]]]]]]]])", "E101", 1, 23, "lists are nested too deeply"});
}

TEST(ScheduleText, WrongNumbersAndSizes) {
  expect_refused({"place({layer=3..1}, devices=[0])", "E102", 1, 14, "the range 3..1 is empty",
                  "write 1..3; both ends are included"});
  expect_refused({"place({layer=-1}, devices=[0])", "E102", 1, 14, "an index is between 0 and 10^9"});
  expect_refused({"place({layer=2000000000}, devices=[0])", "E102", 1, 14, "an index is between 0 and 10^9"});
  expect_refused({"replicate({}, along=dp, bucket=25mb)", "E102", 1, 25,
                  "replicate: bucket must be a size such as 25MB or 512KiB"});
  expect_refused(
      {"replicate({}, along=dp, bucket=0)", "E102", 1, 25, "replicate: bucket must be a size such as 25MB or 512KiB"});
}

TEST(ScheduleText, UnknownDirectives) {
  expect_refused(
      {"devices(1)\nplce({}, devices=[0])", "E103", 2, 1, "unknown directive \"plce\"", "did you mean \"place\"?"});
}

TEST(ScheduleText, UnknownMissingAndRepeatedArguments) {
  expect_refused({"place({}, devices=[0], strem=x)", "E104", 1, 24, "place: unknown argument \"strem\"",
                  "did you mean \"stream\"?"});
  expect_refused({"place(devices=[0])", "E104", 1, 1, "place: what to place is missing"});
  expect_refused({"place({})", "E104", 1, 1, "place: does not say on which devices",
                  "add devices=[0, 1], mesh={pp=0} or along=AXIS"});
  expect_refused(
      {"place({}, devices=[0], along=pp)", "E104", 1, 24, "place: devices, mesh and along exclude each other"});
  expect_refused({"place({}, devices=[0], devices=[1])", "E104", 1, 24, "place: argument \"devices\" is given twice"});
  expect_refused({"place({layer=0, layer=1}, devices=[0])", "E104", 1, 17, "tag \"layer\" stands twice in one filter",
                  "several indices are a list: layer=[0, 2]"});
  expect_refused({"place({}, {}, devices=[0])", "E104", 1, 11, "place: one argument too many"});
  expect_refused({"split(parts=2)", "E104", 1, 1, "split: the first argument must be \"batch\""});
  expect_refused({"split(batch)", "E104", 1, 1, "split: argument \"parts\" is missing"});
  expect_refused({"devices()", "E104", 1, 1, "devices: the number is missing", "write it without a name: devices(4)"});
  expect_refused({"devices(count=4)", "E104", 1, 1, "devices: the number is missing"});
  expect_refused({"devices(4, 5)", "E104", 1, 12, "devices: one argument too many"});
  expect_refused({"mesh(2)", "E104", 1, 6, "mesh: every axis needs a name", "for example mesh(pp=2, dp=4)"});
  expect_refused({"mesh(pp=2, pp=3)", "E104", 1, 12, "mesh: axis \"pp\" is given twice"});
  expect_refused({"order({mb=0})", "E104", 1, 1, "order: needs at least two elements"});
  expect_refused({"order(first={mb=0}, {mb=1})", "E104", 1, 7, "order: unknown argument \"first\""});
  expect_refused({"use 1f1b(stage=s)", "E104", 1, 10, "use: unknown argument \"stage\"", "did you mean \"stages\"?"});
}

TEST(ScheduleText, ArgumentsOfTheWrongKindOrValue) {
  expect_refused({"devices(0)", "E105", 1, 9, "devices: the argument must be a whole number between 1 and 1000000"});
  expect_refused({"devices(2.5)", "E105", 1, 9, "devices: the argument must be a whole number between 1 and 1000000"});
  expect_refused({"mesh(pp=0)", "E105", 1, 6, "mesh: pp must be a whole number between 1 and 1000000"});
  expect_refused({"split(samples, parts=2)", "E105", 1, 7, "split: the first argument must be \"batch\""});
  expect_refused(
      {"replicate({}, along=dp, zero=4)", "E105", 1, 25, "replicate: zero must be a whole number between 0 and 3"});
  expect_refused({"replicate({}, along=dp, release=never)", "E105", 1, 25,
                  "replicate: release must be one of use, pass, step", "known: use, pass, step"});
  expect_refused({"place({}, along=pp, stages=2, shape=loup)", "E105", 1, 31,
                  "place: shape must be one of loop, v, two_way", "did you mean \"loop\"?"});
  expect_refused(
      {"place(layer, devices=[0])", "E105", 1, 7, "place: what to place must be a filter such as {layer=0..3}"});
  expect_refused(
      {"place({}, devices=0)", "E105", 1, 11, "place: expected a list of numbers and ranges such as [0, 2..5]"});
  expect_refused(
      {"place({}, devices=[])", "E105", 1, 11, "place: expected a list of numbers and ranges such as [0, 2..5]"});
  expect_refused({"place({}, devices=[0..99999999])", "E105", 1, 20,
                  "place: expected a list of numbers and ranges such as [0, 2..5]"});
  expect_refused({"place({}, mesh=pp)", "E105", 1, 11, "place: mesh must be coordinates such as {pp=0}"});
  expect_refused({"place({}, along=[0..1])", "E105", 1, 18, "place: along takes names of mesh axes"});
  expect_refused({"place({}, devices=[0], stream=[a])", "E105", 1, 24, "place: stream must be a name"});
  expect_refused(
      {"order({pass=1}, {pass=B})", "E105", 1, 8, "pass takes a word, not a number", "pass=F, B, BI, BW or R"});
  expect_refused({"order({mb=F}, {mb=1})", "E105", 1, 8, "mb takes an index, a range, a list, * or none, not \"F\""});
  expect_refused({"order(a, {mb=1})", "E105", 1, 7,
                  "order: an element is a filter, or a bracket of at least two filters that may run interleaved"});
  expect_refused({"order([{mb=0}, 1], {mb=1})", "E105", 1, 16, "order: a bracket holds filters"});
  for (const char* distance : {"-1", "soon", "1.5", "4294967297"})
    expect_refused({std::string("prefetch({comm=gather}, distance=") + distance + ")", "E105", 1, 25,
                    "prefetch: distance must be a whole number between 0 and 1000000, or all"});
}

TEST(ScheduleText, TheOtherHalfOfAConflict) {
  auto schedule = parse_schedule(make_source("t", "place({layer=0, layer=1}, devices=[0])"));
  ASSERT_FALSE(schedule);
  EXPECT_EQ(render(schedule.error()),
            "t:1:17: error[E104]: tag \"layer\" stands twice in one filter\n"
            "  place({layer=0, layer=1}, devices=[0])\n"
            "                  ^^^^^^^\n"
            "t:1:8: note: first here\n"
            "  place({layer=0, layer=1}, devices=[0])\n"
            "         ^^^^^^^\n"
            "help: several indices are a list: layer=[0, 2]\n");
}

TEST(ScheduleText, DevicesAsRuns) {
  EXPECT_EQ(print_devices({}), "[]");
  EXPECT_EQ(print_devices({0}), "[0]");
  EXPECT_EQ(print_devices({0, 1}), "[0, 1]");
  EXPECT_EQ(print_devices({0, 1, 2}), "[0..2]");
  EXPECT_EQ(print_devices({3, 2, 1}), "[3, 2, 1]");
  EXPECT_EQ(print_devices({0, 2, 3, 4, 9}), "[0, 2..4, 9]");
}

TEST(ScheduleText, FiltersAlone) {
  auto in = Scanner::scan(make_source("t", "{layer=0..3, pass=F} rest"));
  ASSERT_TRUE(in);
  auto filter = parse_filter(*in);
  ASSERT_TRUE(filter);
  EXPECT_EQ(print(*filter), "{layer=0..3, pass=F}");
  EXPECT_TRUE(in->is_word("rest"));
  EXPECT_TRUE(filter->find("layer")->matches(3));
  EXPECT_FALSE(filter->find("layer")->matches(4));
  EXPECT_EQ(filter->find("mb"), nullptr);
}

TEST(ScheduleText, PlacesOfArgumentsAreKeptAndDoNotCount) {
  auto schedule = parse_schedule(make_source("t", "place({}, devices=[0..2, 7], stream=s)\nuse zb-h1(group=2)"));
  ASSERT_TRUE(schedule);
  const auto text_at = [](const SourceRange& range) {
    return range.file->text.substr(static_cast<size_t>(range.begin), static_cast<size_t>(range.end - range.begin));
  };
  const ArgumentPlaces& place = schedule->directives[0].arguments;
  EXPECT_EQ(text_at(place.find("")->where), "{}");
  EXPECT_EQ(text_at(place.find("stream")->where), "stream=s");
  EXPECT_EQ(place.find("zero"), nullptr);
  const ArgumentPlace& devices = *place.find("devices");
  EXPECT_EQ(text_at(place_of_number(devices, 2)), "0..2");
  EXPECT_EQ(text_at(place_of_number(devices, 3)), "7");
  EXPECT_EQ(text_at(place_of_number(devices, 4)), "devices=[0..2, 7]");
  EXPECT_EQ(text_at(schedule->directives[1].arguments.find("timeline")->where), "zb-h1");
  Schedule without = *schedule;
  for (Directive& directive : without.directives) directive.arguments = {};
  EXPECT_EQ(without, *schedule);
}

}  // namespace
}  // namespace piper
