#include "comm/nccl/library/nccl_library.h"

#include <cuda_runtime.h>
#include <fmt/format.h>
#include <nccl.h>

#include <cstring>

#include "base/invariant.h"

namespace piper {
namespace {

ncclDataType_t type_of(DataType dtype) {
  switch (dtype) {
    case DataType::Float64:
      return ncclFloat64;
    case DataType::Float32:
      return ncclFloat32;
    case DataType::BFloat16:
      return ncclBfloat16;
  }
  internal_error("a dtype");
}

NcclStatus status_of(ncclResult_t result, ncclComm_t comm) {
  if (result == ncclSuccess) return {};
  if (result == ncclInProgress) return {NcclStatus::Kind::InProgress};
  const char* const more = ncclGetLastError(comm);
  return {NcclStatus::Kind::Failed,
          fmt::format("{}{}{}", ncclGetErrorString(result), more && *more ? ": " : "", more ? more : "")};
}

class Library : public NcclCalls {
 public:
  NcclStatus make_id(Id& id) override {
    static_assert(sizeof(ncclUniqueId) == std::tuple_size_v<Id>);
    ncclUniqueId made;
    const ncclResult_t result = ncclGetUniqueId(&made);
    std::memcpy(id.data(), &made, sizeof made);
    return status_of(result, nullptr);
  }
  NcclStatus init(Comm& comm, int ranks, const Id& id, int rank) override {
    ncclUniqueId made;
    std::memcpy(&made, id.data(), sizeof made);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t out = nullptr;
    const ncclResult_t result = ncclCommInitRankConfig(&out, ranks, made, rank, &config);
    comm = out;
    return status_of(result, out);
  }
  NcclStatus status(Comm comm) override {
    ncclResult_t result = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(of(comm), &result);
    return status_of(asked == ncclSuccess ? result : asked, of(comm));
  }
  void abort(Comm comm) override { ncclCommAbort(of(comm)); }
  NcclStatus finalize(Comm comm) override { return status_of(ncclCommFinalize(of(comm)), of(comm)); }
  void destroy(Comm comm) override { ncclCommDestroy(of(comm)); }

  NcclStatus group_start() override { return status_of(ncclGroupStart(), nullptr); }
  NcclStatus group_end() override { return status_of(ncclGroupEnd(), nullptr); }

  NcclStatus all_reduce(const void* from, void* to, size_t count, DataType what, Combine how, Comm comm,
                        Stream stream) override {
    const ncclRedOp_t op = how == Combine::Sum ? ncclSum : ncclMax;
    return status_of(ncclAllReduce(from, to, count, type_of(what), op, of(comm), on(stream)), of(comm));
  }
  NcclStatus reduce_scatter(const void* from, void* to, size_t count, DataType what, Comm comm,
                            Stream stream) override {
    return status_of(ncclReduceScatter(from, to, count, type_of(what), ncclSum, of(comm), on(stream)), of(comm));
  }
  NcclStatus all_gather(const void* from, void* to, size_t bytes, Comm comm, Stream stream) override {
    return status_of(ncclAllGather(from, to, bytes, ncclUint8, of(comm), on(stream)), of(comm));
  }
  NcclStatus send(const void* from, size_t bytes, int to, Comm comm, Stream stream) override {
    return status_of(ncclSend(from, bytes, ncclUint8, to, of(comm), on(stream)), of(comm));
  }
  NcclStatus receive(void* to, size_t bytes, int from, Comm comm, Stream stream) override {
    return status_of(ncclRecv(to, bytes, ncclUint8, from, of(comm), on(stream)), of(comm));
  }

 private:
  static ncclComm_t of(Comm comm) { return static_cast<ncclComm_t>(comm); }
  static cudaStream_t on(Stream stream) { return static_cast<cudaStream_t>(stream); }
};

}  // namespace

std::shared_ptr<NcclCalls> make_nccl_calls() {
  return std::make_shared<Library>();
}

std::string nccl_version() {
  int version = 0;
  ncclGetVersion(&version);
  return fmt::format("NCCL {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace piper
