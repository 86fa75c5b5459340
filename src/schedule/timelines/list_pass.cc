#include "schedule/timelines/list_pass.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <tuple>

namespace piper::timelines {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();
constexpr double rounding = 1e-9;

struct Arrival {
  double time;
  int pass;
  friend bool operator<(const Arrival& a, const Arrival& b) {
    return std::tie(a.time, a.pass) > std::tie(b.time, b.pass);  // earliest on top
  }
};
struct RankState {
  double free = 0;
  double memory = 0;
  double wake = never;
  std::priority_queue<Arrival> coming;  // F and I whose input is under way
  std::vector<int> ready;               // F and I; few, as memory bounds what is under way
  std::vector<int> due;                 // W, oldest first
  size_t weights_done = 0;
  int oldest = 0;  // the first turn that has not been forwarded in full here
};

class Scheduler {
 public:
  Scheduler(const ListPasses& passes, const ListWeights& weights) : p_(passes), w_(weights), ranks_(passes.ranks) {
    for (int r = 0; r < p_.ranks; ++r) unit_ = std::max(unit_, p_.work[r] / p_.microbatches);
    const int turns = *std::ranges::max_element(p_.turn) + 1;
    expected_.assign(size_t(p_.ranks) * turns, 0);
    turns_ = turns;
    for (int m = 0; m < p_.microbatches; ++m)
      for (int s = 0; s < p_.stages; ++s) expected_[size_t(p_.rank[p_.id(s, 0, m)]) * turns + p_.turn[m]] += 1;
    done_ = expected_;
    std::ranges::fill(done_, 0);
    set_heads();
    order_.resize(p_.ranks);
    for (int r = 0; r < p_.ranks; ++r) {
      order_[r].reserve(p_.count[r]);
      skip_complete(r);
    }
  }

  ListOrder run() {
    for (const int m : p_.first) arrive(p_.id(0, ListPasses::F, m), 0);
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      RankState& rank = ranks_[event.rank];
      if (rank.wake != event.time) continue;
      rank.wake = never;
      step(event.rank, event.time);
    }
    return std::move(order_);
  }

 private:
  struct Event {
    double time;
    int rank;
    friend bool operator<(const Event& a, const Event& b) {
      return std::tie(a.time, a.rank) > std::tie(b.time, b.rank);
    }
  };

  /// The length of the way up to a pass, by stage and pass; the same for all microbatches of a direction.
  void set_heads() {
    key_.resize(p_.rank.size());
    for (int m = 0; m < p_.microbatches; ++m) {
      double t = 0;
      const double base = p_.turn[m] * unit_;
      for (int s = 0; s < p_.stages; ++s) {
        const int pass = p_.id(s, ListPasses::F, m);
        t += p_.lag[pass];
        key_[pass] = base + w_.depth * t;
        t += p_.time[pass];
      }
      for (int s = p_.stages - 1; s >= 0; --s) {
        const int pass = p_.id(s, ListPasses::I, m);
        t += p_.lag[pass];
        key_[pass] = base + w_.depth * t - w_.input_lead * unit_;
        t += p_.time[pass];
      }
    }
  }

  void wake(int r, double time) {
    RankState& rank = ranks_[r];
    time = std::max(time, rank.free);
    if (rank.wake <= time) return;
    rank.wake = time;
    events_.push({time, r});
  }

  void arrive(int pass, double time) {
    const int r = p_.rank[pass];
    ranks_[r].coming.push({time, pass});
    wake(r, time);
  }

  void skip_complete(int r) {
    RankState& rank = ranks_[r];
    const size_t base = size_t(r) * turns_;
    while (rank.oldest < turns_ && done_[base + rank.oldest] == expected_[base + rank.oldest]) ++rank.oldest;
  }

  /// Room for it, and afterwards for what the oldest microbatch still has to bring.
  bool admitted(int r, int pass) const {
    const RankState& rank = ranks_[r];
    if (p_.turn[p_.microbatch(pass)] == rank.oldest) return rank.memory + 1 <= p_.limit + rounding;
    const int missing = p_.chunks[r] - done_[size_t(r) * turns_ + rank.oldest];
    return rank.memory + 1 + missing <= p_.limit + rounding;
  }

  void step(int r, double now) {
    RankState& rank = ranks_[r];
    while (!rank.coming.empty() && rank.coming.top().time <= now) {
      rank.ready.push_back(rank.coming.top().pass);
      rank.coming.pop();
    }
    auto best = rank.ready.end();
    bool waits_for_memory = false;
    for (auto it = rank.ready.begin(); it != rank.ready.end(); ++it) {
      if (best != rank.ready.end() && std::tie(key_[*best], *best) < std::tie(key_[*it], *it)) continue;
      if (ListPasses::kind(*it) == ListPasses::F && !admitted(r, *it))
        waits_for_memory = true;
      else
        best = it;
    }
    if (best != rank.ready.end()) {
      const int pass = *best;
      *best = rank.ready.back();
      rank.ready.pop_back();
      return start(r, pass, now);
    }
    const bool due = rank.weights_done < rank.due.size();
    const double next = rank.coming.empty() ? never : rank.coming.top().time;
    if (due) {
      const int pass = rank.due[rank.weights_done];
      if (waits_for_memory || now + p_.time[pass] <= next + w_.weight_fit * p_.time[pass]) {
        rank.weights_done += 1;
        return start(r, pass, now);
      }
    }
    if (next != never) wake(r, next);
  }

  void start(int r, int pass, double now) {
    RankState& rank = ranks_[r];
    order_[r].push_back(pass);
    rank.free = now + p_.time[pass];
    rank.memory += p_.memory[pass];
    const int kind = ListPasses::kind(pass);
    if (kind == ListPasses::F) {
      done_[size_t(r) * turns_ + p_.turn[p_.microbatch(pass)]] += 1;
      skip_complete(r);
      if (p_.stage(pass) == 0)
        if (const int next = p_.next[p_.microbatch(pass)]; next != ListPasses::none)
          arrive(p_.id(0, ListPasses::F, next), rank.free);
      if (p_.stage(pass) + 1 == p_.stages) arrive(pass + 1, rank.free);
    } else if (kind == ListPasses::I && p_.rank[pass + 1] != ListPasses::none) {
      rank.due.push_back(pass + 1);
    }
    if (const int after = p_.after[pass]; after != ListPasses::none) arrive(after, rank.free + p_.lag[after]);
    wake(r, rank.free);
  }

  const ListPasses& p_;
  const ListWeights w_;
  double unit_ = 0;
  int turns_ = 0;
  std::vector<int> expected_, done_;
  std::vector<double> key_;
  std::vector<RankState> ranks_;
  std::priority_queue<Event> events_;
  ListOrder order_;
};

}  // namespace

ListOrder list_pass(const ListPasses& passes, const ListWeights& weights) {
  return Scheduler(passes, weights).run();
}

}  // namespace piper::timelines
