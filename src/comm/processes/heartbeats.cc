#include "comm/processes/heartbeats.h"

#include <utility>

#include "comm/processes/control_message.h"

namespace piper {

Heartbeats::Heartbeats(Transport& transport)
    : transport_(transport),
      rank_(transport.rank()),
      ranks_(transport.ranks()),
      outgoing_(static_cast<size_t>(ranks_)),
      newest_(static_cast<size_t>(ranks_)),
      heard_(static_cast<size_t>(ranks_), PeerHeartbeat{"", Clock::now()}) {}

std::vector<PeerHeartbeat> Heartbeats::all() const {
  const std::lock_guard lock(mutex_);
  return heard_;
}

void Heartbeats::set_own(std::string block) {
  const std::lock_guard lock(mutex_);
  heard_[static_cast<size_t>(rank_)] = {std::move(block), Clock::now()};
}

void Heartbeats::post(const std::string& block, World::To to) {
  ++posts_;
  for (int rank = 0; rank < (to == World::To::Everybody ? ranks_ : 1); ++rank)
    if (rank != rank_) {
      outgoing_[static_cast<size_t>(rank)].next = block;
      send_next(rank);
    }
}

void Heartbeats::sent(int to) {
  outgoing_[static_cast<size_t>(to)].sending = false;
  send_next(to);
}

void Heartbeats::send_next(int to) {
  Outgoing& outgoing = outgoing_[static_cast<size_t>(to)];
  if (outgoing.sending || !outgoing.next) return;
  send_control(transport_, to, {.kind = ControlMessage::Kind::Heartbeat, .key = {}, .id = posts_},
               std::as_bytes(std::span(*outgoing.next)), about_heartbeat);
  outgoing.sending = true;
  outgoing.next.reset();
}

void Heartbeats::came(int from, int64_t sequence, std::string block) {
  int64_t& newest = newest_[static_cast<size_t>(from)];
  if (sequence <= newest) return;
  newest = sequence;
  const std::lock_guard lock(mutex_);
  heard_[static_cast<size_t>(from)] = {std::move(block), Clock::now()};
}

void Heartbeats::is_alive(int rank) {
  const std::lock_guard lock(mutex_);
  heard_[static_cast<size_t>(rank)].when = Clock::now();
}

}  // namespace piper
