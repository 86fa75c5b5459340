// The processes that write a checkpoint together, and what they tell each other about it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/world.h"

namespace piper {

/// All processes call its members in the same order, each on one thread at a time. Throws CommunicationError.
class Writers {
 public:
  /// This process alone.
  Writers() = default;
  /// `ranks`: one device for each process.
  Writers(const World& world, std::shared_ptr<Communicator> ranks);

  int rank() const { return rank_; }
  int count() const { return count_; }
  bool first() const { return rank_ == 0; }
  int rank_of(int device, int devices) const;

  /// The text of rank 0, everywhere.
  std::string broadcast(std::string text);
  /// At rank 0 the texts of all, elsewhere nothing.
  std::vector<std::string> gather(const std::string& text);
  /// What went wrong at the first process of those that have a problem, everywhere; empty: all is well.
  std::string any_problem(const std::string& here);

  /// Bytes from one to another; `sequence` is below 2^60, and unique for each pair of processes.
  void send(int to, int64_t sequence, std::span<const std::byte> bytes);
  void receive(int from, int64_t sequence, std::span<std::byte> bytes);

 private:
  void send_text(int to, int64_t sequence, const std::string& text);
  std::string receive_text(int from, int64_t sequence);
  int64_t next();

  std::shared_ptr<Communicator> ranks_;
  std::string name_;
  int rank_ = 0, count_ = 1;
  int64_t said_ = 0;
};

}  // namespace piper
