// A call's messages. When it ends, complete or not, its memory is the caller's again.
#pragma once

#include "comm/processes/engine.h"

namespace piper {

class Messages {
 public:
  Messages(Engine& engine, int world, std::chrono::milliseconds timeout)
      : engine_(engine), timeout_(timeout), batch_(engine.open(world)) {}
  ~Messages() { engine_.close(batch_); }
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  /// `whole` is the size of what the message is a part of; it must be the same at both ends too.
  void send(int rank, const MessageKey& key, std::span<const std::byte> data, size_t whole) {
    engine_.send(batch_, rank, key, data, whole);
  }
  void receive(int rank, const MessageKey& key, std::span<std::byte> data, size_t whole) {
    engine_.receive(batch_, rank, key, data, whole);
  }
  void wait() { batch_->wait(timeout_); }

 private:
  Engine& engine_;
  std::chrono::milliseconds timeout_;
  std::shared_ptr<Batch> batch_;
};

}  // namespace piper
