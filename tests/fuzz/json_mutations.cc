// Damaged schedules in JSON: read, written again, and some compiled.
#include <gtest/gtest.h>

#include "compile/compile.h"
#include "fuzz/trial.h"
#include "model/load_model.h"
#include "schedule/json_schedule.h"

namespace piper::fuzz {
namespace {

TEST(Mutations, OfJsonSchedules) {
  const auto loaded = load_model(std::string(PIPER_SOURCE_DIR) + "/tests/golden/models/two.model");
  const auto model = std::make_shared<const ModelGraph>(*loaded);
  const auto run = [&](const Seed& seed, const std::string& text) {
    const auto schedule = parse_json_schedule(make_source(seed.name, text));
    if (!schedule) return Outcome::Refused;
    const auto printed = print_json_schedule(*schedule);
    const auto again = printed ? parse_json_schedule(make_source("printed", *printed)) : Result<Schedule>(*schedule);
    EXPECT_TRUE(again && *again == *schedule) << text;
    return compile(model, *schedule) ? Outcome::Compiled : Outcome::Parsed;
  };
  try_mutations("json", scaled(10'000), run);
}

}  // namespace
}  // namespace piper::fuzz
