// When buffers are freed on a processor whose memory belongs to streams, and which operations others wait for.
#pragma once

#include <vector>

#include "plan/plan.h"

namespace piper {

/// Buffers that were allocated on one stream and are freed together.
struct BufferRelease {
  PlanStreamId stream;
  std::vector<OpId> awaited;  // their last uses on other streams
  std::vector<BufferId> buffers;
};

struct MemoryOrder {
  Table<OpId, std::vector<OpId>> loaders;            // by operation: those that loaded its inputs, on other streams
  Table<OpId, std::vector<BufferRelease>> releases;  // by operation: what is freed behind it
};

/// Whether the next operation receives what this one sends: both ends of the transfer are on this device, and neither
/// ends before both have begun.
bool sends_to_itself(const PlanTemplate& program, OpId op);

/// Memory is allocated on the stream of the first operation that touches it. Before it is freed, that stream waits for
/// the last uses on other streams, and for devices that still read what was sent to them. An operation that reads an
/// input waits for the one that loaded it, unless all inputs are loaded when the step begins. What a device sends to
/// itself is freed behind the receive.
MemoryOrder order_memory(const PlanTemplate& program, bool inputs_are_there);

/// By operation: whether its event is needed, because another stream waits for it, or because it communicates and the
/// event says when others have read what was sent.
Table<OpId, char> awaited_operations(const PlanTemplate& program, const MemoryOrder& order);

}  // namespace piper
