// The times behind a timeline as they are written on the command line.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "timelines/library.h"

namespace piper {

struct CostOption {
  TimelineCosts costs;
  std::optional<double> overlap;
};

/// Is the key `overlap` known?
enum class OverlapCost { Refused, Taken };

/// `F=1,I=1:1:1:1.5,W=1,comm=0.1,stages=1:1:1:1.5`: one time, or one for every stage; `stages` has a factor for F, I
/// and W of every stage. What is not given is 1, comm 0. E105: unknown. E102: not a time. E104: twice, or lists that
/// differ.
Result<CostOption> parse_costs(const std::string& text, OverlapCost overlap);

}  // namespace piper
