#include "timelines/slot_row.h"

#include <algorithm>

namespace piper::timelines {

SlotRow::SlotRow(const std::array<int, 4>& first, int period, int microbatches) {
  for (int kind = F0; kind <= I0; ++kind)
    for (int i = 0; i < microbatches; ++i) {
      slots_[kind].push_back(-1);
      put({static_cast<SlotKind>(kind), i}, first[kind] + period * i);
    }
}

void SlotRow::put(const SlotOp& op, int slot) {
  if (slot >= size()) at_.resize(slot + 1);
  at_[slot] = op;
  slots_[op.kind][op.number] = slot;
}

std::vector<SlotOp> SlotRow::in_order() const {
  std::vector<SlotOp> ops;
  for (const std::optional<SlotOp>& op : at_)
    if (op) ops.push_back(*op);
  return ops;
}

void SlotRow::move(const SlotOp& op, int to) {
  at_[slot(op)].reset();
  put(op, to);
}

void SlotRow::retime(const std::vector<int>& new_slots) {
  const std::vector<SlotOp> ops = in_order();
  at_.clear();
  for (size_t i = 0; i < ops.size(); ++i) put(ops[i], new_slots[i]);
}

void SlotRow::fill_weights() {
  const int inputs = static_cast<int>(slots_[I1].size() + slots_[I0].size());
  int due = 0;
  for (int slot = 0; static_cast<int>(slots_[W].size()) < inputs; ++slot) {
    if (slot < size() && at_[slot]) {
      if (at_[slot]->kind == I1 || at_[slot]->kind == I0) ++due;
    } else if (due > 0) {
      --due;
      slots_[W].push_back(-1);
      put({W, static_cast<int>(slots_[W].size()) - 1}, slot);
    }
  }
}

void SlotRow::remove_weights() {
  for (const int slot : slots_[W]) at_[slot].reset();
  slots_[W].clear();
  while (!at_.empty() && !at_.back()) at_.pop_back();
}

std::vector<int> SlotRow::live() const {
  std::vector<int> live;
  int now = 0;
  for (const std::optional<SlotOp>& op : at_) {
    if (op && (op->kind == F0 || op->kind == F1)) ++now;
    if (op && op->kind == W) --now;
    live.push_back(now);
  }
  return live;
}

std::vector<FilledState> SlotRow::filled() const {
  std::vector<FilledState> states;
  FilledState state;
  for (const std::optional<SlotOp>& op : at_) states.push_back(state = step(state, op));
  return states;
}

FilledState SlotRow::step(FilledState state, const std::optional<SlotOp>& op) {
  if (!op && state.due > 0) return {state.due - 1, state.live - 1};
  if (op && (op->kind == F0 || op->kind == F1)) return {state.due, state.live + 1};
  if (op && (op->kind == I1 || op->kind == I0)) return {state.due + 1, state.live};
  return state;
}

}  // namespace piper::timelines
