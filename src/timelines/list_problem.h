// What the list scheduler works on: every pass of a step as a number, with its rank, time and neighbours in arrays.
#pragma once

#include <vector>

#include "timelines/library.h"
#include "timelines/timeline.h"

namespace piper::timelines {

/// Any number of stages on any ranks, with costs of their own.
struct ListProblem {
  int ranks = 1;
  int microbatches = 1;
  /// The rank of a stage, by direction (one, or two) and stage.
  std::vector<std::vector<int>> rank_of;
  /// The direction that a microbatch takes. Empty: all of them the first.
  std::vector<int> direction_of = {};
  TimelineCosts costs = {};
  /// By stage: its backward is one pass B. Empty: all are split.
  std::vector<char> whole_backward = {};
  /// Most activations that a rank may keep, each from its F until its W or B.
  double limit = 1;
  /// The share of an activation that I frees; W frees the rest.
  double freed_by_I = 0;

  int stages() const { return static_cast<int>(rank_of[0].size()); }
};

/// The least limit with which every order of microbatches can go on: the most stages of one way on one rank.
int least_limit(const ListProblem& problem);
/// As many activations of each stage of a rank as there are ranks, like 1F1B; one more for two directions, like
/// DualPipe.
double usual_limit(const ListProblem& problem);

/// The passes of a problem. Pass `kind` (F, I, W) of a stage and microbatch has the number
/// (microbatch * stages + stage) * 3 + kind; a B is the I of its stage, which then has no W.
struct ListPasses {
  explicit ListPasses(const ListProblem& problem);

  enum Kind { F, I, W };
  static constexpr int none = -1;
  int id(int stage, int kind, int microbatch) const { return (microbatch * stages + stage) * 3 + kind; }
  static int kind(int pass) { return pass % 3; }
  int stage(int pass) const { return pass / 3 % stages; }
  int microbatch(int pass) const { return pass / 3 / stages; }

  int ranks = 0, stages = 0, microbatches = 0;
  double limit = 0;
  /// Times that differ by less are equal.
  double rounding = 0;
  /// By number. Absent ones have no rank.
  struct One {
    int rank = none;
    int before = none;  // the pass of the neighbouring stage that it waits for
    int after = none;   // the one that waits for it
    double lag = 0;     // from the end of `before` until its message is here
    double time = 0;
    double memory = 0;  // what it adds to the rank's activations
  };
  std::vector<One> all;
  const One& operator[](int pass) const { return all[pass]; }
  int size() const { return static_cast<int>(all.size()); }
  /// May a rank keep so many activations?
  bool has_room(double activations) const { return activations <= limit + 1e-9; }
  /// By stage: B is one pass.
  std::vector<char> whole_backward;
  /// By microbatch: its turn (the directions take turns), and the one that follows it in its direction.
  std::vector<int> turn, next;
  /// By direction: its first microbatch.
  std::vector<int> first;
  /// By rank: passes, the sum of their times, and the most stages of one direction.
  std::vector<int> count;
  std::vector<double> work;
  std::vector<int> chunks;
};

/// By rank: its passes in order.
using ListOrder = std::vector<std::vector<int>>;

/// No order can be shorter: a rank cannot start before its first input nor work faster; a microbatch goes through all
/// stages and back.
double lower_bound(const ListPasses& passes);

Timeline as_timeline(const ListPasses& passes, const ListOrder& order);
/// Overlapped pairs one after the other, B as I and W unless the backward is whole.
ListOrder as_order(const ListPasses& passes, const Timeline& timeline);

}  // namespace piper::timelines
