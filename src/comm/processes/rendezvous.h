// The rendezvous protocol: how messages of calls get from one process to another. Short ones are a control message;
// long ones are announced (request to send), and travel in pieces that the receiver waits for (clear to send).
// Used by the polling thread only.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/processes/batch.h"
#include "comm/processes/control_message.h"

namespace piper {

class Rendezvous {
 public:
  /// For pieces in progress when their call is given up.
  static constexpr std::chrono::seconds grace{3};

  explicit Rendezvous(Transport& transport) : transport_(transport) {}

  /// The memory is in use until the batch is complete or, after `withdraw`, released. `whole` is the size of what the
  /// message is a part of; both ends must say the same.
  void send(const std::shared_ptr<Batch>& batch, int rank, const MessageKey& key, std::span<const std::byte> data,
            size_t whole);
  void receive(const std::shared_ptr<Batch>& batch, int rank, const MessageKey& key, std::span<std::byte> data,
               size_t whole);
  /// The call has given up: whatever is not in progress stays where it is, the rest ends soon. Then releases the batch.
  void withdraw(const std::shared_ptr<Batch>& batch);

  /// Data, RequestToSend, ClearToSend, Refusal, DifferentSizes.
  void handle(int from, const ReceivedControl& received);
  /// PieceDone, PieceCancelled. The rank it came from; none: it was sent.
  std::optional<int> end_piece(const Transport::Event& event);
  /// After all that has come was handled: the next pieces in both directions.
  void start_pieces();

  /// Something is expected of others.
  bool waits() const { return !expected_.empty() || !requested_.empty() || !incoming_.empty(); }
  /// The memory of a call that has given up is still in use when `grace` is over.
  bool is_overdue() const;
  /// The transport is not called any more: nothing uses the memory of calls.
  void forget_withdrawn() { withdrawn_.clear(); }
  /// Grows while messages move. From any thread.
  int64_t moved() const { return moved_.load(std::memory_order_relaxed); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Message {
    std::shared_ptr<Batch> batch;
    MessageKey key;
    int rank = 0;
    std::byte* data = nullptr;  // of a send only read
    size_t bytes = 0, whole = 0;
    int64_t id = 0;      // the sender's
    int tag = 0;         // the receiver's choice
    size_t cleared = 0;  // of a receive
    size_t moved = 0;
    int pieces = 0;  // in progress: the transport uses the memory
    bool withdrawn = false;
  };
  using MessagePointer = std::shared_ptr<Message>;
  /// That its receiver waits for.
  struct Piece {
    MessagePointer message;
    int tag = 0;
    size_t offset = 0, bytes = 0;
  };
  /// What a sender says about a message.
  struct Arrival {
    MessageKey key;
    int rank = 0;
    int64_t id = 0;
    size_t bytes = 0, whole = 0;
    bool complete = false;  // otherwise announced
  };
  /// Before its receive was posted.
  struct Early {
    Arrival arrival;
    std::vector<std::byte> data;
  };

  void arrive(const Arrival& arrival, std::span<const std::byte> data);
  void meet(const MessagePointer& message, const Arrival& arrival, std::span<const std::byte> data);
  void cleared(int from, const ControlMessage& control);
  void refused(int from, const ControlMessage& control);
  void clear_pieces();
  void send_cleared();
  void forget(const MessagePointer& message);
  void release_if_unused(const std::shared_ptr<Batch>& batch);

  Transport& transport_;
  std::map<MessageKey, std::deque<MessagePointer>> expected_;
  std::map<MessageKey, std::deque<Early>> arrived_;
  std::map<int64_t, MessagePointer> requested_;                    // sends, by id
  std::map<int, MessagePointer> incoming_;                         // by tag, until the last piece is here
  std::deque<MessagePointer> to_clear_;                            // the next piece of the first is cleared next
  std::vector<Piece> to_send_;                                     // cleared since the last look
  std::map<Message*, MessagePointer> in_use_;                      // with pieces in progress
  std::map<std::shared_ptr<Batch>, Clock::time_point> withdrawn_;  // while memory is in use, since when
  size_t cleared_bytes_ = 0;                                       // bytes that may arrive now
  int64_t next_id_ = 0;
  int next_tag_ = 0;
  std::atomic<int64_t> moved_ = 0;
};

}  // namespace piper
