// The calls of NCCL that are used, and the little that a device does itself around them: all that stands between
// nccl_communicator and the libraries, so that tests can put something else in their place. Needs neither.
#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "comm/communicator.h"

namespace piper {

/// How a call stands, or what it has begun: no call waits for other processes.
struct NcclStatus {
  enum class Kind { Done, InProgress, Failed } kind = Kind::Done;
  std::string problem = {};  // if it has failed
};

class NcclCalls {
 public:
  /// What the members of a communicator find each other by.
  using Id = std::array<std::byte, 128>;
  using Comm = void*;
  using Stream = void*;

  virtual ~NcclCalls() = default;

  virtual NcclStatus make_id(Id& id) = 0;
  /// Complete when all members have called it.
  virtual NcclStatus init(Comm& comm, int ranks, const Id& id, int rank) = 0;
  /// Of the last call, or of what went wrong since.
  virtual NcclStatus status(Comm comm) = 0;
  /// Ends what is in progress; the communicator is gone. Nothing else may follow a failure.
  virtual void abort(Comm comm) = 0;
  /// All members leave; then each destroys its own.
  virtual NcclStatus finalize(Comm comm) = 0;
  virtual void destroy(Comm comm) = 0;

  /// What is called in between begins together.
  virtual NcclStatus group_start() = 0;
  virtual NcclStatus group_end() = 0;

  // `from` and `to` may be the same where NCCL allows it: a reduce-scatter's `to` is the member's own part of `from`,
  // an all-gather's `from` its own part of `to`.
  virtual NcclStatus all_reduce(const void* from, void* to, size_t count, DataType dtype, Combine how, Comm comm,
                                Stream stream) = 0;
  virtual NcclStatus reduce_scatter(const void* from, void* to, size_t count_of_part, DataType dtype, Comm comm,
                                    Stream stream) = 0;
  virtual NcclStatus all_gather(const void* from, void* to, size_t bytes_of_part, Comm comm, Stream stream) = 0;
  virtual NcclStatus send(const void* from, size_t bytes, int to, Comm comm, Stream stream) = 0;
  virtual NcclStatus receive(void* to, size_t bytes, int from, Comm comm, Stream stream) = 0;
};

/// The device, on the stream that the calling thread uses now.
class NcclDevice {
 public:
  virtual ~NcclDevice() = default;

  virtual NcclCalls::Stream stream() = 0;
  /// Memory of the device that belongs to the stream, until the next call for it.
  virtual std::byte* scratch(size_t bytes) = 0;
  /// `to` += `from`.
  virtual void add(const std::byte* from, std::byte* to, size_t bytes, DataType dtype) = 0;
  /// Rows of `width` bytes that begin every `..._pitch` bytes.
  virtual void copy_rows(const std::byte* from, size_t from_pitch, std::byte* to, size_t to_pitch, size_t width,
                         size_t rows) = 0;
};

}  // namespace piper
