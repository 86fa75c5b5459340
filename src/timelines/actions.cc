#include "timelines/actions.h"

#include <fmt/format.h>

#include "base/invariant.h"
#include "base/overloaded.h"

namespace piper {

bool is_send(CommKind kind) {
  return kind == CommKind::SendF || kind == CommKind::SendB;
}

bool is_receive(CommKind kind) {
  return kind == CommKind::RecvF || kind == CommKind::RecvB;
}

bool has_microbatch(CommKind kind) {
  return is_send(kind) || is_receive(kind);
}

std::string_view name(CommKind kind) {
  switch (kind) {
    case CommKind::SendF:
      return "SEND_F";
    case CommKind::RecvF:
      return "RECV_F";
    case CommKind::SendB:
      return "SEND_B";
    case CommKind::RecvB:
      return "RECV_B";
    case CommKind::Unshard:
      return "UNSHARD";
    case CommKind::Reshard:
      return "RESHARD";
    case CommKind::ReduceGrad:
      return "REDUCE_GRAD";
  }
  internal_error("communication has a name");
}

const std::vector<CommKind>& all_comm_kinds() {
  static const std::vector<CommKind> all = {CommKind::SendF,   CommKind::RecvF,   CommKind::SendB,     CommKind::RecvB,
                                            CommKind::Unshard, CommKind::Reshard, CommKind::ReduceGrad};
  return all;
}

CommAction partner(const CommAction& action) {
  switch (action.kind) {
    case CommKind::SendF:
      return {action.stage + 1, CommKind::RecvF, action.microbatch};
    case CommKind::RecvF:
      return {action.stage - 1, CommKind::SendF, action.microbatch};
    case CommKind::SendB:
      return {action.stage - 1, CommKind::RecvB, action.microbatch};
    case CommKind::RecvB:
      return {action.stage + 1, CommKind::SendB, action.microbatch};
    default:
      internal_error("only sends and receives have a partner");
  }
}

TimelineOp pass_of(const CommAction& action) {
  const bool forward = action.kind == CommKind::SendF || action.kind == CommKind::RecvF;
  return {action.stage, forward ? Pass::F : Pass::B, action.microbatch};
}

Timeline strip(const ActionTimeline& timeline) {
  Timeline out;
  for (const auto& row : timeline.ranks) {
    auto& cells = out.ranks.emplace_back();
    for (const TimelineAction& action : row)
      if (const auto* cell = std::get_if<TimelineCell>(&action)) cells.push_back(*cell);
  }
  return out;
}

ActionTimeline as_actions(const Timeline& timeline) {
  ActionTimeline out;
  for (const auto& row : timeline.ranks) out.ranks.emplace_back(row.begin(), row.end());
  return out;
}

std::string print(const CommAction& action) {
  return has_microbatch(action.kind) ? fmt::format("{}{}{}", action.stage, name(action.kind), action.microbatch)
                                     : fmt::format("{}{}", action.stage, name(action.kind));
}

std::string print(const TimelineAction& action) {
  return std::visit(overloaded{[](const TimelineCell& cell) { return print(cell); },
                               [](const CommAction& comm) { return print(comm); }},
                    action);
}

}  // namespace piper
