#include "timelines/list_pass.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <tuple>

namespace piper::timelines {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();

struct Arrival {
  double time;
  int pass;
  friend bool operator<(const Arrival& a, const Arrival& b) {
    return std::tie(a.time, a.pass) > std::tie(b.time, b.pass);  // earliest on top
  }
};

struct RankState {
  double free = 0;  // when its last pass ends
  double memory = 0;
  double wake = never;                  // when to look at it again
  std::priority_queue<Arrival> coming;  // F and I whose input is in progress
  std::vector<int> ready;               // F and I; few, as memory bounds what is in progress
  std::vector<int> due;                 // W, oldest first
  size_t weights_done = 0;
  int oldest = 0;  // the first turn that has not been forwarded in full here
};

class Scheduler {
 public:
  Scheduler(const ListPasses& passes, const ListWeights& weights)
      : p_(passes), w_(weights), turns_(*std::ranges::max_element(passes.turn) + 1), ranks_(passes.ranks) {
    forwards_.resize(size_t(p_.ranks) * turns_);
    for (int m = 0; m < p_.microbatches; ++m)
      for (int s = 0; s < p_.stages; ++s) forwards(p_[p_.id(s, ListPasses::F, m)].rank, p_.turn[m]).all += 1;
    order_.resize(p_.ranks);
    for (int r = 0; r < p_.ranks; ++r) {
      unit_ = std::max(unit_, p_.work[r] / p_.microbatches);
      order_[r].reserve(p_.count[r]);
      find_oldest(r);
    }
    set_keys();
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

  /// Of a turn on a rank.
  struct Forwards {
    int all = 0;
    int done = 0;
  };
  Forwards& forwards(int r, int turn) { return forwards_[size_t(r) * turns_ + turn]; }

  /// What is urgent has a small key.
  void set_keys() {
    key_.resize(p_.size());
    for (int m = 0; m < p_.microbatches; ++m) {
      double t = 0;
      const double base = p_.turn[m] * unit_;
      for (int s = 0; s < p_.stages; ++s) {
        const int pass = p_.id(s, ListPasses::F, m);
        t += p_[pass].lag;
        key_[pass] = base + w_.depth * t;
        t += p_[pass].time;
      }
      for (int s = p_.stages - 1; s >= 0; --s) {
        const int pass = p_.id(s, ListPasses::I, m);
        t += p_[pass].lag;
        key_[pass] = base + w_.depth * t - w_.input_lead * unit_;
        t += p_[pass].time;
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
    const int r = p_[pass].rank;
    ranks_[r].coming.push({time, pass});
    wake(r, time);
  }

  void find_oldest(int r) {
    int& oldest = ranks_[r].oldest;
    while (oldest < turns_ && forwards(r, oldest).done == forwards(r, oldest).all) ++oldest;
  }

  /// Room for it, and afterwards for what the oldest microbatch still has to bring: a microbatch that is the oldest
  /// everywhere can always go on, so that the ranks never block each other.
  bool admitted(int r, int pass) {
    const RankState& rank = ranks_[r];
    if (p_.turn[p_.microbatch(pass)] == rank.oldest) return p_.has_room(rank.memory + 1);
    return p_.has_room(rank.memory + 1 + p_.chunks[r] - forwards(r, rank.oldest).done);
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
      if (waits_for_memory || now + p_[pass].time <= next + w_.weight_fit * p_[pass].time) {
        rank.weights_done += 1;
        return start(r, pass, now);
      }
    }
    if (next != never) wake(r, next);
  }

  void start(int r, int pass, double now) {
    RankState& rank = ranks_[r];
    order_[r].push_back(pass);
    rank.free = now + p_[pass].time;
    rank.memory += p_[pass].memory;
    const int kind = ListPasses::kind(pass);
    if (kind == ListPasses::F) {
      forwards(r, p_.turn[p_.microbatch(pass)]).done += 1;
      find_oldest(r);
      if (p_.stage(pass) == 0)
        if (const int next = p_.next[p_.microbatch(pass)]; next != ListPasses::none)
          arrive(p_.id(0, ListPasses::F, next), std::max(rank.free, (p_.turn[next] - w_.at_once) * unit_));
      if (p_.stage(pass) + 1 == p_.stages) arrive(pass + 1, rank.free);
    } else if (kind == ListPasses::I && p_[pass + 1].rank != ListPasses::none) {
      rank.due.push_back(pass + 1);
    }
    if (const int after = p_[pass].after; after != ListPasses::none) arrive(after, rank.free + p_[after].lag);
    wake(r, rank.free);
  }

  const ListPasses& p_;
  const ListWeights w_;
  double unit_ = 0;  // work per microbatch of the busiest rank
  const int turns_;
  std::vector<RankState> ranks_;
  std::vector<Forwards> forwards_;
  std::vector<double> key_;
  std::priority_queue<Event> events_;
  ListOrder order_;
};

}  // namespace

ListOrder list_pass(const ListPasses& passes, const ListWeights& weights) {
  return Scheduler(passes, weights).run();
}

}  // namespace piper::timelines
