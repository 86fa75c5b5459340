#include "base/device_list.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace piper {

std::string print_devices(const DeviceList& devices) {
  std::vector<std::string> runs;
  for (size_t i = 0; i < devices.size();) {
    size_t j = i;
    while (j + 1 < devices.size() && devices[j + 1] == devices[j] + 1) ++j;
    if (j > i + 1) {
      runs.push_back(fmt::format("{}..{}", devices[i], devices[j]));
    } else {
      for (size_t k = i; k <= j; ++k) runs.push_back(fmt::format("{}", devices[k]));
    }
    i = j + 1;
  }
  return fmt::format("[{}]", fmt::join(runs, ", "));
}

}  // namespace piper
