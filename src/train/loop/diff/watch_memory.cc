// Whether memory still holds what was written there when it is read: not if it was freed before, and somebody else's.
#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/hash.h"
#include "train/loop/diff/step_watch.h"

namespace piper {
namespace {

uint64_t hash_of(const at::Tensor& tensor) {
  const auto* at = static_cast<const std::byte*>(tensor.storage().data());
  StableHash hash;
  for (size_t left = tensor.storage().nbytes(); left > 0;) {
    uint64_t word = 0;
    const size_t size = std::min(left, sizeof(word));
    std::memcpy(&word, at, size);
    hash.add(word);
    at += size;
    left -= size;
  }
  return hash.value();
}

bool contains(const std::vector<BufferId>& buffers, BufferId buffer) {
  return std::find(buffers.begin(), buffers.end(), buffer) != buffers.end();
}

}  // namespace

/// Of buffers of the step: others last, and have no end before which they could be used. Looking for what is not
/// finite, memory that has become so is reported, and nothing else.
void StepWatch::look_at_memory(int device, OpId index, Frame& frame) {
  const PlannedOp& what = op(device, index);
  const auto& buffers = program(device).buffers;
  const auto watched = [&](BufferId buffer) { return !buffers[buffer].persistent && frame[buffer].defined(); };
  for (const BufferId buffer : what.reads) {
    if (!watched(buffer) || contains(what.writes, buffer)) continue;
    const uint64_t hash = hash_of(frame[buffer]);
    Finding finding = found(What::Memory, device, index, name(buffers[buffer].label), buffer.value);
    {
      const std::lock_guard lock(mutex_);
      const auto [at, fresh] = held_.try_emplace({device, buffer}, Held{hash, {}, index});
      Held& held = at->second;
      finding.differs = held.hash != hash;
      finding.writer = held.writer;
      finding.last_right = held.last_right;
      if (!finding.differs) held.last_right = index;
      held.hash = hash;  // which is reported once
    }
    if (!finding.differs || (!reference_ && all_finite(frame[buffer]))) continue;
    finding.measure.largest = finding.measure.difference = std::numeric_limits<double>::infinity();
    add(std::move(finding), buffer);
  }
  for (const BufferId buffer : what.writes)
    if (watched(buffer)) {
      const uint64_t hash = hash_of(frame[buffer]);
      const std::lock_guard lock(mutex_);
      held_[{device, buffer}] = {hash, index, {}};
    }
}

}  // namespace piper
