// One rank of a pattern timeline on a V: every pass takes one slot of a common clock.
#pragma once

#include <array>
#include <optional>
#include <vector>

namespace piper::timelines {

/// In the order in which a microbatch passes a rank; the digit is the chunk.
enum SlotKind { F0, F1, I1, I0, W };
constexpr int slot_kinds = 5;

/// W of a rank are numbered in the order of its I, whatever chunk they belong to.
struct SlotOp {
  SlotKind kind = F0;
  int number = 0;  // the microbatch, except for W
  friend bool operator==(const SlotOp&, const SlotOp&) = default;
};

/// What holds activations after each slot when each due W goes into the next free slot.
struct FilledState {
  int due = 0;
  int live = 0;
  friend bool operator==(const FilledState&, const FilledState&) = default;
};

class SlotRow {
 public:
  SlotRow() = default;
  /// Passes of microbatch 0 at `first`, of later ones every `period` slots.
  SlotRow(const std::array<int, 4>& first, int period, int microbatches);

  int slot(const SlotOp& op) const { return slots_[op.kind][op.number]; }
  const std::vector<int>& slots(SlotKind kind) const { return slots_[kind]; }
  bool is_free(int slot) const { return !at_[slot]; }
  const std::optional<SlotOp>& at(int slot) const { return at_[slot]; }
  int size() const { return static_cast<int>(at_.size()); }
  std::vector<SlotOp> in_order() const;

  void move(const SlotOp& op, int to);
  /// Gives every pass a new slot, in the same order.
  void retime(const std::vector<int>& new_slots);

  /// Each I makes one W due; each free slot takes a due W; what is left follows the last slot.
  void fill_weights();
  void remove_weights();

  /// Activations kept after each slot, from F until W.
  std::vector<int> live() const;
  /// The same before fill_weights, as if it had been called.
  std::vector<FilledState> filled() const;

  /// The state after a slot that holds `op` (or nothing), from the state before it.
  static FilledState step(FilledState state, const std::optional<SlotOp>& op);

 private:
  void put(const SlotOp& op, int slot);

  std::array<std::vector<int>, slot_kinds> slots_;  // by number
  std::vector<std::optional<SlotOp>> at_;
};

}  // namespace piper::timelines
