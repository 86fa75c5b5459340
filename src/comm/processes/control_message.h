// Control messages: what the engines of two processes tell each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "comm/processes/message_key.h"
#include "comm/processes/transport.h"

namespace piper {

/// The fixed part; what follows depends on the kind.
struct ControlMessage {
  enum class Kind : int32_t {
    Data,            // key, bytes, whole; the message
    RequestToSend,   // key, id, bytes, whole: a message that is too long for a control message
    ClearToSend,     // id, tag, offset, bytes: the receiver waits for this piece
    Refusal,         // id, tag: the message of a clear to send has been withdrawn
    DifferentSizes,  // id: of a request to send
    Abort,           // key.world; the reason
    Heartbeat,       // id: counts them; the block
    End,             // id: this process ends with that code
    Goodbye,         // nothing follows from this rank
  } kind;
  int32_t tag = 0;
  MessageKey key;
  int64_t id = 0;
  uint64_t offset = 0, bytes = 0, whole = 0;
};

/// No more may follow.
inline constexpr size_t inline_bytes = 64 << 10;
static_assert(sizeof(ControlMessage) + inline_bytes <= Transport::longest_control);

/// What Transport::Event::use says when a heartbeat is on its way.
inline constexpr int about_heartbeat = 1;

void send_control(Transport& transport, int to, const ControlMessage& control, std::span<const std::byte> data = {},
                  int use = 0);

/// A control message as it came. `data` lies in `bytes`.
struct ReceivedControl {
  ControlMessage control;
  std::span<const std::byte> data;
};
ReceivedControl read_control(std::span<const std::byte> bytes);

}  // namespace piper
