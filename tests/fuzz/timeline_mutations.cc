// Damaged timelines: read, and if they can still run, lowered, written and read again.
#include <gtest/gtest.h>

#include "fuzz/trial.h"
#include "timelines/as_schedule.h"
#include "timelines/csv.h"
#include "timelines/notation.h"
#include "timelines/validate_actions.h"
#include "timelines/with_communication.h"

namespace piper::fuzz {
namespace {

TEST(Mutations, OfTimelines) {
  const auto run = [&](const Seed& seed, const std::string& text) {
    const SourceFilePtr file = make_source(seed.name, text);
    const auto parsed = seed.name.ends_with(".csv") ? parse_csv_actions(file) : parse_notation(file);
    if (!parsed) return Outcome::Refused;
    EXPECT_EQ(parse_csv_actions(make_source("again", print_csv(parsed->actions)))->actions, parsed->actions) << text;
    if (!validate(*parsed)) return Outcome::Parsed;
    const Timeline timeline = strip(parsed->actions);
    EXPECT_TRUE(validate(ParsedTimeline{with_transfers(timeline), {}})) << text;
    (void)as_schedule(timeline, {});
    return Outcome::Compiled;
  };
  EXPECT_GE(try_mutations("timeline", scaled(20'000), run).compiled, scaled(300));
}

}  // namespace
}  // namespace piper::fuzz
