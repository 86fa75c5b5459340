#include "comm_nccl/stand_in.h"

#include <fmt/format.h>

#include <cstring>
#include <future>
#include <numeric>
#include <set>
#include <thread>

#include "comm/local/local_world.h"
#include "comm/reductions.h"

namespace piper {
namespace {

using Kind = NcclRecord::Kind;
using std::chrono::milliseconds;

bool is_collective(const NcclRecord& call) {
  return call.kind == Kind::AllReduce || call.kind == Kind::ReduceScatter || call.kind == Kind::AllGather;
}

class HostDevice : public NcclDevice {
 public:
  /// Every stream has a thread.
  NcclCalls::Stream stream() override {
    static thread_local int here;
    return &here;
  }
  std::byte* scratch(size_t bytes) override {
    const std::lock_guard lock(mutex_);
    auto& memory = scratch_[stream()];
    memory.assign(bytes, std::byte{0xff});
    return memory.data();
  }
  void add(const std::byte* from, std::byte* to, size_t bytes, DataType dtype) override {
    piper::add(from, to, bytes, dtype);
  }
  void copy_rows(const std::byte* from, size_t from_pitch, std::byte* to, size_t to_pitch, size_t width,
                 size_t rows) override {
    for (size_t row = 0; row < rows; ++row) std::memcpy(to + row * to_pitch, from + row * from_pitch, width);
  }

 private:
  std::mutex mutex_;
  std::map<NcclCalls::Stream, std::vector<std::byte>> scratch_;
};

/// What two devices must have in common.
std::vector<NcclRecord> collectives_on(const std::vector<NcclRecord>& calls, int comm) {
  std::vector<NcclRecord> out;
  for (NcclRecord call : calls)
    if (call.comm == comm && is_collective(call)) {
      call.rank = -1;
      call.stream = nullptr;
      out.push_back(call);
    }
  return out;
}

/// Sizes and groups of what goes from one rank to another, as the sender or the receiver called it.
std::vector<std::pair<size_t, int>> transfers(const std::vector<NcclRecord>& calls, int comm, Kind kind, int peer) {
  std::vector<std::pair<size_t, int>> out;
  for (const NcclRecord& call : calls)
    if (call.comm == comm && call.kind == kind && call.peer == peer) out.push_back({call.count, call.group});
  return out;
}

}  // namespace

std::string describe(const NcclRecord& r) {
  constexpr const char* names[] = {"init", "all_reduce", "reduce_scatter", "all_gather", "send", "receive"};
  return fmt::format("{} of {} on communicator {}{}", names[static_cast<int>(r.kind)], r.count, r.comm,
                     r.peer < 0 ? "" : fmt::format(", peer {}", r.peer));
}

std::vector<std::string> mistakes(const NcclRecords& records) {
  std::vector<std::string> out;
  std::map<int, std::map<int, size_t>> members;  // by communicator and rank: the device
  std::vector<std::vector<int>> made(records.size());
  for (size_t device = 0; device < records.size(); ++device) {
    std::map<int, NcclCalls::Stream> stream;
    for (const NcclRecord& call : records[device]) {
      if (call.kind == Kind::Init) {
        members[call.comm][call.rank] = device;
        made[device].push_back(call.comm);
      } else if (!stream.emplace(call.comm, call.stream).second && stream[call.comm] != call.stream) {
        out.push_back(fmt::format("device {} uses communicator {} on two streams", device, call.comm));
        break;
      }
    }
  }
  for (size_t a = 0; a < records.size(); ++a)
    for (size_t b = 0; b < a; ++b) {
      const auto common = [&](size_t of, size_t with) {
        std::vector<int> both;
        for (const int comm : made[of])
          if (std::count(made[with].begin(), made[with].end(), comm) > 0) both.push_back(comm);
        return both;
      };
      if (common(a, b) != common(b, a))
        out.push_back(fmt::format("devices {} and {} make communicators in different orders", b, a));
    }
  for (const auto& [comm, ranks] : members) {
    const size_t first = ranks.begin()->second;
    for (const auto& [rank, device] : ranks) {
      const auto expected = collectives_on(records[first], comm), seen = collectives_on(records[device], comm);
      for (size_t i = 0; i < std::max(expected.size(), seen.size()); ++i) {
        if (i < expected.size() && i < seen.size() && expected[i] == seen[i]) continue;
        out.push_back(fmt::format("call {}: device {} makes {}, device {} {}", i, first,
                                  i < expected.size() ? describe(expected[i]) : "nothing", device,
                                  i < seen.size() ? describe(seen[i]) : "nothing"));
        break;
      }
      for (const auto& [peer, other] : ranks)
        if (transfers(records[device], comm, Kind::Send, peer) != transfers(records[other], comm, Kind::Receive, rank))
          out.push_back(
              fmt::format("communicator {}: what device {} sends is not what device {} receives", comm, device, other));
    }
  }
  return out;
}

/// A communicator: a world of threads for its members.
struct NcclStandIn::Shared {
  std::vector<std::unique_ptr<Communicator>> world;
  std::atomic<int> come = 0, left = 0;
};

class NcclStandIn::Calls : public NcclCalls {
 public:
  Calls(NcclStandIn& of, int device) : of_(of), device_(device) {}

  NcclStatus make_id(Id& id) override {
    const std::lock_guard lock(of_.mutex_);
    const int made = of_.ids_++;
    std::memcpy(id.data(), &made, sizeof made);
    return {};
  }
  NcclStatus init(Comm& comm, int ranks, const Id& id, int rank) override {
    auto* mine = new Mine;
    comm = mine;
    std::memcpy(&mine->sequence, id.data(), sizeof mine->sequence);
    mine->rank = rank;
    NcclRecord call{Kind::Init, mine->sequence, rank, static_cast<size_t>(ranks)};
    {
      const std::lock_guard lock(of_.mutex_);
      auto& shared = of_.comms_[mine->sequence];
      if (!shared) {
        shared = std::make_shared<Shared>();
        LocalOptions options;
        options.timeout = of_.timeout_;
        shared->world = make_local_world(ranks, options);
        std::vector<int> all(static_cast<size_t>(ranks));
        std::iota(all.begin(), all.end(), 0);
        for (const auto& member : shared->world) member->make_group(all);
      }
      mine->shared = shared;
    }
    if (!note(call)) return {NcclStatus::Kind::InProgress};
    ++mine->shared->come;
    return status(comm);
  }
  NcclStatus status(Comm comm) override {
    Mine& mine = of(comm);
    if (mine.shared->come < static_cast<int>(mine.shared->world.size())) return {NcclStatus::Kind::InProgress};
    if (mine.leaving && mine.shared->left < static_cast<int>(mine.shared->world.size()))
      return {NcclStatus::Kind::InProgress};
    if (mine.in_progress.valid()) {
      if (mine.in_progress.wait_for(milliseconds(0)) != std::future_status::ready)
        return {NcclStatus::Kind::InProgress};
      mine.problem = mine.in_progress.get();
    }
    if (mine.problem.empty()) return {};
    return {NcclStatus::Kind::Failed, mine.problem};
  }
  void abort(Comm comm) override {
    ++of_.aborted_;
    std::unique_ptr<Mine> mine(&of(comm));
    mine->shared->world[static_cast<size_t>(mine->rank)]->abort("aborted");
    if (mine->in_progress.valid()) mine->in_progress.wait();
  }
  NcclStatus finalize(Comm comm) override {
    of(comm).leaving = true;
    ++of(comm).shared->left;
    return status(comm);
  }
  void destroy(Comm comm) override {
    ++of_.destroyed_;
    delete &of(comm);
  }

  NcclStatus group_start() override {
    grouping() = true;
    return {};
  }
  NcclStatus group_end() override {
    grouping() = false;
    const auto works = std::exchange(grouped(), {});
    if (works.empty()) return {};
    Mine& mine = *works[0].first;
    ++mine.groups;
    return begin(mine, [works] {
      std::vector<std::future<void>> all;
      for (const auto& [of, work] : works) all.push_back(std::async(std::launch::async, work));
      for (auto& each : all) each.get();
    });
  }

  NcclStatus all_reduce(const void* from, void* to, size_t count, DataType what, Combine how, Comm comm,
                        Stream stream) override {
    return call({Kind::AllReduce, 0, 0, count, what, -1, -1, nullptr, how}, comm, stream,
                [=, &mine = of(comm)](const NcclRecord& r) {
                  const size_t bytes = r.count * static_cast<size_t>(bytes_of(what));
                  if (from != to) std::memcpy(to, from, bytes);
                  mine.carrier().all_reduce(0, mine.collectives++, {static_cast<std::byte*>(to), bytes}, what, r.how);
                });
  }
  NcclStatus reduce_scatter(const void* from, void* to, size_t count, DataType what, Comm comm,
                            Stream stream) override {
    return call({Kind::ReduceScatter, 0, 0, count, what}, comm, stream, [=, &mine = of(comm)](const NcclRecord& r) {
      const size_t bytes = r.count * static_cast<size_t>(bytes_of(what));
      mine.carrier().reduce_scatter(
          0, mine.collectives++, {static_cast<const std::byte*>(from), bytes * mine.shared->world.size()},
          static_cast<int64_t>(bytes), {static_cast<std::byte*>(to), bytes}, what, Communicator::Into::Replace);
    });
  }
  NcclStatus all_gather(const void* from, void* to, size_t bytes, Comm comm, Stream stream) override {
    return call({Kind::AllGather, 0, 0, bytes}, comm, stream, [=, &mine = of(comm)](const NcclRecord& r) {
      mine.carrier().all_gather(0, mine.collectives++, {static_cast<const std::byte*>(from), r.count},
                                {static_cast<std::byte*>(to), r.count * mine.shared->world.size()},
                                static_cast<int64_t>(r.count));
    });
  }
  NcclStatus send(const void* from, size_t bytes, int to, Comm comm, Stream stream) override {
    Mine& mine = of(comm);
    return call({Kind::Send, 0, 0, bytes, DataType::Float32, to}, comm, stream,
                [=, &mine, sequence = mine.sent[to]++](const NcclRecord& r) {
                  mine.carrier().send(to, sequence, {static_cast<const std::byte*>(from), r.count});
                });
  }
  NcclStatus receive(void* to, size_t bytes, int from, Comm comm, Stream stream) override {
    Mine& mine = of(comm);
    return call({Kind::Receive, 0, 0, bytes, DataType::Float32, from}, comm, stream,
                [=, &mine, sequence = mine.received[from]++](const NcclRecord& r) {
                  mine.carrier().receive(from, sequence, {static_cast<std::byte*>(to), r.count});
                });
  }

 private:
  /// A device's end of a communicator.
  struct Mine {
    std::shared_ptr<Shared> shared;
    int sequence = -1, rank = -1, groups = 0;
    bool leaving = false;
    int64_t collectives = 0;
    std::map<int, int64_t> sent, received;
    std::future<std::string> in_progress;  // gives a problem, or none
    std::string problem;

    Communicator& carrier() const { return *shared->world[static_cast<size_t>(rank)]; }
  };
  using Works = std::vector<std::pair<Mine*, std::function<void()>>>;

  static Mine& of(Comm comm) { return *static_cast<Mine*>(comm); }
  static bool& grouping() {
    static thread_local bool now = false;
    return now;
  }
  static Works& grouped() {
    static thread_local Works works;
    return works;
  }

  bool note(NcclRecord& call) {
    if (of_.plant && !of_.plant(device_, call)) return false;
    const std::lock_guard lock(of_.mutex_);
    of_.records_[static_cast<size_t>(device_)].push_back(call);
    return true;
  }

  NcclStatus call(NcclRecord record, Comm comm, Stream stream, const std::function<void(const NcclRecord&)>& work) {
    Mine& mine = of(comm);
    record.comm = mine.sequence;
    record.rank = mine.rank;
    record.stream = stream;
    if (grouping()) record.group = mine.groups;
    if (!note(record)) return {};
    if (!grouping()) return begin(mine, [=] { work(record); });
    grouped().push_back({&mine, [=] { work(record); }});
    return {};
  }

  static NcclStatus begin(Mine& mine, const std::function<void()>& work) {
    mine.in_progress = std::async(std::launch::async, [work]() -> std::string {
      try {
        work();
        return "";
      } catch (const std::exception& problem) {
        return problem.what();
      }
    });
    return {NcclStatus::Kind::InProgress};
  }

  NcclStandIn& of_;
  const int device_;
};

NcclStandIn::NcclStandIn(int devices, milliseconds timeout)
    : timeout_(timeout), records_(static_cast<size_t>(devices)) {}
NcclStandIn::~NcclStandIn() = default;

std::unique_ptr<Communicator> NcclStandIn::communicator(std::unique_ptr<Communicator> host) {
  const int device = host->device();
  return make_nccl_communicator({std::make_shared<Calls>(*this, device), std::make_unique<HostDevice>(),
                                 std::move(host), std::move(make_local_world(1)[0]), timeout_});
}

NcclRecords NcclStandIn::records() const {
  const std::lock_guard lock(mutex_);
  return records_;
}

}  // namespace piper
