// MPI, as far as it is used: notes of limited size to any rank, and pieces of memory between two ranks that agreed on
// a tag. All calls are made by one thread; none of them waits, but joining and leaving.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace piper {

class Wire {
 public:
  /// Longer notes are refused.
  static constexpr size_t longest_note = (64 << 10) + 256;

  /// What has happened since the last poll.
  struct Event {
    enum class Kind { NoteCame, NoteSent, PieceDone, PieceCancelled } kind;
    int rank = 0;                     // the other one
    std::span<const std::byte> note;  // NoteCame; valid until the next poll
    void* piece = nullptr;            // PieceDone, PieceCancelled: as given
    size_t bytes = 0;                 // of the piece
    int use = 0;                      // NoteSent: as given
    std::string problem;              // not empty: MPI reports it
  };

  /// Joins the other processes. Throws CommunicationError.
  Wire();
  /// Takes back the receives of notes; leaves MPI if `finish` was called, otherwise the process has to end.
  ~Wire();
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  /// Pieces have tags from 1 to here.
  int highest_tag() const { return highest_tag_; }
  const std::string& library() const { return library_; }

  /// `use` comes back with the event.
  void send_note(int to, std::vector<std::byte> note, int use = 0);
  /// The memory is in use until the event with `piece`. Pieces between two ranks with the same tag arrive in order.
  void send_piece(int to, int tag, std::span<const std::byte> data, void* piece);
  void receive_piece(int from, int tag, std::span<std::byte> data, void* piece);
  /// Those receives that nothing has arrived for; they end as PieceCancelled, the others as ever.
  void cancel_receives(const void* piece);

  /// Adds to `events`, notes in the order in which a rank sent them.
  void poll(std::vector<Event>& events);
  /// Something is still on its way out, or pieces are expected.
  bool busy() const;

  /// All processes leave together.
  void finish();
  /// Ends all processes.
  void abort(int code);

 private:
  struct Mpi;  // what needs mpi.h
  std::unique_ptr<Mpi> mpi_;
  int rank_ = 0, ranks_ = 1, highest_tag_ = 0;
  std::string library_;
};

}  // namespace piper
