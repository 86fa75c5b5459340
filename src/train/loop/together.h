// A job in several processes: what they tell each other besides the messages of the plan.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "comm/world.h"
#include "runtime/flight.h"
#include "runtime/job.h"
#include "train/loop/prepare_training.h"
#include "train/memory_claims.h"

namespace piper {

/// How long everybody waits for the slowest before the first step.
std::chrono::milliseconds limit_at_start(const Timeouts& of_job);

/// What processes must have in common, with a name for each.
using Identity = std::vector<std::pair<std::string, std::string>>;

/// Rank 0 captures, compiles and hands out the plan; all others capture what it needs. All check that they are alike.
/// E805 at every rank if one of them is not, fails, or does not come while the timeout for something new lasts.
/// `other_plan`: a planted fault.
Result<PreparedTraining> prepare_together(World& world, const TrainableModel& model, const Schedule& schedule,
                                          const CompileOptions& options, const Identity& identity,
                                          const Timeouts& of_job, bool other_plan = false, const Fits& fits = nullptr);

/// E805 at every rank if one of them has something else than rank 0. For processes that have made the same plan each.
Checked check_alike(World& world, const Identity& identity, const Timeouts& of_job);

/// E805: more processes than devices; or, where each process has one GPU, not as many.
Checked check_processes(const World& world, int devices, const Processor& processor);

/// Where the processes are, by rank. E805 at every rank if one of them does not say.
Result<std::vector<std::string>> hosts_of(World& world, const Timeouts& of_job);

/// Every process gets a GPU of its own: which of those that it sees. E807 at every rank if there are too few.
Result<int> take_gpu(World& world, const std::vector<std::string>& visible, const Timeouts& of_job);

/// E405 at every rank if the processes of one of the hosts need more than it has.
Checked check_memory_together(World& world, const std::vector<MemoryClaim>& mine, const Timeouts& of_job);

class Together {
 public:
  /// All processes make it, and call its members in the same order, under the watchdog of the job: the calls wait until
  /// all have come, or the job fails.
  Together(World& world, Job& job);

  /// When another job of the processes fails, all that they wait for here ends too.
  void end_with(Job& job);

  /// Of all processes' values, at every one.
  int greatest(int here);
  /// The sums of all processes' elements, at every one.
  void sum(std::span<std::byte> elements, DataType dtype);
  /// The equal parts of all processes, in their order, at every one.
  void all_gather(std::span<const std::byte> part, std::span<std::byte> whole);
  /// At rank 0 those of all processes, on its clock; elsewhere nothing. Those of processes that do not answer are
  /// missing.
  std::vector<DeviceFlight> gather(const std::vector<DeviceFlight>& mine);
  /// What the clock of this process shows more than that of rank 0, and how far that may be off, in seconds: as it was
  /// when the job began.
  double clock_ahead() const { return static_cast<double>(mine_.ahead) * 1e-9; }
  double clock_error_here() const { return static_cast<double>(mine_.error) * 1e-9; }
  /// How far the clocks of others may be off what `gather` takes them for, in seconds.
  double clock_error() const { return clock_error_; }

 private:
  struct Clock {
    Nanoseconds ahead = 0;  // of rank 0's
    Nanoseconds error = 0;
  };
  std::vector<Clock> compare_clocks();
  void hear_of_each_other(const Job& job);

  World& world_;
  std::shared_ptr<Communicator> ranks_;  // one device for each process
  int group_ = -1;
  int64_t sequence_ = 0;
  std::vector<Clock> at_start_;  // by rank, at rank 0
  Clock mine_;
  double clock_error_ = 0;
};

/// Timeouts of calls that the watchdog of a job ends: it knows how long they may take.
constexpr std::chrono::milliseconds until_the_job_fails = std::chrono::hours(24 * 365);

/// Jobs of a process that take turns, by number. Only the one whose turn it is tells others about itself.
struct JobTurns {
  static constexpr int training = 0, evaluation = 1;
  std::atomic<int> now = training;
};

/// For JobOptions: everybody tells rank 0, which tells everybody. World and turns outlive it.
std::function<std::vector<DeviceProgress>(std::vector<DeviceProgress>)> progress_shared_in(World& world,
                                                                                           const JobTurns& turns,
                                                                                           int job);

/// The communicators of this process's devices, for a job that shares its progress with the others. World and turns
/// outlive the job.
std::vector<std::unique_ptr<Communicator>> join_job(World& world, int devices, Processor& processor,
                                                    const JobTurns& turns, int number, JobOptions& job);

std::string host_name();
/// `rank 3 on node7`
std::string name_of_process(const World& world);
/// The host in such a name.
std::string host_of(const std::string& process);

}  // namespace piper
