// Communication put into a timeline of passes, as the lowering of torch.distributed.pipelining does it. Its steps, in
// the order in which PyTorch takes them; each may be left out:
//
//   merge_backward          0I2 0W2                  ->  0B2
//   insert_unshards         0F0 … 0B1                ->  0UNSHARD 0F0 … 0B1 0RESHARD
//   insert_reductions       0B0 0B1                  ->  0B0 0B1 0REDUCE_GRAD
//   insert_transfers        0F0 | 1F0                ->  0F0 0SEND_F0 | 1RECV_F0 1F0
//   defer_receives          1RECV_F0 1RECV_F1 1F0    ->  1RECV_F0 1F0 1RECV_F1
#pragma once

#include "timelines/actions.h"

namespace piper {

/// I directly followed by its W is one B.
Timeline merge_backward(const Timeline& timeline);

/// A rank holds the parameters of the next `active_stages` different stages it will run: it gathers them before the
/// first pass that comes that near, and gives them up when another stage needs the room, or at the end.
ActionTimeline insert_unshards(ActionTimeline timeline, int active_stages);

/// The gradients of a stage are reduced after the last of its backwards on a rank.
ActionTimeline insert_reductions(ActionTimeline timeline);

/// A send directly after every pass whose result another rank needs, and the receive there: at the place that rank has
/// reached when all ranks take one action each in turn. The timeline is valid and has no sends or receives yet.
ActionTimeline insert_transfers(const ActionTimeline& timeline);

/// Receives move to the pass that uses them, but not past a send to the same rank if that has a higher number: so of
/// two ranks that send to each other one receives first. Sound only where a stage and the next take the microbatches in
/// the same order.
ActionTimeline defer_receives(const ActionTimeline& timeline);

/// Sends and receives only: what PyTorch's `_sendrecv` files have.
ActionTimeline with_transfers(const Timeline& timeline);

}  // namespace piper
