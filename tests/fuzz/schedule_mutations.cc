// Damaged schedules: parsed, and compiled for a small model if they still read.
#include <gtest/gtest.h>

#include <map>

#include "compile/compile.h"
#include "fuzz/trial.h"
#include "model/load_model.h"
#include "plan/verify_plan.h"
#include "schedule/schedule_text.h"

namespace piper::fuzz {
namespace {

/// The model a seed is for: `four_1f1b.piper` is for `four.model`.
std::shared_ptr<const ModelGraph> model_for(const Seed& seed) {
  static std::map<std::string, std::shared_ptr<const ModelGraph>> known;
  auto& model = known[seed.name.substr(0, seed.name.find('_'))];
  if (!model) {
    auto loaded = load_model(std::string(PIPER_SOURCE_DIR) + "/tests/golden/models/" +
                             seed.name.substr(0, seed.name.find('_')) + ".model");
    if (!loaded) throw std::runtime_error(render(loaded.error()));
    model = std::make_shared<const ModelGraph>(*std::move(loaded));
  }
  return model;
}

TEST(Mutations, OfSchedules) {
  int compiled = 0;
  const auto run = [&](const Seed& seed, const std::string& text) {
    const auto schedule = parse_schedule(make_source(seed.name, text));
    if (!schedule) return Outcome::Refused;
    const auto again = parse_schedule(make_source("printed", print(*schedule)));
    EXPECT_TRUE(again && *again == *schedule) << text;
    if (compiled >= scaled(6'000)) return Outcome::Parsed;  // enough for the time there is
    const auto result = compile(model_for(seed), *schedule);
    if (!result) return Outcome::Parsed;
    EXPECT_TRUE(verify(result->plan)) << text;
    ++compiled;
    return Outcome::Compiled;
  };
  EXPECT_GE(try_mutations("schedule", scaled(40'000), run).compiled, scaled(5'000));
}

}  // namespace
}  // namespace piper::fuzz
