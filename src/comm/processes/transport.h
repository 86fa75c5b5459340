// What carries bytes between processes: control messages of limited size to any rank, and pieces of memory between two
// ranks that agreed on a tag. One thread makes a transport, calls it and destroys it; only joining and leaving wait.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace piper {

class Transport {
 public:
  /// No piece is longer; longer control messages are refused.
  static constexpr size_t longest_control = (64 << 10) + 256;
  static constexpr size_t longest_piece = 256 << 10;

  /// What has happened since the last poll.
  struct Event {
    enum class Kind { ControlCame, ControlSent, PieceDone, PieceCancelled, Gone } kind;
    int rank = 0;                        // the other one
    std::span<const std::byte> control;  // ControlCame; valid until the next poll
    void* piece = nullptr;               // PieceDone, PieceCancelled: as given
    size_t bytes = 0;                    // of the piece
    int use = 0;                         // ControlSent: as given
    std::string problem;                 // not empty: what went wrong with the piece; Gone: how it is known
  };

  /// If `finish` was not called, the process has to end.
  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  /// Pieces have tags from 1 to here.
  virtual int highest_tag() const = 0;
  /// What carries, with its version.
  virtual const std::string& library() const = 0;

  /// `use` comes back with the event.
  virtual void send_control(int to, std::vector<std::byte> control, int use) = 0;
  /// The memory is in use until the event with `piece`. Pieces between two ranks with the same tag arrive in order; a
  /// piece is sent only after its receive was called.
  virtual void send_piece(int to, int tag, std::span<const std::byte> data, void* piece) = 0;
  virtual void receive_piece(int from, int tag, std::span<std::byte> data, void* piece) = 0;
  /// Those receives that nothing has arrived for; they end as PieceCancelled, the others as ever.
  virtual void cancel_receives(const void* piece) = 0;

  /// Adds to `events`, control messages in the order in which a rank sent them. `Gone`: nothing comes from a rank any
  /// more.
  virtual void poll(std::vector<Event>& events) = 0;
  /// Something is still on its way out, or pieces are expected.
  virtual bool busy() const = 0;

  /// All processes leave together.
  virtual void finish() = 0;
  /// Ends all processes.
  virtual void abort(int code) = 0;
};

/// Joins the other processes. Throws CommunicationError.
using MakeTransport = std::function<std::unique_ptr<Transport>()>;

}  // namespace piper
