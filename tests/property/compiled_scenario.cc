#include "property/compiled_scenario.h"

#include <fmt/format.h>

#include "model/model_text.h"
#include "schedule/schedule_text.h"

namespace piper::property {

Scenario scenario_of(int number) {
  Random random(20'260'000ULL + static_cast<uint64_t>(number));
  return random_scenario(random);
}

Result<Schedule> parsed(const Scenario& scenario) {
  return parse_schedule(make_source("random", scenario.schedule));
}

Result<Compiled> compiled(const Scenario& scenario) {
  PIPER_TRY(const Schedule schedule, parsed(scenario));
  return compile(std::make_shared<const ModelGraph>(scenario.model.graph), schedule);
}

std::string shown(int number, const Scenario& scenario) {
  return fmt::format("scenario {}\n{}\n{}", number, print(scenario.model.graph), scenario.schedule);
}

}  // namespace piper::property
