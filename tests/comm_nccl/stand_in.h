// In the place of NCCL: devices are threads, memory is the host's. Carries what is called as NCCL would, matched by its
// order on each communicator, and writes all of it down.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "comm/nccl/nccl_communicator.h"

namespace piper {

/// A call of one device.
struct NcclRecord {
  enum class Kind { Init, AllReduce, ReduceScatter, AllGather, Send, Receive } kind = Kind::Init;
  int comm = -1;
  int rank = -1;     // of the device, there
  size_t count = 0;  // elements or bytes; of Init: ranks
  DataType dtype = DataType::Float32;
  int peer = -1;                       // of Send and Receive
  int group = -1;                      // which of the device's groups on the communicator; -1: none
  NcclCalls::Stream stream = nullptr;  // not of Init
  Combine how = Combine::Sum;          // of AllReduce
  friend bool operator==(const NcclRecord&, const NcclRecord&) = default;
};
std::string describe(const NcclRecord& record);

/// By device, in its order.
using NcclRecords = std::vector<std::vector<NcclRecord>>;
/// Whatever would hang or give wrong values with NCCL: calls on a communicator that are not the same on all its
/// members, sends that no receive fits, groups that do not meet, communicators that are made in another order, or used
/// on several streams of a device.
std::vector<std::string> mistakes(const NcclRecords& records);

class NcclStandIn {
 public:
  NcclStandIn(int devices, std::chrono::milliseconds timeout);
  ~NcclStandIn();

  /// May change a call of a device; false: it is left out.
  std::function<bool(int device, NcclRecord& call)> plant;

  /// Of a device among those that `host` joins.
  std::unique_ptr<Communicator> communicator(std::unique_ptr<Communicator> host);
  NcclRecords records() const;
  /// Communicators that were destroyed, and aborted, by all devices.
  int destroyed() const { return destroyed_; }
  int aborted() const { return aborted_; }

 private:
  class Calls;
  struct Shared;
  const std::chrono::milliseconds timeout_;
  mutable std::mutex mutex_;
  NcclRecords records_;
  int ids_ = 0;
  std::map<int, std::shared_ptr<Shared>> comms_;
  std::atomic<int> destroyed_ = 0, aborted_ = 0;
};

}  // namespace piper
