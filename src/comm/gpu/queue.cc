#include "comm/gpu/queue.h"

#include "base/invariant.h"
#include "comm/gpu/check.h"

namespace piper {
namespace {

thread_local GpuQueue* current = nullptr;

}  // namespace

GpuEvent::GpuEvent(unsigned flags) {
  check_cuda(cudaEventCreateWithFlags(&event_, flags), "make an event");
}
GpuEvent::~GpuEvent() {
  cudaEventDestroy(event_);
}
void GpuEvent::record(cudaStream_t stream) {
  check_cuda(cudaEventRecord(event_, stream), "record an event");
}
void GpuEvent::hold(cudaStream_t stream) const {
  check_cuda(cudaStreamWaitEvent(stream, event_, 0), "wait for an event");
}

OnQueue::OnQueue(GpuQueue& queue) : before_(current) {
  current = &queue;
}
OnQueue::~OnQueue() {
  current = before_;
}
GpuQueue& current_queue() {
  invariant(current, "whoever communicates on a GPU has a queue");
  return *current;
}

}  // namespace piper
