// When the buffers that a plan frees can be used again, for the two ways in which memory is kept. The runtime follows
// these lists and decides nothing.
//
// The plan says after which operation each buffer is freed (`PlannedOp::frees`), the same on every processor; that the
// operations which reuse its bytes have waited for its users is proved (verify_memory_order.cc). On a CPU memory is
// one pool: a buffer returns to it when it is freed and all its users have ended. On a GPU memory belongs to the
// stream on which it was allocated, that of the first operation that touches the buffer: there it can be used again by
// whatever is enqueued next. So that stream first waits for the last uses on other streams, and for the devices that
// still read what was sent to them. What a device sends to itself is freed after the receive.
#pragma once

#include <vector>

#include "plan/plan.h"

namespace piper {

/// Buffers that are freed together.
struct BufferFree {
  PlanStreamId stream;      // that owns the memory; not valid: the pool, when all their users have ended
  std::vector<OpId> after;  // operations that the stream waits for before
  std::vector<BufferId> buffers;
};

/// By operation.
struct FreeOrder {
  Table<OpId, std::vector<BufferFree>> frees;  // what is freed after it
  Table<OpId, std::vector<OpId>> loaders;  // those that load inputs which it reads, on other streams: it waits for them
};

FreeOrder frees_to_pool(const PlanTemplate& program);
/// `inputs_are_there`: all inputs are loaded when the step begins, else by the first operation that reads them.
FreeOrder frees_by_stream(const PlanTemplate& program, bool inputs_are_there);

}  // namespace piper
