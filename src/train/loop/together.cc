#include "train/loop/together.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <set>
#include <thread>

#include "comm/processes/launcher.h"
#include "plan/plan_text.h"
#include "runtime/packed.h"
#include "train/gpu_claims.h"
#include "train/run_problems.h"

namespace piper {
namespace {

using namespace std::chrono_literals;

constexpr auto timeout = 600s;  // for the clocks of all, and what everybody keeps of a run

/// What rank 0 hands out.
struct Handout {
  Identity identity;
  std::string plan;  // empty: there is none
  uint64_t hash = 0;

  template <class Self, class Each>
  static void each_field(Self& self, Each each) {
    each(self.identity);
    each(self.plan);
    each(self.hash);
  }
};

/// What differs, in words; empty: nothing.
std::string difference(const Identity& mine, const Identity& of_rank_0) {
  for (size_t i = 0; i < std::min(mine.size(), of_rank_0.size()); ++i)
    if (mine[i] != of_rank_0[i])
      return fmt::format("{} is {}, but {} at rank 0", mine[i].first, mine[i].second, of_rank_0[i].second);
  return mine.size() == of_rank_0.size() ? "" : "it is another build";
}

std::string difference_of_plans(uint64_t mine, uint64_t of_rank_0) {
  if (mine == of_rank_0) return "";
  return fmt::format("the hash of the plan is {:016x}, but {:016x} at rank 0", mine, of_rank_0);
}

/// What this host knows about those that do not answer.
std::string and_who_is_stopped() {
  const std::vector<std::string> stopped = Launcher().stopped();
  return stopped.empty() ? "" : fmt::format("\n  stopped on {}: {}", host_name(), fmt::join(stopped, ", "));
}

Diagnostic cannot_begin(const CommunicationError& problem) {
  return error(ErrorCode::E805, {},
               fmt::format("the processes of the job cannot begin: {}{}", problem.what(), and_who_is_stopped()))
      .help("check that all of them are alive and can reach each other");
}

Diagnostic rank_0_failed() {
  return error(ErrorCode::E805, {}, "rank 0 cannot start the job").help("rank 0 says why");
}

/// After everybody has said what is wrong with it, if anything is.
Checked all_fine(World& world, const std::string& complaint, std::chrono::milliseconds limit) {
  const auto complaints = world.gather(complaint, limit);
  std::string all;
  for (size_t rank = 0; rank < complaints.size(); ++rank)
    if (!complaints[rank])
      all += fmt::format("\n  rank {} does not answer", rank);
    else if (!complaints[rank]->empty())
      all += fmt::format("\n  {}", *complaints[rank]);
  if (std::any_of(complaints.begin(), complaints.end(), [](const auto& complaint) { return !complaint; }))
    all += and_who_is_stopped();
  const std::string verdict = world.broadcast(all, limit);
  if (verdict.empty()) return Ok{};
  return do_not_fit(verdict);
}

}  // namespace

std::chrono::milliseconds limit_at_start(const Timeouts& of_job) {
  return std::chrono::milliseconds(static_cast<int64_t>(1e3 * of_job.first));
}

std::string host_name() {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  return host.data();
}

std::string name_of_process(const World& world) {
  return fmt::format("rank {} on {}", world.rank(), host_name());
}

std::string host_of(const std::string& process) {
  constexpr std::string_view on = " on ";
  const size_t at = process.find(on);
  return at == std::string::npos ? process : process.substr(at + on.size());
}

Result<PreparedTraining> prepare_together(World& world, const TrainableModel& model, const Schedule& schedule,
                                          const CompileOptions& options, const Identity& identity,
                                          const Timeouts& of_job, bool other_plan, const Fits& fits) try {
  const std::chrono::milliseconds limit = limit_at_start(of_job);
  if (world.rank() == 0) {
    auto prepared = prepare_training(model, schedule, options, {true, fits});
    Handout handout{identity, {}, 0};
    if (prepared) handout = {identity, print(*prepared->plan), hash(*prepared->plan) ^ (other_plan ? 1 : 0)};
    world.broadcast(pack_all(std::vector{handout}), limit);
    if (!prepared) return prepared;
    PIPER_CHECK(all_fine(world, "", limit));
    return prepared;
  }
  const std::vector<Handout> handed = unpack_all<Handout>(world.broadcast("", limit));
  if (handed.empty() || handed[0].plan.empty()) return rank_0_failed();
  const Handout& handout = handed[0];
  std::string complaint = difference(identity, handout.identity);
  Result<PreparedTraining> prepared = rank_0_failed();
  if (complaint.empty()) {
    prepared = prepare_for_plan(model, make_source("the plan of rank 0", handout.plan), fits);
    complaint = prepared ? difference_of_plans(hash(*prepared->plan) ^ (other_plan ? 1 : 0), handout.hash)
                         : render(prepared.error());
  }
  PIPER_CHECK(
      all_fine(world, complaint.empty() ? "" : fmt::format("{}: {}", name_of_process(world), complaint), limit));
  return prepared;
} catch (const CommunicationError& problem) {
  return cannot_begin(problem);
}

Checked check_alike(World& world, const Identity& identity, const Timeouts& of_job) try {
  const std::chrono::milliseconds limit = limit_at_start(of_job);
  const std::vector<Handout> handed =
      unpack_all<Handout>(world.broadcast(pack_all(std::vector{Handout{identity, {}, 0}}), limit));
  const std::string complaint = handed.empty() ? "" : difference(identity, handed[0].identity);
  return all_fine(world, complaint.empty() ? "" : fmt::format("{}: {}", name_of_process(world), complaint), limit);
} catch (const CommunicationError& problem) {
  return cannot_begin(problem);
}

Checked check_processes(const World& world, int devices, const Processor& processor) {
  if (!processor.device().is_cpu() && world.ranks() != devices)
    return error(ErrorCode::E805, {},
                 fmt::format("the job has {} process{}, the schedule {} device{}: on GPUs every process has one",
                             world.ranks(), world.ranks() == 1 ? "" : "es", devices, devices == 1 ? "" : "s"))
        .help("start as many processes as there are devices; without --backend all devices share one GPU");
  if (world.ranks() <= devices) return Ok{};
  return error(ErrorCode::E805, {},
               fmt::format("the job has {} processes, the schedule {} device{}", world.ranks(), devices,
                           devices == 1 ? "" : "s"))
      .help("start at most as many processes as there are devices; a process may have several");
}

Result<std::vector<std::string>> hosts_of(World& world, const Timeouts& of_job) try {
  const std::chrono::milliseconds limit = limit_at_start(of_job);
  std::vector<std::pair<int, std::string>> hosts;  // with whether it is known
  for (const auto& host : world.gather(host_name(), limit)) hosts.emplace_back(host ? 1 : 0, host.value_or(""));
  Packing packed;
  packed.add(hosts);
  hosts.clear();
  const std::string known = world.broadcast(packed.take(), limit);
  Unpacking(known).take(hosts);
  std::vector<std::string> out;
  for (const auto& [is_known, host] : hosts) {
    if (!is_known) return do_not_fit(fmt::format("\n  rank {} does not answer", out.size()));
    out.push_back(host);
  }
  return out;
} catch (const CommunicationError& problem) {
  return cannot_begin(problem);
}

Result<int> take_gpu(World& world, const std::vector<std::string>& visible, const Timeouts& of_job) try {
  const std::chrono::milliseconds limit = limit_at_start(of_job);
  const auto gathered = world.gather(pack_all(std::vector{GpuClaim{name_of_process(world), visible}}), limit);
  std::vector<GpuClaim> claims;
  for (const auto& bytes : gathered)
    for (GpuClaim& claim : unpack_all<GpuClaim>(bytes.value_or(""))) claims.push_back(std::move(claim));
  claims = unpack_all<GpuClaim>(world.broadcast(pack_all(claims), limit));
  if (static_cast<int>(claims.size()) != world.ranks())
    return do_not_fit(fmt::format("\n  {} of {} processes say which GPUs they see", claims.size(), world.ranks()));
  PIPER_TRY(const std::vector<int> given, give_out(claims));
  return given[static_cast<size_t>(world.rank())];
} catch (const CommunicationError& problem) {
  return cannot_begin(problem);
}

Checked check_memory_together(World& world, const std::vector<MemoryClaim>& mine, const Timeouts& of_job) try {
  const std::chrono::milliseconds limit = limit_at_start(of_job);
  std::vector<MemoryClaim> claims;
  for (const auto& bytes : world.gather(pack_all(mine), limit))
    for (MemoryClaim& claim : unpack_all<MemoryClaim>(bytes.value_or(""))) claims.push_back(std::move(claim));
  claims = unpack_all<MemoryClaim>(world.broadcast(pack_all(claims), limit));
  std::set<std::string> processes;
  for (const MemoryClaim& claim : claims) processes.insert(claim.process);
  if (static_cast<int>(processes.size()) != world.ranks())
    return do_not_fit(fmt::format("\n  {} of {} processes say what memory they have", processes.size(), world.ranks()));
  return check_memory(claims);
} catch (const CommunicationError& problem) {
  return cannot_begin(problem);
}

std::vector<std::unique_ptr<Communicator>> join_job(World& world, int devices, Processor& processor,
                                                    const JobTurns& turns, int number, JobOptions& job) {
  job.share_progress = progress_shared_in(world, turns, number);
  if (world.rank() != 0) job.judges = Judges::Silence;
  // of a GPU only the beginning goes over the host, and nobody watches that
  const std::chrono::milliseconds limit = limit_at_start(job.timeout);
  return processor.join(world.make(devices, processor.device().is_cpu() ? until_the_job_fails : limit), limit);
}

Together::Together(World& world, Job& job)
    : world_(world), ranks_(std::move(world.make(world.ranks(), until_the_job_fails).at(0))) {
  end_with(job);
  std::vector<int> all(static_cast<size_t>(world.ranks()));
  std::iota(all.begin(), all.end(), 0);
  group_ = ranks_->make_group(all);
  at_start_ = compare_clocks();
  Packing packed;
  packed.add(at_start_);
  const std::string clocks = world.broadcast(packed.take(), timeout);
  std::vector<Clock> by_rank;
  Unpacking(clocks).take(by_rank);
  mine_ = by_rank.at(static_cast<size_t>(world.rank()));
  hear_of_each_other(job);
}

void Together::end_with(Job& job) {
  job.when_it_fails([ranks = ranks_](const std::string& reason) { ranks->abort(reason); });
}

/// From now on the silence of a process is noticed where it is watched for: at rank 0, and of rank 0 everywhere.
void Together::hear_of_each_other(const Job& job) {
  const auto somebody_is_missing = [&] {
    std::vector<PeerHeartbeat> heard = world_.heartbeats();
    if (world_.rank() != 0) heard.resize(1);
    return std::any_of(heard.begin(), heard.end(), [](const PeerHeartbeat& of) { return of.block.empty(); });
  };
  do {
    job.progress();  // which tells the others
    std::this_thread::sleep_for(5ms);
  } while (greatest(somebody_is_missing() ? 1 : 0) > 0);
}

int Together::greatest(int here) {
  auto number = static_cast<double>(here);
  ranks_->all_reduce(group_, sequence_++, std::as_writable_bytes(std::span(&number, 1)), DataType::Float64,
                     Combine::Max);
  return static_cast<int>(number);
}

void Together::sum(std::span<std::byte> elements, DataType dtype) {
  ranks_->all_reduce(group_, sequence_++, elements, dtype);
}

void Together::all_gather(std::span<const std::byte> part, std::span<std::byte> whole) {
  ranks_->all_gather(group_, sequence_++, part, whole, static_cast<int64_t>(part.size()));
}

/// Rank 0 asks everybody for the time, several times; the answer that came soonest counts.
std::vector<Together::Clock> Together::compare_clocks() {
  constexpr int questions = 10;
  std::vector<Clock> out(static_cast<size_t>(world_.ranks()));
  const int64_t first = sequence_;
  sequence_ += questions;
  Nanoseconds time = 0;
  const auto bytes = std::as_writable_bytes(std::span(&time, 1));
  if (world_.rank() != 0) {
    for (int64_t sequence = first; sequence < sequence_; ++sequence) {
      ranks_->receive(0, sequence, bytes);
      time = now();
      ranks_->send(0, sequence, bytes);
    }
    return out;
  }
  for (int rank = 1; rank < world_.ranks(); ++rank) {
    Clock& clock = out[static_cast<size_t>(rank)];
    clock.error = std::numeric_limits<Nanoseconds>::max();
    for (int64_t sequence = first; sequence < sequence_; ++sequence) {
      const Nanoseconds asked = now();
      ranks_->send(rank, sequence, bytes);
      ranks_->receive(rank, sequence, bytes);
      const Nanoseconds answered = now();
      if ((answered - asked) / 2 >= clock.error) continue;
      clock = {time - (asked + answered) / 2, (answered - asked) / 2};
    }
  }
  return out;
}

std::vector<DeviceFlight> Together::gather(const std::vector<DeviceFlight>& mine) {
  const std::vector<Clock> at_end = compare_clocks();
  const auto all = world_.gather(pack_all(mine), timeout);
  std::vector<DeviceFlight> out;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (!all[rank]) continue;
    std::vector<DeviceFlight> flights = unpack_all<DeviceFlight>(*all[rank]);
    const Clock &start = at_start_[rank], &end = at_end[rank];
    shift(flights, (start.ahead + end.ahead) / 2);
    const Nanoseconds error = std::max(start.error, end.error) + std::abs(start.ahead - end.ahead) / 2;
    clock_error_ = std::max(clock_error_, static_cast<double>(error) * 1e-9);
    out.insert(out.end(), flights.begin(), flights.end());
  }
  return out;
}

std::function<std::vector<DeviceProgress>(std::vector<DeviceProgress>)> progress_shared_in(World& world,
                                                                                           const JobTurns& turns,
                                                                                           int job) {
  return [&world, &turns, job, where = name_of_process(world)](std::vector<DeviceProgress> mine) {
    for (DeviceProgress& device : mine) {
      device.where = where;
      device.moved = world.moved();
      device.job = job;
    }
    if (turns.now != job) return mine;
    world.post(pack_all(mine), world.rank() == 0 ? World::To::Everybody : World::To::RankZero);
    const std::vector<PeerHeartbeat> heard = world.heartbeats();
    std::vector<DeviceProgress> all;
    for (size_t rank = 0; rank < heard.size(); ++rank) {
      if (static_cast<int>(rank) == world.rank()) {
        all.insert(all.end(), mine.begin(), mine.end());
        continue;
      }
      for (DeviceProgress& device : unpack_all<DeviceProgress>(heard[rank].block)) {
        device.silent = std::chrono::duration<double>(std::chrono::steady_clock::now() - heard[rank].when).count();
        if (device.job != job) {  // it is alive, and has not begun this one, or has ended it
          device.step = -1;
          device.streams.clear();
        }
        all.push_back(std::move(device));
      }
    }
    return all;
  };
}

}  // namespace piper
