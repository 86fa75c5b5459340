#include "comm/processes/neighbours.h"

#include <algorithm>

namespace piper {

void Neighbours::send(const std::shared_ptr<Batch>& batch, const MessageKey& key, std::span<const std::byte> data,
                      size_t whole) {
  come(sends_, receives_, key, {batch, const_cast<std::byte*>(data.data()), data.size(), whole}, true);
}

void Neighbours::receive(const std::shared_ptr<Batch>& batch, const MessageKey& key, std::span<std::byte> data,
                         size_t whole) {
  come(receives_, sends_, key, {batch, data.data(), data.size(), whole}, false);
}

void Neighbours::come(Waiting& mine, Waiting& others, const MessageKey& key, End end, bool sends) {
  std::unique_lock lock(mutex_);
  const auto found = others.find(key);
  if (found == others.end()) {
    mine[key].push_back(std::move(end));
    return;
  }
  End other = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty()) others.erase(found);
  if (other.bytes != end.bytes || other.whole != end.whole) {
    end.batch->fail(different_sizes);
    other.batch->fail(different_sizes);
    return;
  }
  ++copying_[end.batch];
  ++copying_[other.batch];
  lock.unlock();
  if (sends)
    std::copy_n(end.data, end.bytes, other.data);
  else
    std::copy_n(other.data, end.bytes, end.data);
  lock.lock();
  for (const auto& batch : {end.batch, other.batch}) {
    const auto use = copying_.find(batch);
    if (--use->second == 0) copying_.erase(use);
    batch->complete();
  }
  copied_.notify_all();
}

void Neighbours::withdraw(const std::shared_ptr<Batch>& batch) {
  std::unique_lock lock(mutex_);
  for (Waiting* waiting : {&sends_, &receives_})
    for (auto& [key, ends] : *waiting) std::erase_if(ends, [&](const End& end) { return end.batch == batch; });
  for (Waiting* waiting : {&sends_, &receives_})
    std::erase_if(*waiting, [](const auto& entry) { return entry.second.empty(); });
  copied_.wait(lock, [&] { return !copying_.contains(batch); });
}

}  // namespace piper
