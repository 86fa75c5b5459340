// Communication between devices: what the operations of a plan need, whatever carries it.
//
// A process group is a list of devices that communicate with each other; process groups are made once, in the same
// order everywhere. Every exchange has a sequence number that is the same on all its members and unique among those
// under way, so that several may be under way at once. A call blocks its caller until the data is there and may be
// overwritten; a stream's thread makes it, so computation goes on beside it. Sums are taken in the order of the process
// group's members, whoever comes first: a run is reproducible bit for bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace piper {

/// Of the elements that are reduced.
enum class DataType { Float64, Float32, BFloat16 };
int64_t bytes_of(DataType dtype);

/// How the elements that several devices have in the same place are reduced to one.
enum class Combine { Sum, Max };

/// A peer did not come in time, or the job has been stopped.
struct CommunicationError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Another device has ended the job, for this reason.
struct JobStopped : CommunicationError {
  using CommunicationError::CommunicationError;
};

/// One device's end of all communication. Members are called from several threads, one per exchange.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int device() const = 0;

  /// Of the plan: all devices make the same process groups in the same order, also those they do not belong to. Calls
  /// in one process group come in the same order on all its members. May wait for them.
  virtual int make_group(std::vector<int> members) = 0;
  /// Of the plan, as process groups are: there will be transfers from one device to another.
  virtual void connect(int /*from*/, int /*to*/) {}

  virtual void send(int to, int64_t sequence, std::span<const std::byte> data) = 0;
  virtual void receive(int from, int64_t sequence, std::span<std::byte> data) = 0;

  /// Everybody ends up with the sum of all `data`, or the greatest.
  virtual void all_reduce(int group, int64_t sequence, std::span<std::byte> data, DataType dtype,
                          Combine how = Combine::Sum) = 0;
  // Parts of arrays may lie interleaved, as those of one that is cut along an inner dimension: part i of n is bytes
  // [i * run, (i + 1) * run) of every n * run bytes. Where they lie one behind the other, a run is a part.

  /// `whole` is as many equal parts as there are members; the sum of everybody's part i ends up in `part` of member i.
  /// With `add` it is added to what is there.
  enum class Into { Replace, Add };
  virtual void reduce_scatter(int group, int64_t sequence, std::span<const std::byte> whole, int64_t run,
                              std::span<std::byte> part, DataType dtype, Into into) = 0;
  /// `part` of member i ends up as part i of everybody's `whole`. It may lie there already.
  virtual void all_gather(int group, int64_t sequence, std::span<const std::byte> part, std::span<std::byte> whole,
                          int64_t run) = 0;
  /// Part j of member i's `out` ends up as part i of member j's `in`.
  virtual void all_to_all(int group, int64_t sequence, std::span<const std::byte> out, int64_t run_out,
                          std::span<std::byte> in, int64_t run_in) = 0;

  /// Ends every call that waits, here and on all other devices, and all later ones, with JobStopped.
  virtual void abort(const std::string& reason) = 0;

  /// What has gone wrong behind calls that have returned, where they return before the data is there. Asked several
  /// times a second during steps, by a thread of its own.
  struct Trouble {
    std::string what;
    bool elsewhere = false;  // another device has ended the job
  };
  virtual std::optional<Trouble> trouble() { return {}; }
};

}  // namespace piper
