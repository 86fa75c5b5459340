// Rows that are sorted by expert, among devices that divide the experts: who sends which of them in which round.
//
// Everything follows from where the rows of each expert end on every member, which all of them know. A receiver takes
// its rows in the order (expert, member, the member's own), in each round as many as its buffer has room for. So what a
// member sends it in a round lies together; and how many rounds there are is the same for all.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace piper {

struct RowRange {
  int64_t first = 0, count = 0;
  friend bool operator==(const RowRange&, const RowRange&) = default;
};

/// A part of what arrives: its offset in the messages, and in the receiver's buffer.
struct RowPiece {
  int64_t in_messages = 0;  // offset in the messages of all members, one after another
  int64_t at = 0, count = 0;
  friend bool operator==(const RowPiece&, const RowPiece&) = default;
};

class RoutedRows {
 public:
  /// `ends`: [members, experts]. `room`: rows of a buffer.
  RoutedRows(std::span<const int32_t> ends, int members, int64_t room);

  int64_t experts_here() const { return experts_ / members_; }
  /// Rounds that the receiver with the most rows needs; at least one.
  int64_t rounds() const;
  /// Rows that a member has before the exchange; the rest of its buffer belongs to no expert.
  int64_t held(int member) const { return ends_[static_cast<size_t>((member + 1) * experts_ - 1)]; }
  /// Rows that a member gets, of all members.
  int64_t received(int to) const;
  /// Consecutive rows of `from`.
  RowRange sent(int from, int to, int64_t round) const;
  /// What a receiver gets from each member: places in its messages, then from there into the buffer.
  std::vector<RowRange> arrivals(int to, int64_t round) const;
  std::vector<RowPiece> pieces(int to, int64_t round) const;
  /// Where the rows of each of its experts end in the buffer.
  void ends_in(int to, int64_t round, std::span<int32_t> out) const;

 private:
  /// Calls visit(expert, member, place, count) for all rows of a receiver, in their order.
  template <class Visit>
  void each(int to, Visit visit) const;
  int64_t first_row(int member, int64_t expert) const;
  int64_t count(int member, int64_t expert) const;

  std::vector<int32_t> ends_;
  int members_;
  int64_t experts_, room_;
};

}  // namespace piper
