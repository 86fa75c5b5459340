// What a device did with its last steps: a copy of its flight recorder, which can be handed to other processes.
#pragma once

#include <string>
#include <string_view>
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

  int64_t newest() const { return oldest + static_cast<int64_t>(steps.size()) - 1; }
  const std::vector<OpTimes>& step(int64_t number) const { return steps.at(static_cast<size_t>(number - oldest)); }
};

DeviceFlight flight_of(DeviceRun& device);
std::vector<DeviceFlight> flights_of(const std::vector<DeviceRun*>& devices);

/// As bytes, for processes of the same build.
std::string pack(const std::vector<DeviceFlight>& flights);
/// Nothing if they are not what `pack` gives.
std::vector<DeviceFlight> unpack_flights(std::string_view bytes);
/// Times of another clock as those of ours: `ahead` is what the other shows more.
void shift(std::vector<DeviceFlight>& flights, Nanoseconds ahead);

/// The operations that ended last on every device, and those under way.
std::string describe_flight(const Plan& plan, const std::vector<DeviceFlight>& flights, size_t operations);

}  // namespace piper
