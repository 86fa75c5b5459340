#include "train/loop/checkpoint/writers.h"

#include <fmt/format.h>

#include "comm/processes/process_world.h"
#include "train/loop/together.h"

namespace piper {

Writers::Writers(const World& world, std::shared_ptr<Communicator> ranks)
    : ranks_(std::move(ranks)), name_(name_of_process(world)), rank_(world.rank()), count_(world.ranks()) {}

int Writers::rank_of(int device, int devices) const {
  return ranks_ ? piper::rank_of(device, count_, devices) : 0;
}

/// Texts have numbers beyond those of bytes: one for the size, one for the text.
int64_t Writers::next() {
  return (int64_t{1} << 60) + 2 * said_++;
}

void Writers::send(int to, int64_t sequence, std::span<const std::byte> bytes) {
  ranks_->send(to, sequence, bytes);
}

void Writers::receive(int from, int64_t sequence, std::span<std::byte> bytes) {
  ranks_->receive(from, sequence, bytes);
}

void Writers::send_text(int to, int64_t sequence, const std::string& text) {
  const size_t size = text.size();
  ranks_->send(to, sequence, std::as_bytes(std::span(&size, 1)));
  if (size > 0) ranks_->send(to, sequence + 1, std::as_bytes(std::span(text)));
}

std::string Writers::receive_text(int from, int64_t sequence) {
  size_t size = 0;
  ranks_->receive(from, sequence, std::as_writable_bytes(std::span(&size, 1)));
  std::string text(size, '\0');
  if (size > 0) ranks_->receive(from, sequence + 1, std::as_writable_bytes(std::span(text)));
  return text;
}

std::string Writers::broadcast(std::string text) {
  const int64_t sequence = next();
  if (!first()) return receive_text(0, sequence);
  for (int rank = 1; rank < count_; ++rank) send_text(rank, sequence, text);
  return text;
}

std::vector<std::string> Writers::gather(const std::string& text) {
  const int64_t sequence = next();
  if (!first()) {
    send_text(0, sequence, text);
    return {};
  }
  std::vector<std::string> out = {text};
  for (int rank = 1; rank < count_; ++rank) out.push_back(receive_text(rank, sequence));
  return out;
}

std::string Writers::any_problem(const std::string& here) {
  std::string first_one;
  const std::string mine = here.empty() || count_ == 1 ? here : fmt::format("{}: {}", name_, here);
  for (const std::string& problem : gather(mine))
    if (first_one.empty()) first_one = problem;
  return broadcast(first_one);
}

}  // namespace piper
