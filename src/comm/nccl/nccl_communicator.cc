#include "comm/nccl/nccl_communicator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "comm/parts.h"

namespace piper {
namespace {

using Clock = std::chrono::steady_clock;
using Standing = NcclStatus::Kind;

constexpr auto between_looks = std::chrono::microseconds(50);
constexpr auto time_to_leave = std::chrono::seconds(10);  // how long leaving waits for the others

/// A communicator of NCCL. Calls, looks and the end come from several threads: one at a time.
class Comm {
 public:
  /// `over`: the job has been stopped, or something has failed; of all communicators of a device.
  Comm(NcclCalls& calls, std::atomic<bool>& over, std::vector<int> members)
      : calls_(calls), over_(over), members_(std::move(members)) {}
  ~Comm() {
    const std::lock_guard lock(mutex_);
    if (!comm_) return;
    if (over_ || !leave())
      calls_.abort(comm_);  // to destroy what has failed may never return
    else
      calls_.destroy(comm_);
  }

  const std::vector<int>& members() const { return members_; }

  /// `begin(comm)` makes one call, or a group of them; waits while it is in progress, unless the job ends.
  template <class Begin>
  void call(const char* doing, Clock::time_point deadline, const Begin& begin) {
    NcclStatus status = locked([&] { return begin(comm_); });
    while (status.kind == Standing::InProgress) {
      if (over_) throw JobStopped("the job has been stopped");
      if (Clock::now() > deadline) {
        over_ = true;
        throw CommunicationError(
            fmt::format("cannot {}: not all of devices [{}] have come in time", doing, fmt::join(members_, ", ")));
      }
      std::this_thread::sleep_for(between_looks);
      status = locked([&] { return calls_.status(comm_); });
    }
    if (status.kind == Standing::Done) return;
    over_ = true;
    throw CommunicationError(
        fmt::format("cannot {} among devices [{}]: {}", doing, fmt::join(members_, ", "), status.problem));
  }

  /// What went wrong since the last call.
  std::string problem() {
    const std::lock_guard lock(mutex_);
    if (!comm_) return "";
    const NcclStatus status = calls_.status(comm_);
    if (status.kind != Standing::Failed) return "";
    return fmt::format("NCCL reports of devices [{}]: {}", fmt::join(members_, ", "), status.problem);
  }

  void abort() {
    const std::lock_guard lock(mutex_);
    if (comm_) calls_.abort(std::exchange(comm_, nullptr));
  }

 private:
  template <class Call>
  NcclStatus locked(const Call& call) {
    const std::lock_guard lock(mutex_);
    if (aborted()) throw JobStopped("the job has been stopped");
    NcclStatus status = call();
    made_ = true;
    return status;
  }
  bool aborted() const { return made_ && !comm_; }
  bool leave() {
    NcclStatus status = calls_.finalize(comm_);
    for (const auto until = Clock::now() + time_to_leave;
         status.kind == Standing::InProgress && Clock::now() < until;) {
      std::this_thread::sleep_for(between_looks);
      status = calls_.status(comm_);
    }
    return status.kind == Standing::Done;
  }

  NcclCalls& calls_;
  std::atomic<bool>& over_;
  const std::vector<int> members_;
  std::mutex mutex_;
  NcclCalls::Comm comm_ = nullptr;
  bool made_ = false;
};

class NcclCommunicator : public Communicator {
 public:
  explicit NcclCommunicator(NcclParts parts) : parts_(std::move(parts)), device_(parts_.host->device()) {}

  int device() const override { return device_; }

  int make_group(std::vector<int> members) override {
    groups_.push_back(make_comm(std::move(members)));
    return static_cast<int>(groups_.size()) - 1;
  }

  void connect(int from, int to) override {
    if (from == to || !connected_.emplace(from, to).second) return;
    if (auto comm = make_comm({from, to})) links_[{from, to}] = std::move(comm);
  }

  void send(int to, int64_t sequence, std::span<const std::byte> data) override {
    if (to == device_) return parts_.here->send(parts_.here->device(), sequence, data);
    call(*links_.at({device_, to}), "send", [&](NcclCalls::Comm comm) {
      return parts_.calls->send(data.data(), data.size(), 1, comm, parts_.device->stream());
    });
  }
  void receive(int from, int64_t sequence, std::span<std::byte> data) override {
    if (from == device_) return parts_.here->receive(parts_.here->device(), sequence, data);
    call(*links_.at({from, device_}), "receive", [&](NcclCalls::Comm comm) {
      return parts_.calls->receive(data.data(), data.size(), 0, comm, parts_.device->stream());
    });
  }

  void all_reduce(int group, int64_t, std::span<std::byte> data, DataType dtype, Combine how) override {
    call(comm_of(group), how == Combine::Sum ? "add up" : "find the greatest", [&](NcclCalls::Comm comm) {
      return parts_.calls->all_reduce(data.data(), data.data(), data.size() / size_of(dtype), dtype, how, comm,
                                      parts_.device->stream());
    });
  }

  // NCCL sends what lies together: parts that lie interleaved are put side by side before, and back afterwards.

  void reduce_scatter(int group, int64_t, std::span<const std::byte> whole, int64_t run, std::span<std::byte> part,
                      DataType dtype, Into into) override {
    if (part.empty()) return;
    const bool packs = static_cast<size_t>(run) != part.size(), adds = into == Into::Add;
    std::byte* const memory =
        packs || adds ? parts_.device->scratch((packs ? whole.size() : 0) + (adds ? part.size() : 0)) : nullptr;
    std::byte* const sum = adds ? memory + (packs ? whole.size() : 0) : part.data();
    if (packs) side_by_side(whole, static_cast<size_t>(run), part.size(), memory);
    call(comm_of(group), "add up parts", [&](NcclCalls::Comm comm) {
      return parts_.calls->reduce_scatter(packs ? memory : whole.data(), sum, part.size() / size_of(dtype), dtype, comm,
                                          parts_.device->stream());
    });
    if (adds) parts_.device->add(sum, part.data(), part.size(), dtype);
  }

  void all_gather(int group, int64_t, std::span<const std::byte> part, std::span<std::byte> whole,
                  int64_t run) override {
    if (part.empty()) return;
    const bool unpacks = static_cast<size_t>(run) != part.size();
    std::byte* const received = unpacks ? parts_.device->scratch(whole.size()) : whole.data();
    call(comm_of(group), "gather", [&](NcclCalls::Comm comm) {
      return parts_.calls->all_gather(part.data(), received, part.size(), comm, parts_.device->stream());
    });
    if (unpacks) interleaved(received, part.size(), whole, static_cast<size_t>(run));
  }

  void all_to_all(int group, int64_t, std::span<const std::byte> out, int64_t run_out, std::span<std::byte> in,
                  int64_t run_in) override {
    Comm& among = comm_of(group);
    const size_t n = among.members().size(), part = in.size() / n;
    const auto run_from = static_cast<size_t>(run_out), run_to = static_cast<size_t>(run_in);
    if (part == 0) return;
    const bool packs = run_from != part, unpacks = run_to != part;
    std::byte* const memory =
        packs || unpacks ? parts_.device->scratch((packs ? out.size() : 0) + (unpacks ? in.size() : 0)) : nullptr;
    const std::byte* const sent = packs ? memory : out.data();
    std::byte* const received = !unpacks ? in.data() : memory + (packs ? out.size() : 0);
    if (packs) side_by_side(out, run_from, part, memory);
    call(among, "exchange parts", [&](NcclCalls::Comm comm) {
      return grouped([&](const auto& each) {
        for (size_t m = 0; m < n; ++m) {
          const int peer = static_cast<int>(m);
          each(parts_.calls->send(sent + m * part, part, peer, comm, parts_.device->stream()));
          each(parts_.calls->receive(received + m * part, part, peer, comm, parts_.device->stream()));
        }
      });
    });
    if (unpacks) interleaved(received, part, in, run_to);
  }

  void shift(int group, int64_t, int by, std::span<const std::byte> out, std::span<std::byte> in) override {
    if (in.empty()) return;
    Comm& among = comm_of(group);
    const size_t n = among.members().size();
    const auto me = static_cast<size_t>(std::ranges::find(among.members(), device_) - among.members().begin());
    const int to = static_cast<int>((me + static_cast<size_t>(by)) % n),
              from = static_cast<int>(places_before(me, by, n));
    call(among, "pass on", [&](NcclCalls::Comm comm) {
      return grouped([&](const auto& each) {
        each(parts_.calls->send(out.data(), out.size(), to, comm, parts_.device->stream()));
        each(parts_.calls->receive(in.data(), in.size(), from, comm, parts_.device->stream()));
      });
    });
  }

  void exchange(int group, int64_t, int, std::span<const std::span<const std::byte>> out,
                std::span<const std::span<std::byte>> in) override {
    Comm& among = comm_of(group);
    call(among, "exchange pieces", [&](NcclCalls::Comm comm) {
      return grouped([&](const auto& each) {
        for (size_t m = 0; m < among.members().size(); ++m) {
          const int peer = static_cast<int>(m);
          if (!out[m].empty())
            each(parts_.calls->send(out[m].data(), out[m].size(), peer, comm, parts_.device->stream()));
          if (!in[m].empty())
            each(parts_.calls->receive(in[m].data(), in[m].size(), peer, comm, parts_.device->stream()));
        }
      });
    });
  }

  void abort(const std::string& reason) override {
    over_ = true;
    parts_.host->abort(reason);
    parts_.here->abort(reason);
    each_comm([](Comm& comm) { comm.abort(); });
  }

  std::optional<Trouble> trouble() override {
    if (auto of_host = parts_.host->trouble()) return of_host;
    std::string problem;
    each_comm([&](Comm& comm) {
      if (problem.empty()) problem = comm.problem();
    });
    if (problem.empty()) return {};
    return Trouble{problem, false};
  }

 private:
  static size_t size_of(DataType dtype) { return static_cast<size_t>(bytes_of(dtype)); }

  void side_by_side(std::span<const std::byte> whole, size_t run, size_t part, std::byte* to) {
    const size_t n = whole.size() / part;
    for (size_t m = 0; m < n; ++m)
      parts_.device->copy_rows(whole.data() + m * run, n * run, to + m * part, run, run, part / run);
  }
  void interleaved(const std::byte* from, size_t part, std::span<std::byte> whole, size_t run) {
    const size_t n = whole.size() / part;
    for (size_t m = 0; m < n; ++m)
      parts_.device->copy_rows(from + m * part, run, whole.data() + m * run, n * run, run, part / run);
  }

  /// None where this device is no member. The first member makes what they find each other by.
  std::unique_ptr<Comm> make_comm(std::vector<int> members) {
    const int64_t sequence = made_++;
    const auto me = std::find(members.begin(), members.end(), device_) - members.begin();
    if (me == static_cast<std::ptrdiff_t>(members.size())) return nullptr;
    NcclCalls::Id id{};
    if (me == 0) {
      if (const NcclStatus made = parts_.calls->make_id(id); made.kind != Standing::Done)
        throw CommunicationError("cannot begin with NCCL: " + made.problem);
      for (size_t m = 1; m < members.size(); ++m) parts_.host->send(members[m], sequence, id);
    } else {
      parts_.host->receive(members[0], sequence, id);
    }
    const auto size = static_cast<int>(members.size());
    auto comm = std::make_unique<Comm>(*parts_.calls, over_, std::move(members));
    comm->call("make a communicator of NCCL", Clock::now() + parts_.timeout,
               [&](NcclCalls::Comm& made) { return parts_.calls->init(made, size, id, static_cast<int>(me)); });
    return comm;
  }

  Comm& comm_of(int group) {
    const std::unique_ptr<Comm>& comm = groups_[static_cast<size_t>(group)];
    if (!comm) throw CommunicationError("a device communicates in a group of others");
    return *comm;
  }

  template <class Begin>
  void call(Comm& comm, const char* doing, const Begin& begin) {
    comm.call(doing, Clock::time_point::max(), begin);  // the watchdog of the job ends what lasts too long
  }

  /// `make(each)` hands the status of every call to `each`.
  template <class Make>
  NcclStatus grouped(const Make& make) {
    NcclStatus first;
    const auto each = [&](NcclStatus status) {
      if (first.kind != Standing::Failed && status.kind == Standing::Failed) first = std::move(status);
    };
    each(parts_.calls->group_start());
    make(each);
    NcclStatus end = parts_.calls->group_end();
    return first.kind == Standing::Failed ? first : end;
  }

  template <class Do>
  void each_comm(const Do& work) {
    for (const auto& comm : groups_)
      if (comm) work(*comm);
    for (const auto& [ends, comm] : links_) work(*comm);
  }

  NcclParts parts_;
  const int device_;
  int64_t made_ = 0;
  std::atomic<bool> over_ = false;
  std::vector<std::unique_ptr<Comm>> groups_;  // none: of others
  std::set<std::pair<int, int>> connected_;
  std::map<std::pair<int, int>, std::unique_ptr<Comm>> links_;  // by sender and receiver
};

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(NcclParts parts) {
  return std::make_unique<NcclCommunicator>(std::move(parts));
}

}  // namespace piper
