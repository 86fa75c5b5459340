#include "comm/local/local_world.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <map>
#include <mutex>
#include <utility>

#include "comm/exact_sleep.h"
#include "comm/parts.h"
#include "comm/reductions.h"

namespace piper {
namespace {

using Clock = std::chrono::steady_clock;

/// Which exchange: the process group and the sequence number, or -1, the two ends of a transfer and the sequence
/// number.
using Key = std::array<int64_t, 4>;

/// What a member brings to an exchange.
struct Offer {
  const std::byte* out = nullptr;
  std::byte* in = nullptr;
  size_t bytes = 0;
};

/// One exchange in progress. Members come, work and leave; the last to leave takes it from the board.
struct Exchange {
  explicit Exchange(size_t members) : offers(members) {}
  std::vector<Offer> offers;
  size_t come = 0, working = 0, done = 0;
  bool abandoned = false;      // somebody has left before the end
  Clock::time_point complete;  // when the last one came
  std::condition_variable changed;
};

/// What all devices share.
class Board {
 public:
  Board(int devices, LocalOptions options) : devices_(devices), options_(std::move(options)) {}

  int devices() const { return devices_; }
  const LocalOptions& options() const { return options_; }

  /// `work` runs when all members have come, on every member at the same time.
  template <class Work>
  void exchange(const Key& key, size_t position, size_t members, const Offer& offer, Work work) {
    std::unique_lock lock(mutex_);
    const std::shared_ptr<Exchange> rendezvous = come(key, position, members, offer);
    wait(lock, *rendezvous, [&] { return rendezvous->come == members; });
    if (rendezvous->abandoned) {
      if (!reason_.empty()) give_up(lock, *rendezvous, JobStopped(reason_));
      give_up(lock, *rendezvous, CommunicationError("a peer did not come in time"));
    }
    ++rendezvous->working;
    lock.unlock();
    try {
      work(std::as_const(rendezvous->offers));
    } catch (...) {
      lock.lock();
      --rendezvous->working;
      rendezvous->changed.notify_all();
      throw;
    }
    lock.lock();
    --rendezvous->working;
    rendezvous->changed.notify_all();
    leave(lock, key, *rendezvous, members);
  }
  /// The same for a member that leaves all work to the others: it waits only once.
  void offer(const Key& key, size_t position, size_t members, const Offer& offer) {
    std::unique_lock lock(mutex_);
    leave(lock, key, *come(key, position, members, offer), members);
  }

  void abort(const std::string& reason) {
    const std::lock_guard lock(mutex_);
    if (reason_.empty()) reason_ = reason.empty() ? "stopped" : reason;
    for (auto& [key, rendezvous] : board_) rendezvous->changed.notify_all();
  }

 private:
  std::shared_ptr<Exchange> come(const Key& key, size_t position, size_t members, const Offer& offer) {
    std::shared_ptr<Exchange>& entry = board_[key];
    if (!entry) entry = std::make_shared<Exchange>(members);
    const std::shared_ptr<Exchange> rendezvous = entry;
    rendezvous->offers[position] = offer;
    if (++rendezvous->come == members) {
      rendezvous->complete = Clock::now();
      rendezvous->changed.notify_all();
    }
    return rendezvous;
  }

  void leave(std::unique_lock<std::mutex>& lock, const Key& key, Exchange& rendezvous, size_t members) {
    if (++rendezvous.done == members) {
      board_.erase(key);
      rendezvous.changed.notify_all();
    }
    wait(lock, rendezvous, [&] { return rendezvous.done == members; });
    lock.unlock();
    if (options_.seconds)
      sleep_exactly(rendezvous.complete + std::chrono::duration_cast<Clock::duration>(
                                              std::chrono::duration<double>(options_.seconds(key.back()))));
  }

  template <class Ready>
  void wait(std::unique_lock<std::mutex>& lock, Exchange& rendezvous, Ready ready) {
    const auto deadline = Clock::now() + options_.timeout;
    while (!ready()) {
      if (!reason_.empty()) give_up(lock, rendezvous, JobStopped(reason_));
      if (rendezvous.changed.wait_until(lock, deadline) == std::cv_status::timeout && !ready())
        give_up(lock, rendezvous, CommunicationError("a peer did not come in time"));
    }
  }

  /// Not before others have ended their work with the memory of the one who leaves; nobody begins any more.
  template <class Problem>
  [[noreturn]] static void give_up(std::unique_lock<std::mutex>& lock, Exchange& rendezvous, const Problem& problem) {
    rendezvous.abandoned = true;
    rendezvous.changed.wait(lock, [&] { return rendezvous.working == 0; });
    throw problem;
  }

  const int devices_;
  const LocalOptions options_;
  std::mutex mutex_;
  std::map<Key, std::shared_ptr<Exchange>> board_;
  std::string reason_;  // not empty: aborted
};

class LocalCommunicator : public Communicator {
 public:
  LocalCommunicator(std::shared_ptr<Board> board, int device) : board_(std::move(board)), device_(device) {}

  int device() const override { return device_; }

  int make_group(std::vector<int> members) override {
    groups_.push_back(std::move(members));
    return static_cast<int>(groups_.size()) - 1;
  }

  void send(int to, int64_t sequence, std::span<const std::byte> data) override {
    board_->offer({-1, device_, to, sequence}, 0, 2, {data.data(), nullptr, data.size()});
  }
  void receive(int from, int64_t sequence, std::span<std::byte> data) override {
    board_->exchange({-1, from, device_, sequence}, 1, 2, {nullptr, data.data(), data.size()},
                     [&](const std::vector<Offer>& offers) {
                       check_equal(offers);
                       std::copy_n(offers[0].out, data.size(), data.data());
                     });
  }

  /// Every member combines a share of the elements and hands the results to all.
  void all_reduce(int group, int64_t sequence, std::span<std::byte> data, DataType dtype, Combine how) override {
    const auto size = static_cast<size_t>(bytes_of(dtype));
    meet(group, sequence, {data.data(), data.data(), data.size()}, [&](const std::vector<Offer>& offers, size_t me) {
      const size_t elements = data.size() / size, members = offers.size();
      const size_t begin = elements * me / members * size, end = elements * (me + 1) / members * size;
      std::vector<const std::byte*> from;
      for (const Offer& offer : offers) from.push_back(offer.out + begin);
      combine(from, data.data() + begin, end - begin, dtype, how);
      for (const Offer& offer : offers)
        if (offer.in != data.data()) std::copy_n(data.data() + begin, end - begin, offer.in + begin);
    });
  }

  void reduce_scatter(int group, int64_t sequence, std::span<const std::byte> whole, int64_t run_whole,
                      std::span<std::byte> part, DataType dtype, Into into) override {
    const auto run = static_cast<size_t>(run_whole);
    meet(group, sequence, {whole.data(), part.data(), whole.size()}, [&](const std::vector<Offer>& offers, size_t me) {
      std::vector<const std::byte*> from(offers.size());
      std::vector<std::byte> total(into == Into::Add ? run : 0);
      for (size_t done = 0; done < part.size(); done += run) {
        for (size_t m = 0; m < offers.size(); ++m) from[m] = offers[m].out + done * offers.size() + me * run;
        sum(from, into == Into::Add ? total.data() : part.data() + done, run, dtype);
        if (into == Into::Add) add(total.data(), part.data() + done, run, dtype);
      }
    });
  }

  void all_gather(int group, int64_t sequence, std::span<const std::byte> part, std::span<std::byte> whole,
                  int64_t run) override {
    meet(group, sequence, {part.data(), whole.data(), whole.size()}, [&](const std::vector<Offer>& offers, size_t) {
      const size_t n = offers.size();
      for (size_t m = 0; m < n; ++m)
        if (whole.data() + m * part.size() != offers[m].out)
          copy_part(offers[m].out, 0, part.size(), whole.data(), m, static_cast<size_t>(run), n, part.size());
    });
  }

  void all_to_all(int group, int64_t sequence, std::span<const std::byte> out, int64_t run_out, std::span<std::byte> in,
                  int64_t run_in) override {
    meet(group, sequence, {out.data(), in.data(), in.size()}, [&](const std::vector<Offer>& offers, size_t me) {
      const size_t n = offers.size();
      for (size_t m = 0; m < n; ++m)
        copy_part(offers[m].out, me, static_cast<size_t>(run_out), in.data(), m, static_cast<size_t>(run_in), n,
                  in.size() / n);
    });
  }

  void shift(int group, int64_t sequence, int by, std::span<const std::byte> out, std::span<std::byte> in) override {
    meet(group, sequence, {out.data(), in.data(), in.size()}, [&](const std::vector<Offer>& offers, size_t me) {
      std::copy_n(offers[places_before(me, by, offers.size())].out, in.size(), in.data());
    });
  }

  void exchange(int group, int64_t sequence, int turn, std::span<const std::span<const std::byte>> out,
                std::span<const std::span<std::byte>> in) override {
    using Pieces = std::span<const std::byte>;
    // the pieces of a member are found through what it brings, which stays until all have left
    meet(group, sequence, turn, {reinterpret_cast<const std::byte*>(out.data()), nullptr, 0},
         [&](const std::vector<Offer>& offers, size_t me) {
           for (size_t m = 0; m < offers.size(); ++m) {
             const Pieces& piece = reinterpret_cast<const Pieces*>(offers[m].out)[me];
             check_equal(piece.size(), in[m].size());
             std::copy_n(piece.data(), piece.size(), in[m].data());
           }
         });
  }

  void abort(const std::string& reason) override { board_->abort(reason); }

 private:
  template <class Work>
  void meet(int group, int64_t sequence, const Offer& offer, Work work) {
    meet(group, sequence, 0, offer, work);
  }
  template <class Work>
  void meet(int group, int64_t sequence, int turn, const Offer& offer, Work work) {
    const std::vector<int>& members = groups_[static_cast<size_t>(group)];
    const auto me = static_cast<size_t>(std::find(members.begin(), members.end(), device_) - members.begin());
    if (me == members.size()) throw CommunicationError("a device communicates in a group of others");
    board_->exchange({group, turn, 0, sequence}, me, members.size(), offer, [&](const std::vector<Offer>& offers) {
      check_equal(offers);
      work(offers, me);
    });
  }
  static void check_equal(const std::vector<Offer>& offers) {
    for (const Offer& offer : offers) check_equal(offer.bytes, offers[0].bytes);
  }
  static void check_equal(size_t one, size_t other) {
    if (one != other) throw CommunicationError("the members of an exchange bring different sizes");
  }

  std::shared_ptr<Board> board_;
  int device_;
  std::vector<std::vector<int>> groups_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_local_world(int devices, LocalOptions options) {
  const auto board = std::make_shared<Board>(devices, std::move(options));
  std::vector<std::unique_ptr<Communicator>> world;
  for (int d = 0; d < devices; ++d) world.push_back(std::make_unique<LocalCommunicator>(board, d));
  return world;
}

}  // namespace piper
