// When buffers go on a processor whose memory belongs to streams, and which operations others wait for.
#pragma once

#include <vector>

#include "plan/plan.h"

namespace piper {

/// Buffers go that were taken on the same stream.
struct BufferRelease {
  PlanStreamId stream;
  std::vector<OpId> awaited;  // used them on other streams
  std::vector<BufferId> buffers;
};

struct MemoryOrder {
  Table<OpId, std::vector<OpId>> loaders;  // operations that loaded its inputs on other streams
  Table<OpId, std::vector<BufferRelease>> releases;
};

/// The next operation receives what this one sends: both ends of the transfer are on this device, and neither ends
/// before both have begun.
bool sends_to_itself(const PlanTemplate& program, OpId op);

/// Memory is taken on the stream of the first operation that touches it. When it goes that stream waits for the last
/// uses on others, and for devices that still read what was sent to them. Whoever reads an input waits for the
/// operation that has loaded it, unless inputs are there from the beginning. What a device sends to itself goes behind
/// the second end: another device may come to its own second end only then.
MemoryOrder order_memory(const PlanTemplate& program, bool inputs_are_there);

/// Whether another stream waits for it; or it communicates, and its event says when others have read what was
/// sent.
Table<OpId, char> awaited_operations(const PlanTemplate& program, const MemoryOrder& order);

}  // namespace piper
