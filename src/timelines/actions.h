// A timeline with its communication: what a rank computes, sends and receives, as torch.distributed.pipelining has it.
//
//   0F0 0SEND_F0 0RECV_B0 0B0 0REDUCE_GRAD
//
// SEND and RECV carry the number of the stage on their own rank: 0SEND_F3 is received as 1RECV_F3, 1SEND_B3 as
// 0RECV_B3. `with_communication.h` makes such a timeline from passes, `validate_actions.h` checks one.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "timelines/timeline.h"

namespace piper {

enum class CommKind { SendF, RecvF, SendB, RecvB, Unshard, Reshard, ReduceGrad };

/// One per microbatch for sends and receives, one per stage for the others.
struct CommAction {
  int stage = 0;
  CommKind kind = CommKind::SendF;
  int microbatch = -1;  // -1: all
  friend auto operator<=>(const CommAction&, const CommAction&) = default;
};

bool is_send(CommKind kind);
bool is_receive(CommKind kind);
bool has_microbatch(CommKind kind);
std::string_view name(CommKind kind);  // SEND_F
const std::vector<CommKind>& all_comm_kinds();

using TimelineAction = std::variant<TimelineCell, CommAction>;

struct ActionTimeline {
  std::vector<std::vector<TimelineAction>> ranks;
  friend bool operator==(const ActionTimeline&, const ActionTimeline&) = default;
};

/// The other half of a send or receive: the receive of 0SEND_F3 is 1RECV_F3.
CommAction partner(const CommAction& action);
/// The pass before a send, or after a receive: 0F3 for 0SEND_F3. Backwards are given as B.
TimelineOp pass_of(const CommAction& action);

/// Without communication, and back.
Timeline strip(const ActionTimeline& timeline);
ActionTimeline as_actions(const Timeline& timeline);

std::string print(const CommAction& action);      // 0SEND_F3
std::string print(const TimelineAction& action);  // (0F5;1B2)

}  // namespace piper
