// A random scenario by its number, compiled.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "compile/compile.h"
#include "property/random_schedule.h"

namespace piper::property {

/// The same number gives the same scenario everywhere.
Scenario scenario_of(int number);

Result<Schedule> parsed(const Scenario& scenario);
Result<Compiled> compiled(const Scenario& scenario);

/// Everything one needs to try a scenario by hand.
std::string shown(int number, const Scenario& scenario);

}  // namespace piper::property
