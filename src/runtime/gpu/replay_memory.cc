#include "runtime/gpu/replay_memory.h"

#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <mutex>
#include <utility>

namespace piper {
namespace {

namespace native = c10::cuda::CUDACachingAllocator;

thread_local ReplayMemory* current_memory = nullptr;

size_t rounded(size_t bytes) {
  return (bytes + 511) / 512 * 512;
}

/// What a watched piece of memory is freed with.
struct WatchedPointer {
  std::shared_ptr<ReplayMemory::Watched> piece;
  c10::DataPtr data;
};
void end(ReplayMemory::Watched& piece) {
  if (piece.clock) piece.end = (*piece.clock)++;
}
void free_watched(void* context) {
  const std::unique_ptr<WatchedPointer> pointer(static_cast<WatchedPointer*>(context));
  end(*pointer->piece);
}
void keep(void*) {}

/// Asks the calling thread's memory first. Everything else is libtorch's own.
class ReplayAllocator : public native::CUDAAllocator {
 public:
  explicit ReplayAllocator(native::CUDAAllocator* to) : to_(to) {}

  c10::DataPtr allocate(size_t bytes) override {
    ReplayMemory* const memory = current_memory;
    if (!memory || bytes == 0) return to_->allocate(bytes);
    const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream();
    if (void* const place = memory->serve(bytes, stream.stream())) return {place, place, keep, stream.device()};
    c10::DataPtr data = to_->allocate(bytes);
    if (!memory->watches()) return data;
    void* const place = data.get();
    const c10::Device device = data.device();
    return {place, new WatchedPointer{memory->watch(bytes), std::move(data)}, free_watched, device};
  }
  void* raw_alloc(size_t bytes) override {
    return raw(bytes, [&] { return to_->raw_alloc(bytes); });
  }
  void* raw_alloc_with_stream(size_t bytes, cudaStream_t stream) override {
    return raw(bytes, [&] { return to_->raw_alloc_with_stream(bytes, stream); });
  }
  void raw_delete(void* data) override {
    if (current_memory && current_memory->owns(data)) return;
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = raw_.find(data); found != raw_.end()) {
        end(*found->second);
        raw_.erase(found);
      }
    }
    to_->raw_delete(data);
  }
  c10::DeleterFnPtr raw_deleter() const override { return to_->raw_deleter(); }
  void copy_data(void* to, const void* from, std::size_t count) const override { to_->copy_data(to, from, count); }
  bool initialized() override { return to_->initialized(); }
  void emptyCache(c10::MempoolId_t pool) override { to_->emptyCache(pool); }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex d) override {
    return to_->getDeviceStats(d);
  }
  void resetAccumulatedStats(c10::DeviceIndex d) override { to_->resetAccumulatedStats(d); }
  void resetPeakStats(c10::DeviceIndex d) override { to_->resetPeakStats(d); }
  void init(int count) override { to_->init(count); }
  double getMemoryFraction(c10::DeviceIndex d) override { return to_->getMemoryFraction(d); }
  void setMemoryFraction(double f, c10::DeviceIndex d) override { to_->setMemoryFraction(f, d); }
  std::vector<native::StreamSegmentSize> getExpandableSegmentSizes(c10::DeviceIndex d) override {
    return to_->getExpandableSegmentSizes(d);
  }
  void enable(bool value) override { to_->enable(value); }
  bool isEnabled() const override { return to_->isEnabled(); }
  void cacheInfo(c10::DeviceIndex d, size_t* largest) override { to_->cacheInfo(d, largest); }
  void* getBaseAllocation(void* data, size_t* size) override { return to_->getBaseAllocation(data, size); }
  using native::CUDAAllocator::recordStream;
  void recordStream(const c10::DataPtr& data, c10::cuda::CUDAStream stream) override {
    to_->recordStream(data, stream);
  }
  native::SnapshotInfo snapshot(c10::MempoolId_t pool, bool traces) override { return to_->snapshot(pool, traces); }
  void beginAllocateToPool(c10::DeviceIndex d, c10::MempoolId_t pool, std::function<bool(cudaStream_t)> f) override {
    to_->beginAllocateToPool(d, pool, std::move(f));
  }
  void endAllocateToPool(c10::DeviceIndex d, c10::MempoolId_t pool) override { to_->endAllocateToPool(d, pool); }
  void releasePool(c10::DeviceIndex d, c10::MempoolId_t pool) override { to_->releasePool(d, pool); }
  int getPoolUseCount(c10::DeviceIndex d, c10::MempoolId_t pool) override { return to_->getPoolUseCount(d, pool); }
  void createOrIncrefPool(c10::DeviceIndex d, c10::MempoolId_t pool,
                          std::shared_ptr<native::CUDAAllocator> with) override {
    to_->createOrIncrefPool(d, pool, std::move(with));
  }
  void setUseOnOOM(c10::DeviceIndex d, c10::MempoolId_t pool, bool use) override { to_->setUseOnOOM(d, pool, use); }
  void setNoSplit(c10::DeviceIndex d, c10::MempoolId_t pool) override { to_->setNoSplit(d, pool); }
  bool checkPoolLiveAllocations(c10::DeviceIndex d, c10::MempoolId_t pool,
                                const std::unordered_set<void*>& expected) override {
    return to_->checkPoolLiveAllocations(d, pool, expected);
  }
  native::ShareableHandle shareIpcHandle(void* data) override { return to_->shareIpcHandle(data); }
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override { return to_->getIpcDevPtr(std::move(handle)); }
  bool isHistoryEnabled() override { return to_->isHistoryEnabled(); }
  void recordHistory(bool enabled, native::CreateContextFn context, size_t entries, native::RecordContext when,
                     bool clear, const std::vector<std::string>& skip) override {
    to_->recordHistory(enabled, context, entries, when, clear, skip);
  }
  void attachOutOfMemoryObserver(native::OutOfMemoryObserver observer) override {
    to_->attachOutOfMemoryObserver(std::move(observer));
  }
  void attachAllocatorTraceTracker(native::AllocatorTraceTracker tracker) override {
    to_->attachAllocatorTraceTracker(std::move(tracker));
  }
  void enablePeerAccess(c10::DeviceIndex d, c10::DeviceIndex peer) override { to_->enablePeerAccess(d, peer); }
  cudaError_t memcpyAsync(void* to, int to_device, const void* from, int from_device, size_t count, cudaStream_t stream,
                          bool peer) override {
    return to_->memcpyAsync(to, to_device, from, from_device, count, stream, peer);
  }
  std::shared_ptr<native::AllocatorState> getCheckpointState(c10::DeviceIndex d, c10::MempoolId_t pool) override {
    return to_->getCheckpointState(d, pool);
  }
  native::CheckpointDelta setCheckpointPoolState(c10::DeviceIndex d,
                                                 std::shared_ptr<native::AllocatorState> state) override {
    return to_->setCheckpointPoolState(d, std::move(state));
  }
  std::string name() override { return to_->name(); }

 private:
  template <class Allocate>
  void* raw(size_t bytes, const Allocate& allocate) {
    ReplayMemory* const memory = current_memory;
    if (!memory || bytes == 0) return allocate();
    if (void* const place = memory->serve(bytes, c10::cuda::getCurrentCUDAStream().stream())) return place;
    void* const data = allocate();
    if (!memory->watches()) return data;
    const std::lock_guard lock(mutex_);
    raw_[data] = memory->watch(bytes);
    return data;
  }

  native::CUDAAllocator* const to_;
  std::mutex mutex_;
  std::unordered_map<void*, std::shared_ptr<ReplayMemory::Watched>> raw_;
};

using Piece = std::shared_ptr<ReplayMemory::Watched>;

/// Each in turn at the lowest place that is free during all of its life. How many bytes that takes.
size_t place_in_turn(const std::vector<Piece>& order) {
  size_t most = 0;
  std::vector<Piece> placed;
  std::vector<std::pair<size_t, size_t>> busy;
  for (const Piece& piece : order) {
    busy.clear();
    for (const Piece& other : placed)
      if (other->begin < piece->end && piece->begin < other->end)
        busy.emplace_back(other->place, other->place + rounded(other->bytes));
    std::sort(busy.begin(), busy.end());
    size_t place = 0;
    for (const auto& [begin, end] : busy) {
      if (begin >= place + rounded(piece->bytes)) break;
      place = std::max(place, end);
    }
    piece->place = place;
    most = std::max(most, place + rounded(piece->bytes));
    placed.push_back(piece);
  }
  return most;
}

/// The larger first, or those that live longer: what takes less.
size_t place_all(const std::vector<Piece>& pieces) {
  std::vector<Piece> by_size = pieces, by_life = pieces;
  std::stable_sort(by_size.begin(), by_size.end(), [](const Piece& a, const Piece& b) { return a->bytes > b->bytes; });
  std::stable_sort(by_life.begin(), by_life.end(),
                   [](const Piece& a, const Piece& b) { return a->end - a->begin > b->end - b->begin; });
  const size_t one = place_in_turn(by_size), other = place_in_turn(by_life);
  return other < one ? other : place_in_turn(by_size);
}

/// The most bytes that are alive at once.
int64_t most_alive(const std::vector<Piece>& pieces) {
  std::map<int64_t, int64_t> changes;  // by moment
  for (const Piece& piece : pieces) {
    changes[piece->begin] += static_cast<int64_t>(rounded(piece->bytes));
    changes[piece->end] -= static_cast<int64_t>(rounded(piece->bytes));
  }
  int64_t now = 0, most = 0;
  for (const auto& [moment, change] : changes) most = std::max(most, now += change);
  return most;
}

}  // namespace

ReplayMemory::~ReplayMemory() {
  for (const Piece& piece : pieces_) piece->clock = nullptr;
}

void ReplayMemory::begin_step(int64_t step) {
  mode_ = step == 0 ? Mode::Off : step == 1 ? Mode::Watch : mode_;
  op_ = {};
  clock_ = 0;
  current_memory = this;
}

void ReplayMemory::enter(OpId op) {
  op_ = op;
  if (mode_ == Mode::Watch) first_[op.index()] = pieces_.size();
  cursor_ = first_[op.index()];
}

void ReplayMemory::leave() {
  if (mode_ == Mode::Watch) first_[op_.index() + 1] = pieces_.size();
  op_ = {};
}

void ReplayMemory::end_step() {
  current_memory = nullptr;
  if (mode_ == Mode::Watch) plan();
}

void ReplayMemory::plan() {
  std::map<cudaStream_t, std::vector<Piece>> by_stream;
  for (const Piece& piece : pieces_) {
    if (piece->end < 0) piece->end = clock_;
    piece->clock = nullptr;
    by_stream[piece->stream].push_back(piece);
  }
  alive_bytes_ = most_alive(pieces_);
  for (const auto& [stream, pieces] : by_stream) {
    Arena& arena = arenas_[stream];
    arena.bytes = place_all(pieces);
    arena.data = c10::cuda::CUDACachingAllocator::get()->allocate(arena.bytes);
    arena_bytes_ += static_cast<int64_t>(arena.bytes);
    for (const Piece& piece : pieces) piece->address = static_cast<std::byte*>(arena.data.get()) + piece->place;
  }
  mode_ = Mode::Serve;
}

void* ReplayMemory::serve(size_t bytes, cudaStream_t stream) {
  if (mode_ != Mode::Serve || !op_.valid()) return nullptr;
  if (cursor_ < first_[op_.index() + 1] && pieces_[cursor_]->bytes == bytes && pieces_[cursor_]->stream == stream)
    return pieces_[cursor_++]->address;
  ++arena_misses_;
  return nullptr;
}

std::shared_ptr<ReplayMemory::Watched> ReplayMemory::watch(size_t bytes) {
  auto piece = std::make_shared<Watched>();
  piece->bytes = bytes;
  piece->stream = c10::cuda::getCurrentCUDAStream().stream();
  piece->begin = clock_++;
  piece->clock = &clock_;
  pieces_.push_back(piece);
  return piece;
}

bool ReplayMemory::owns(const void* data) const {
  return std::any_of(arenas_.begin(), arenas_.end(), [&](const auto& item) {
    const auto* begin = static_cast<const std::byte*>(item.second.data.get());
    return data >= begin && data < begin + item.second.bytes;
  });
}

ReplayMemory::Aside::Aside() : before_(std::exchange(current_memory, nullptr)) {}
ReplayMemory::Aside::~Aside() {
  current_memory = before_;
}

ReplayMemory* ReplayMemory::current() {
  return current_memory;
}

void install_replay_allocator() {
  static const bool once = [] {
    static ReplayAllocator allocator(native::get());
    native::allocator.store(&allocator);
    return true;
  }();
  static_cast<void>(once);
}

}  // namespace piper
