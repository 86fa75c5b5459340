#include "schedule/replace_directives.h"

#include <fmt/format.h>

#include <algorithm>

namespace piper {

Result<Schedule> with_directives(Schedule schedule, const std::vector<Directive>& instead) {
  for (const Directive& given : instead) {
    const auto same = [&](const Directive& directive) { return directive.body.index() == given.body.index(); };
    if (const auto count = std::ranges::count_if(schedule.directives, same); count != 1)
      return error(ErrorCode::E105, given.where,
                   count == 0 ? fmt::format("the schedule has no {} that this could replace", verb(given.body))
                              : fmt::format("the schedule has {} of {}: which one is to be replaced is not known",
                                            count, verb(given.body)))
          .help("change the schedule's file");
    *std::ranges::find_if(schedule.directives, same) = given;
  }
  return schedule;
}

}  // namespace piper
