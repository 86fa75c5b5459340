// Messages between devices of one process: whoever comes second copies from memory to memory.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>

#include "comm/processes/batch.h"
#include "comm/processes/message_key.h"

namespace piper {

class Neighbours {
 public:
  void send(const std::shared_ptr<Batch>& batch, const MessageKey& key, std::span<const std::byte> data, size_t whole);
  void receive(const std::shared_ptr<Batch>& batch, const MessageKey& key, std::span<std::byte> data, size_t whole);
  /// Forgets what waits; returns when nobody copies from or to the batch's memory.
  void withdraw(const std::shared_ptr<Batch>& batch);

 private:
  struct End {
    std::shared_ptr<Batch> batch;
    std::byte* data = nullptr;
    size_t bytes = 0, whole = 0;
  };
  using Waiting = std::map<MessageKey, std::deque<End>>;

  /// The other end if it is there; otherwise this one waits.
  void come(Waiting& mine, Waiting& others, const MessageKey& key, End end, bool sends);

  std::mutex mutex_;
  std::condition_variable copied_;
  Waiting sends_, receives_;
  std::map<std::shared_ptr<Batch>, int> copying_;
};

}  // namespace piper
