// Communication between devices, as the operations of a plan need it, over any transport.
//
// A process group is a list of devices that communicate with each other; process groups are made once, in the same
// order everywhere. Every call has a sequence number, equal on all its members and unique among the calls in progress,
// so that several may be in progress at once. A call blocks until its data has arrived and its arguments may be
// overwritten; streams have threads of their own, so computation continues meanwhile. Sums are taken in the order of
// the process group's members, not of arrival: a run is reproducible bit for bit.
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

/// The reduction of a collective.
enum class Combine { Sum, Max };

/// A peer did not respond in time, or the job was stopped.
struct CommunicationError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Another device has stopped the job, for this reason.
struct JobStopped : CommunicationError {
  using CommunicationError::CommunicationError;
};

/// One device's end of all communication. Members are called from several threads, one per exchange.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int device() const = 0;

  /// Makes a process group of the plan. All devices make the same ones in the same order, also those they do not belong
  /// to. All members make the calls of a group in the same order. May wait for the members.
  virtual int make_group(std::vector<int> members) = 0;
  /// Announces transfers from one device to another; called on all devices in the same order.
  virtual void connect(int /*from*/, int /*to*/) {}

  virtual void send(int to, int64_t sequence, std::span<const std::byte> data) = 0;
  virtual void receive(int from, int64_t sequence, std::span<std::byte> data) = 0;

  /// All members get the sum of all `data`, or the maximum.
  virtual void all_reduce(int group, int64_t sequence, std::span<std::byte> data, DataType dtype,
                          Combine how = Combine::Sum) = 0;
  // Parts of an array may interleave, as they do if it is divided along an inner dimension: part i of n is bytes
  // [i * run, (i + 1) * run) of every n * run bytes. If parts are contiguous, a run is a whole part.

  /// `whole` has one part per member, of equal size; `part` of member i gets the sum of part i over all members. With
  /// `Into::Add` it is added to what is there.
  enum class Into { Replace, Add };
  virtual void reduce_scatter(int group, int64_t sequence, std::span<const std::byte> whole, int64_t run,
                              std::span<std::byte> part, DataType dtype, Into into) = 0;
  /// `part` of member i becomes part i of `whole` on all members. It may lie there already.
  virtual void all_gather(int group, int64_t sequence, std::span<const std::byte> part, std::span<std::byte> whole,
                          int64_t run) = 0;
  /// Part j of member i's `out` becomes part i of member j's `in`.
  virtual void all_to_all(int group, int64_t sequence, std::span<const std::byte> out, int64_t run_out,
                          std::span<std::byte> in, int64_t run_in) = 0;

  /// `out` of member i becomes `in` of the member `by` ranks further, modulo their number.
  virtual void shift(int group, int64_t sequence, int by, std::span<const std::byte> out, std::span<std::byte> in) = 0;

  /// Piece j of member i's `out` becomes piece i of member j's `in`. Pieces have any size, also none; both ends say the
  /// same. Several calls may have one sequence number: `turn` counts them.
  virtual void exchange(int group, int64_t sequence, int turn, std::span<const std::span<const std::byte>> out,
                        std::span<const std::span<std::byte>> in) = 0;

  /// Ends all waiting and all later calls with JobStopped, here and on all other devices.
  virtual void abort(const std::string& reason) = 0;

  /// An error of a call that had already returned, for communicators whose calls return before the data has arrived.
  /// Polled several times a second during steps, by a separate thread.
  struct Trouble {
    std::string what;
    bool elsewhere = false;  // another device has stopped the job
  };
  virtual std::optional<Trouble> trouble() { return {}; }
};

}  // namespace piper
