// What a device did in its last steps: a copy of its flight recorder that can be sent to other processes.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.h"
#include "runtime/stream/flight_recorder.h"

namespace piper {

class DeviceRun;

struct DeviceFlight {
  int device = -1;
  int64_t oldest = 0;                       // of the steps
  std::vector<std::vector<OpTimes>> steps;  // by operation
  int64_t peak_bytes = 0;                   // of memory
  // on a GPU
  int64_t arena_bytes = 0, alive_bytes = 0, arena_misses = 0;  // see ArenaUse
  Nanoseconds issuing = 0;                                     // of computations, in the last step
  int64_t operators = 0;                                       // that these computations consist of
  // of rows for experts, since the run began: see RowCounts
  int64_t exchanges = 0, longer = 0, rows = 0, further_rows = 0;

  template <class Self, class Each>
  static void each_field(Self& self, Each each) {
    each(self.device);
    each(self.oldest);
    each(self.steps);
    each(self.peak_bytes);
    each(self.arena_bytes);
    each(self.alive_bytes);
    each(self.arena_misses);
    each(self.issuing);
    each(self.operators);
    each(self.exchanges);
    each(self.longer);
    each(self.rows);
    each(self.further_rows);
  }
  int64_t newest() const { return oldest + static_cast<int64_t>(steps.size()) - 1; }
  const std::vector<OpTimes>& step(int64_t number) const { return steps.at(static_cast<size_t>(number - oldest)); }
};

DeviceFlight flight_of(DeviceRun& device);
std::vector<DeviceFlight> flights_of(const std::vector<DeviceRun*>& devices);

/// Converts times of another clock to this process's; `ahead`: by how much the other is ahead.
void shift(std::vector<DeviceFlight>& flights, Nanoseconds ahead);

/// The operations that ended last on every device, and those in progress.
std::string describe_flight(const Plan& plan, const std::vector<DeviceFlight>& flights, size_t operations);

}  // namespace piper
