#include "comm/gpu/gpu_world.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <map>
#include <mutex>

#include "comm/gpu/check.h"
#include "comm/gpu/kernels.h"
#include "comm/gpu/queue.h"
#include "comm/parts.h"

namespace piper {
namespace {

using Clock = std::chrono::steady_clock;

/// Which exchange: the process group and the sequence number, or -1, the two ends of a transfer and the sequence
/// number.
using Key = std::array<int64_t, 4>;

/// What a member brings to an exchange, and when its own work before it, and in it, has ended.
struct Offer {
  const std::byte* out = nullptr;
  std::byte* in = nullptr;
  size_t bytes = 0;
  std::unique_ptr<GpuEvent> ready, done;
};

/// One exchange in progress.
struct Rendezvous {
  explicit Rendezvous(size_t members) : offers(members) {}
  std::vector<Offer> offers;
  size_t come = 0, worked = 0;
  std::condition_variable changed;
};

/// What all devices share. Who gives up leaves at once: memory of the GPU stays where it is for whoever reads it.
class Board {
 public:
  explicit Board(std::chrono::milliseconds timeout) : timeout_(timeout) {}

  /// `work` puts the member's share on its queue, behind what all members did before.
  template <class Work>
  void exchange(const Key& key, size_t position, size_t members, Offer offer, Work work) {
    const cudaStream_t stream = current_queue().stream;
    const std::shared_ptr<Rendezvous> rendezvous = come(key, position, members, std::move(offer));
    Offer& mine = rendezvous->offers[position];
    wait(*rendezvous, [&] { return rendezvous->come == members; });
    for (const Offer& other : rendezvous->offers)
      if (&other != &mine) other.ready->hold(stream);
    work(rendezvous->offers, stream);
    mine.done->record(stream);
    {
      const std::lock_guard lock(mutex_);
      if (++rendezvous->worked == members) board_.erase(key);
      rendezvous->changed.notify_all();
    }
    wait(*rendezvous, [&] { return rendezvous->worked == members; });
    for (const Offer& other : rendezvous->offers)
      if (&other != &mine) other.done->hold(stream);
  }

  void send(const Key& key, Offer offer) {
    const std::shared_ptr<Rendezvous> rendezvous = come(key, 0, 2, std::move(offer));
    current_queue().readers.push_back([this, rendezvous](cudaStream_t stream) {
      wait(*rendezvous, [&] { return rendezvous->worked == 1; });
      rendezvous->offers[1].done->hold(stream);
    });
  }
  template <class Work>
  void receive(const Key& key, Offer offer, Work work) {
    const cudaStream_t stream = current_queue().stream;
    const std::shared_ptr<Rendezvous> rendezvous = come(key, 1, 2, std::move(offer));
    wait(*rendezvous, [&] { return rendezvous->come == 2; });
    rendezvous->offers[0].ready->hold(stream);
    work(rendezvous->offers, stream);
    rendezvous->offers[1].done->record(stream);
    const std::lock_guard lock(mutex_);
    rendezvous->worked = 1;
    board_.erase(key);
    rendezvous->changed.notify_all();
  }

  void abort(const std::string& reason) {
    const std::lock_guard lock(mutex_);
    if (reason_.empty()) reason_ = reason.empty() ? "stopped" : reason;
    for (auto& [key, rendezvous] : board_) rendezvous->changed.notify_all();
  }

 private:
  std::shared_ptr<Rendezvous> come(const Key& key, size_t position, size_t members, Offer offer) {
    offer.ready = std::make_unique<GpuEvent>();
    offer.done = std::make_unique<GpuEvent>();
    offer.ready->record(current_queue().stream);
    const std::lock_guard lock(mutex_);
    std::shared_ptr<Rendezvous>& entry = board_[key];
    if (!entry) entry = std::make_shared<Rendezvous>(members);
    entry->offers[position] = std::move(offer);
    ++entry->come;
    entry->changed.notify_all();
    return entry;
  }

  template <class Ready>
  void wait(Rendezvous& rendezvous, Ready ready) {
    std::unique_lock lock(mutex_);
    const auto deadline = Clock::now() + timeout_;
    while (!ready()) {
      if (!reason_.empty()) throw JobStopped(reason_);
      if (rendezvous.changed.wait_until(lock, deadline) == std::cv_status::timeout && !ready())
        throw CommunicationError("a peer did not come in time");
    }
  }

  const std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  std::map<Key, std::shared_ptr<Rendezvous>> board_;
  std::string reason_;  // not empty: aborted
};

void check_equal(const std::vector<Offer>& offers) {
  for (const Offer& offer : offers)
    if (offer.bytes != offers[0].bytes) throw CommunicationError("the members of an exchange bring different sizes");
}

void copy(std::byte* to, const std::byte* from, size_t bytes, cudaStream_t stream) {
  if (bytes == 0 || to == from) return;
  check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream), "copy between devices");
}

/// What member `m` has becomes a part that lies in runs, one for each member in turn.
void copy_runs(std::byte* to, const std::vector<Offer>& offers, size_t m, size_t bytes, size_t run,
               cudaStream_t stream) {
  if (bytes == 0 || to == offers[m].out) return;
  check_cuda(cudaMemcpy2DAsync(to, offers.size() * run, offers[m].out, run, run, bytes / run, cudaMemcpyDeviceToDevice,
                               stream),
             "copy between devices");
}

class GpuCommunicator : public Communicator {
 public:
  GpuCommunicator(std::shared_ptr<Board> board, int device) : board_(std::move(board)), device_(device) {}

  int device() const override { return device_; }

  int make_group(std::vector<int> members) override {
    groups_.push_back(std::move(members));
    return static_cast<int>(groups_.size()) - 1;
  }

  void send(int to, int64_t sequence, std::span<const std::byte> data) override {
    board_->send({-1, device_, to, sequence}, offer(data.data(), nullptr, data.size()));
  }
  void receive(int from, int64_t sequence, std::span<std::byte> data) override {
    board_->receive({-1, from, device_, sequence}, offer(nullptr, data.data(), data.size()),
                    [&](const std::vector<Offer>& offers, cudaStream_t stream) {
                      check_equal(offers);
                      copy(data.data(), offers[0].out, data.size(), stream);
                    });
  }

  /// Every member combines a share of the elements and hands the results to all.
  void all_reduce(int group, int64_t sequence, std::span<std::byte> data, DataType dtype, Combine how) override {
    const auto size = static_cast<size_t>(bytes_of(dtype));
    meet(group, sequence, offer(data.data(), data.data(), data.size()),
         [&](const std::vector<Offer>& offers, size_t me, cudaStream_t stream) {
           const size_t elements = data.size() / size, members = offers.size();
           const size_t begin = elements * me / members * size, end = elements * (me + 1) / members * size;
           std::vector<std::byte*> to;
           for (const Offer& offer : offers) to.push_back(offer.in + begin);
           gpu::combine(from(offers, begin), to, end - begin, dtype, how, stream);
         });
  }

  void reduce_scatter(int group, int64_t sequence, std::span<const std::byte> whole, int64_t run_whole,
                      std::span<std::byte> part, DataType dtype, Into into) override {
    const auto run = static_cast<size_t>(run_whole);
    meet(group, sequence, offer(whole.data(), part.data(), whole.size()),
         [&](const std::vector<Offer>& offers, size_t me, cudaStream_t stream) {
           for (size_t done = 0; done < part.size(); done += run) {
             const auto members = from(offers, done * offers.size() + me * run);
             std::byte* const to[] = {part.data() + done};
             if (into == Into::Replace)
               gpu::combine(members, to, run, dtype, Combine::Sum, stream);
             else
               gpu::add_sum(members, to[0], run, dtype, stream);
           }
         });
  }

  void all_gather(int group, int64_t sequence, std::span<const std::byte> part, std::span<std::byte> whole,
                  int64_t run_whole) override {
    const auto run = static_cast<size_t>(run_whole);
    meet(group, sequence, offer(part.data(), whole.data(), whole.size()),
         [&](const std::vector<Offer>& offers, size_t, cudaStream_t stream) {
           for (size_t m = 0; m < offers.size(); ++m)
             copy_runs(whole.data() + m * run, offers, m, part.size(), run, stream);
         });
  }

  void all_to_all(int group, int64_t sequence, std::span<const std::byte> out, int64_t run_out, std::span<std::byte> in,
                  int64_t run_in) override {
    meet(group, sequence, offer(out.data(), in.data(), in.size()),
         [&](const std::vector<Offer>& offers, size_t me, cudaStream_t stream) {
           gpu::copy_parts(from(offers, 0), me, static_cast<size_t>(run_out), in.data(), static_cast<size_t>(run_in),
                           in.size() / offers.size(), stream);
         });
  }

  void shift(int group, int64_t sequence, int by, std::span<const std::byte> out, std::span<std::byte> in) override {
    meet(group, sequence, offer(out.data(), in.data(), in.size()),
         [&](const std::vector<Offer>& offers, size_t me, cudaStream_t stream) {
           copy(in.data(), offers[places_before(me, by, offers.size())].out, in.size(), stream);
         });
  }

  void exchange(int group, int64_t sequence, int turn, std::span<const std::span<const std::byte>> out,
                std::span<const std::span<std::byte>> in) override {
    using Pieces = std::span<const std::byte>;
    meet(group, sequence, turn, offer(reinterpret_cast<const std::byte*>(out.data()), nullptr, 0),
         [&](const std::vector<Offer>& offers, size_t me, cudaStream_t stream) {
           for (size_t m = 0; m < offers.size(); ++m) {
             const Pieces& piece = reinterpret_cast<const Pieces*>(offers[m].out)[me];
             if (piece.size() != in[m].size())
               throw CommunicationError("the members of an exchange bring different sizes");
             copy(in[m].data(), piece.data(), piece.size(), stream);
           }
         });
  }

  void abort(const std::string& reason) override { board_->abort(reason); }

 private:
  static Offer offer(const std::byte* out, std::byte* in, size_t bytes) { return {out, in, bytes, nullptr, nullptr}; }
  static std::vector<const std::byte*> from(const std::vector<Offer>& offers, size_t begin) {
    std::vector<const std::byte*> out;
    for (const Offer& offer : offers) out.push_back(offer.out + begin);
    return out;
  }

  template <class Work>
  void meet(int group, int64_t sequence, Offer offer, Work work) {
    meet(group, sequence, 0, std::move(offer), work);
  }
  template <class Work>
  void meet(int group, int64_t sequence, int turn, Offer offer, Work work) {
    const std::vector<int>& members = groups_[static_cast<size_t>(group)];
    const auto me = static_cast<size_t>(std::find(members.begin(), members.end(), device_) - members.begin());
    if (me == members.size()) throw CommunicationError("a device communicates in a group of others");
    board_->exchange({group, turn, 0, sequence}, me, members.size(), std::move(offer),
                     [&](const std::vector<Offer>& offers, cudaStream_t stream) {
                       check_equal(offers);
                       work(offers, me, stream);
                     });
  }

  std::shared_ptr<Board> board_;
  int device_;
  std::vector<std::vector<int>> groups_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_gpu_world(int devices, std::chrono::milliseconds timeout) {
  if (devices > static_cast<int>(gpu::most_members))
    throw CommunicationError("more than 64 devices cannot share one GPU");
  const auto board = std::make_shared<Board>(timeout);
  std::vector<std::unique_ptr<Communicator>> world;
  for (int d = 0; d < devices; ++d) world.push_back(std::make_unique<GpuCommunicator>(board, d));
  return world;
}

}  // namespace piper
