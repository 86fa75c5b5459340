// What operators need while they run, beyond their results: found by running them.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "capture/operator_table.h"
#include "capture/pass_body.h"

namespace piper {

/// Runs every distinct call once on a device, on zeros of its shapes, and remembers the most bytes it held. The number
/// of threads must be that of later runs: some operators take memory for each.
class CallMeter {
 public:
  explicit CallMeter(c10::Device device) : device_(device) {}
  c10::Device device() const { return device_; }

  /// By call: the most bytes it holds while it runs, its results included.
  std::vector<int64_t> peaks(const PassBody& body, const OperatorTable& table);

 private:
  c10::Device device_;
  std::unordered_map<std::string, int64_t> known_;
};

}  // namespace piper
