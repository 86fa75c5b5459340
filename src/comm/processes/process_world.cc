#include "comm/processes/process_world.h"

#include <algorithm>
#include <utility>

#include "comm/processes/messages.h"
#include "comm/processes/process_communicator.h"

namespace piper {
namespace {

// Outside of worlds: messages between ranks.
constexpr int outside = 0;
constexpr auto shortest_timeout = std::chrono::milliseconds(50);  // for what has come already
constexpr int32_t size_step = 0, data_step = 1;
enum Talk : int32_t { Broadcast = -2, Gather = -3 };

/// Bytes that the receiver does not know the number of: first that, then they.
struct Letter {
  MessageKey key;
  int peer;
};
/// Says who did not come.
template <class Exchange>
auto with(const Letter& letter, Exchange exchange) {
  try {
    return exchange();
  } catch (const JobStopped&) {
    throw;
  } catch (const CommunicationError& problem) {
    throw CommunicationError("rank " + std::to_string(letter.peer) + " does not answer: " + problem.what());
  }
}
void send(Engine& engine, const Letter& letter, const std::string& bytes, std::chrono::milliseconds timeout) {
  const uint64_t size = bytes.size();
  MessageKey key = letter.key;
  Messages messages(engine, outside, timeout);
  key.step = size_step;
  messages.send(letter.peer, key, std::as_bytes(std::span(&size, 1)), sizeof size);
  key.step = data_step;
  messages.send(letter.peer, key, std::as_bytes(std::span(bytes)), bytes.size());
  messages.wait();
}
std::string receive(Engine& engine, const Letter& letter, std::chrono::milliseconds timeout) {
  uint64_t size = 0;
  MessageKey key = letter.key;
  key.step = size_step;
  {
    Messages messages(engine, outside, timeout);
    messages.receive(letter.peer, key, std::as_writable_bytes(std::span(&size, 1)), sizeof size);
    messages.wait();
  }
  std::string bytes(size, '\0');
  key.step = data_step;
  Messages messages(engine, outside, timeout);
  messages.receive(letter.peer, key, std::as_writable_bytes(std::span(bytes)), bytes.size());
  messages.wait();
  return bytes;
}

}  // namespace

ProcessWorld::ProcessWorld(const MakeTransport& join, std::optional<std::chrono::milliseconds> timeout)
    : engine_(Engine::join(join, timeout)) {}
ProcessWorld::~ProcessWorld() = default;

int ProcessWorld::rank() const {
  return engine_->rank();
}
int ProcessWorld::ranks() const {
  return engine_->ranks();
}
const std::string& ProcessWorld::library() const {
  return engine_->library();
}

std::vector<std::unique_ptr<Communicator>> ProcessWorld::make(int devices, std::chrono::milliseconds timeout) {
  const int world = ++worlds_;
  const DeviceBlock here = devices_of(rank(), ranks(), devices);
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (int device = here.first; device < here.first + here.count; ++device)
    communicators.push_back(make_process_communicator(engine_, world, devices, device, timeout));
  return communicators;
}

/// Along a binomial tree: a rank that has the bytes hands them to the one half of its span away, then a quarter, …
std::string ProcessWorld::broadcast(std::string bytes, std::chrono::milliseconds timeout) {
  const int sequence = broadcasts_++;
  const auto letter = [&](int from, int to) {
    return Letter{{outside, Broadcast, from, to, 0, sequence}, from == rank() ? to : from};
  };
  int span = 1;
  while (rank() % (2 * span) == 0 && span < ranks()) span *= 2;
  if (rank() != 0) {
    const Letter from = letter(rank() - span, rank());
    bytes = with(from, [&] { return receive(*engine_, from, timeout); });
  }
  for (int step = span / 2; step > 0; step /= 2)
    if (rank() + step < ranks()) {
      const Letter to = letter(rank(), rank() + step);
      with(to, [&] { send(*engine_, to, bytes, timeout); });
    }
  return bytes;
}

std::vector<std::optional<std::string>> ProcessWorld::gather(const std::string& bytes,
                                                             std::chrono::milliseconds timeout) {
  const int sequence = gathers_++;
  if (rank() != 0) {
    const Letter to{{outside, Gather, rank(), 0, 0, sequence}, 0};
    with(to, [&] { send(*engine_, to, bytes, timeout); });
    return {};
  }
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  std::vector<std::optional<std::string>> all = {bytes};
  for (int from = 1; from < ranks(); ++from) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    try {
      all.push_back(
          receive(*engine_, {{outside, Gather, from, 0, 0, sequence}, from}, std::max(left, shortest_timeout)));
    } catch (const CommunicationError&) {
      all.emplace_back();
    }
  }
  return all;
}

void ProcessWorld::post(std::string block, To to) {
  engine_->post(std::move(block), to);
}
std::vector<PeerHeartbeat> ProcessWorld::heartbeats() const {
  return engine_->heartbeats();
}
int64_t ProcessWorld::moved() const {
  return engine_->moved();
}
std::vector<int> ProcessWorld::lost() const {
  return engine_->lost();
}
void ProcessWorld::leave() {
  engine_->leave();
}
void ProcessWorld::end_everywhere(int code) {
  engine_->end_everywhere(code);
}

}  // namespace piper
