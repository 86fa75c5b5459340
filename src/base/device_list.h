// Devices by their numbers, in an order that means something: who has which part.
#pragma once

#include <string>
#include <vector>

namespace piper {

using DeviceList = std::vector<int>;

/// `[0..3, 8]`: runs of consecutive devices as ranges.
std::string print_devices(const DeviceList& devices);

}  // namespace piper
