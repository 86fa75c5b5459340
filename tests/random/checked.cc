#include "random/checked.h"

#include "schedule/schedule_text.h"
#include "train/loop/check_training.h"

namespace piper::random {

Checked checked(const Case& c) {
  PIPER_TRY(const Schedule schedule, parse_schedule(make_source("case.piper", c.schedule())));
  PIPER_CHECK(check_training(make_source("case.toml", c.config()), {}, schedule));
  return Ok{};
}

}  // namespace piper::random
