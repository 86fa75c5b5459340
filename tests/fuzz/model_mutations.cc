// Damaged models in text form: parsed and verified, printed and read again; some compiled.
#include <gtest/gtest.h>

#include "compile/compile.h"
#include "fuzz/trial.h"
#include "model/model_text.h"
#include "schedule/schedule_text.h"

namespace piper::fuzz {
namespace {

TEST(Mutations, OfModels) {
  const auto schedule = parse_schedule(make_source(
      "schedule",
      "mesh(dp=2)\nsplit(batch, parts=2, as=mb)\nplace({}, mesh={})\nreplicate({}, along=dp, zero=2, bucket=1KB)\n"));
  int number = 0;
  const auto run = [&](const Seed& seed, const std::string& text) {
    const auto model = parse_model(make_source(seed.name, text));
    if (!model) return Outcome::Refused;
    const auto again = parse_model(make_source("printed", print(*model)));
    EXPECT_TRUE(again && *again == *model) << text;
    if (++number % 10 != 0) return Outcome::Parsed;
    return compile(std::make_shared<const ModelGraph>(*model), *schedule) ? Outcome::Compiled : Outcome::Parsed;
  };
  try_mutations("model", scaled(25'000), run);
}

}  // namespace
}  // namespace piper::fuzz
