// The text form of schedules: parse(print(s)) == s. Grammar: docs/schedule.md.
#pragma once

#include <string>

#include "base/result.h"
#include "base/text/scanner.h"
#include "schedule/schedule.h"

namespace piper {

std::string print(const Schedule& schedule);
std::string print(const DirectiveBody& body);
std::string print(const Filter& filter);

Result<Schedule> parse_schedule(const SourceFilePtr& file);

/// `{layer=0..3, pass=F}` at the scanner's position; also used for nodes named on the command line.
Result<Filter> parse_filter(Scanner& in);

}  // namespace piper
