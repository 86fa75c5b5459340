// A job in several processes: what they tell each other besides the messages of the plan.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "comm/world.h"
#include "runtime/flight.h"
#include "runtime/progress.h"
#include "train/loop/prepare_training.h"

namespace piper {

/// What processes must have in common, with a name for each.
using Identity = std::vector<std::pair<std::string, std::string>>;

/// Rank 0 captures, compiles and hands out the plan; all others capture what it needs. All check that they are alike.
/// E805 at every rank if one of them is not, or fails.
Result<PreparedTraining> prepare_together(World& world, const TrainableModel& model, const Schedule& schedule,
                                          const CompileOptions& options, const Identity& identity);

class Together {
 public:
  /// All processes make it, and call its members in the same order.
  /// `patience`: seconds that anything may take.
  Together(World& world, double patience);

  int processes() const { return world_.ranks(); }

  /// Whether it is true anywhere.
  bool anywhere(bool here);
  /// At rank 0 those of all processes, on its clock; elsewhere nothing. Those of processes that do not answer are
  /// missing.
  std::vector<DeviceFlight> gather(const std::vector<DeviceFlight>& mine);
  /// How far the clocks of others may be off what `gather` takes them for, in seconds.
  double clock_error() const { return clock_error_; }

 private:
  struct Clock {
    Nanoseconds ahead = 0;  // of rank 0's
    Nanoseconds error = 0;
  };
  std::vector<Clock> compare_clocks();

  World& world_;
  std::chrono::milliseconds patience_;
  std::unique_ptr<Communicator> ranks_;  // one device for each process
  int circle_ = -1;
  int64_t number_ = 0;
  std::vector<Clock> at_start_;  // by rank, at rank 0
  double clock_error_ = 0;
};

/// For JobOptions: everybody tells rank 0, which tells everybody. The world outlives it.
std::function<std::vector<DeviceProgress>(std::vector<DeviceProgress>)> progress_shared_in(World& world);

/// `rank 3 on node7`
std::string name_of_process(const World& world);

}  // namespace piper
