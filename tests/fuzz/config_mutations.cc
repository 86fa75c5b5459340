// Damaged configuration files: read, and made into models.
#include <gtest/gtest.h>

#include "fuzz/trial.h"
#include "model/analytic/analytic_model.h"
#include "model/analytic/config_file.h"
#include "model/verify_model.h"

namespace piper::fuzz {
namespace {

TEST(Mutations, OfConfigurations) {
  const auto run = [](const Seed& seed, const std::string& text) {
    const auto config = parse_config(make_source(seed.name, text));
    if (!config) return Outcome::Refused;
    const auto model = analytic_model(config->model, resolve(config->step, config->model));
    if (!model) return Outcome::Parsed;
    EXPECT_TRUE(verify(*model)) << text;
    return Outcome::Parsed;
  };
  try_mutations("config", scaled(5'000), run);
}

}  // namespace
}  // namespace piper::fuzz
