// What operators need and give when they run: found by running them.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "capture/chunk/chunk_ir.h"
#include "capture/record/operator_table.h"

namespace piper {

/// A result as the kernel of an operator gives it.
struct GivenTensor {
  TensorLayout layout;
  int64_t bytes = 0;  // of its storage
};

struct TriedCall {
  int64_t peak = 0;                                   // the most bytes it held, its results included
  std::vector<std::optional<GivenTensor>> otherwise;  // by result tensor: where it does not look as recorded
  std::string problem;                                // why what was recorded cannot be had; empty: it can
};

/// Runs every distinct call on a device, on zeros of its shapes (or identities), and remembers what it saw. The
/// number of threads must be that of later runs: some operators take memory for each.
class TriedCalls {
 public:
  explicit TriedCalls(c10::Device device) : device_(device) {}
  c10::Device device() const { return device_; }

  const TriedCall& find(const ChunkIr& body, const Call& call, const OperatorTable& table);
  /// By call: the most bytes it holds while it runs, its results included.
  std::vector<int64_t> peaks(const ChunkIr& body, const OperatorTable& table);

 private:
  c10::Device device_;
  std::mutex mutex_;
  std::unordered_map<std::string, TriedCall> known_;
};

}  // namespace piper
