#include "timelines/timeline.h"

#include <fmt/format.h>

namespace piper {

std::string print(const TimelineOp& op) {
  const char letter = op.pass == Pass::BI ? 'I' : op.pass == Pass::BW ? 'W' : name(op.pass)[0];
  return fmt::format("{}{}{}", op.stage, letter, op.microbatch);
}

std::string print(const TimelineCell& cell) {
  return cell.second ? fmt::format("({};{})", print(cell.first), print(*cell.second)) : print(cell.first);
}

}  // namespace piper
