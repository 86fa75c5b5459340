#include "comm/processes/rendezvous.h"

#include <algorithm>
#include <string>
#include <utility>

namespace piper {
namespace {

constexpr size_t window_bytes = 1 << 20;  // that may be on their way to this process at once

}  // namespace

void Rendezvous::send(const std::shared_ptr<Batch>& batch, int rank, const MessageKey& key,
                      std::span<const std::byte> data, size_t whole) {
  ControlMessage control{.kind = ControlMessage::Kind::Data, .key = key, .bytes = data.size(), .whole = whole};
  if (data.size() <= inline_bytes) {
    send_control(transport_, rank, control, data);
    batch->complete();
    return;
  }
  control.kind = ControlMessage::Kind::RequestToSend;
  control.id = ++next_id_;
  requested_[control.id] = std::make_shared<Message>(Message{.batch = batch,
                                                             .key = key,
                                                             .rank = rank,
                                                             .data = const_cast<std::byte*>(data.data()),
                                                             .bytes = data.size(),
                                                             .whole = whole,
                                                             .id = control.id});
  send_control(transport_, rank, control);
}

void Rendezvous::receive(const std::shared_ptr<Batch>& batch, int rank, const MessageKey& key,
                         std::span<std::byte> data, size_t whole) {
  const auto message = std::make_shared<Message>(
      Message{.batch = batch, .key = key, .rank = rank, .data = data.data(), .bytes = data.size(), .whole = whole});
  const auto found = arrived_.find(key);
  if (found == arrived_.end()) {
    expected_[key].push_back(message);
    return;
  }
  const Early early = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty()) arrived_.erase(found);
  meet(message, early.arrival, early.data);
}

void Rendezvous::handle(int from, const ReceivedControl& received) {
  const ControlMessage& control = received.control;
  switch (control.kind) {
    case ControlMessage::Kind::ClearToSend:
      return cleared(from, control);
    case ControlMessage::Kind::Refusal:
      return refused(from, control);
    case ControlMessage::Kind::DifferentSizes:
      if (const auto found = requested_.find(control.id); found != requested_.end())
        found->second->batch->fail(different_sizes);
      return;
    default:
      return arrive(
          {control.key, from, control.id, control.bytes, control.whole, control.kind == ControlMessage::Kind::Data},
          received.data);
  }
}

void Rendezvous::arrive(const Arrival& arrival, std::span<const std::byte> data) {
  moved_.fetch_add(1, std::memory_order_relaxed);
  const auto found = expected_.find(arrival.key);
  if (found == expected_.end()) {
    arrived_[arrival.key].push_back({arrival, {data.begin(), data.end()}});
    return;
  }
  const MessagePointer message = found->second.front();
  found->second.pop_front();
  if (found->second.empty()) expected_.erase(found);
  meet(message, arrival, data);
}

void Rendezvous::meet(const MessagePointer& message, const Arrival& arrival, std::span<const std::byte> data) {
  if (arrival.bytes != message->bytes || arrival.whole != message->whole) {
    message->batch->fail(different_sizes);
    if (!arrival.complete)
      send_control(transport_, arrival.rank,
                   {.kind = ControlMessage::Kind::DifferentSizes, .key = {}, .id = arrival.id});
    return;
  }
  if (arrival.complete) {
    std::copy(data.begin(), data.end(), message->data);
    message->batch->complete();
    return;
  }
  message->id = arrival.id;
  do next_tag_ = next_tag_ % transport_.highest_tag() + 1;
  while (incoming_.contains(next_tag_));
  message->tag = next_tag_;
  incoming_[message->tag] = message;
  to_clear_.push_back(message);
}

void Rendezvous::cleared(int from, const ControlMessage& control) {
  const auto found = requested_.find(control.id);
  if (found == requested_.end())
    return send_control(transport_, from,
                        {.kind = ControlMessage::Kind::Refusal, .tag = control.tag, .key = {}, .id = control.id});
  to_send_.push_back({found->second, control.tag, control.offset, control.bytes});
}

void Rendezvous::refused(int from, const ControlMessage& control) {
  const auto found = incoming_.find(control.tag);
  if (found == incoming_.end() || found->second->rank != from || found->second->id != control.id) return;
  std::erase(to_clear_, found->second);
  transport_.cancel_receives(found->second.get());
}

/// Our own clearances first: they would wait on the connection behind the pieces, and the other direction would be
/// idle.
void Rendezvous::start_pieces() {
  clear_pieces();
  send_cleared();
}

/// Messages take turns, so that all senders are kept busy; what is in progress is limited, so that they do not crowd
/// the last link.
void Rendezvous::clear_pieces() {
  while (!to_clear_.empty() && cleared_bytes_ < window_bytes) {
    const MessagePointer message = to_clear_.front();
    to_clear_.pop_front();
    const size_t bytes = std::min(Transport::longest_piece, message->bytes - message->cleared);
    transport_.receive_piece(message->rank, message->tag, {message->data + message->cleared, bytes}, message.get());
    send_control(transport_, message->rank,
                 {.kind = ControlMessage::Kind::ClearToSend,
                  .tag = message->tag,
                  .key = {},
                  .id = message->id,
                  .offset = message->cleared,
                  .bytes = bytes});
    ++message->pieces;
    in_use_[message.get()] = message;
    cleared_bytes_ += bytes;
    message->cleared += bytes;
    if (message->cleared < message->bytes) to_clear_.push_back(message);
  }
}

void Rendezvous::send_cleared() {
  for (const Piece& piece : to_send_) {
    Message& message = *piece.message;
    transport_.send_piece(message.rank, piece.tag, {message.data + piece.offset, piece.bytes}, &message);
    ++message.pieces;
    in_use_[&message] = piece.message;
  }
  to_send_.clear();
}

std::optional<int> Rendezvous::end_piece(const Transport::Event& event) {
  const MessagePointer keep = in_use_.at(static_cast<Message*>(event.piece));
  Message& message = *keep;
  const bool receives = message.tag != 0;
  if (receives) cleared_bytes_ -= event.bytes;
  moved_.fetch_add(1, std::memory_order_relaxed);
  if (--message.pieces == 0) in_use_.erase(&message);
  if (!event.problem.empty()) {
    message.batch->fail("the connection to rank " + std::to_string(message.rank) + " failed: " + event.problem);
  } else if (event.kind == Transport::Event::Kind::PieceDone) {
    message.moved += event.bytes;
    if (message.moved == message.bytes) {
      forget(keep);
      if (!message.withdrawn) message.batch->complete();
    } else {
      message.batch->moved();
    }
  }
  if (message.withdrawn && message.pieces == 0) {
    forget(keep);
    release_if_unused(message.batch);
  }
  return receives ? std::optional(message.rank) : std::nullopt;
}

void Rendezvous::forget(const MessagePointer& message) {
  if (message->tag != 0)
    incoming_.erase(message->tag);
  else
    requested_.erase(message->id);
}

void Rendezvous::withdraw(const std::shared_ptr<Batch>& batch) {
  const auto of_batch = [&](const MessagePointer& message) { return message->batch == batch; };
  for (auto& [key, messages] : expected_) std::erase_if(messages, of_batch);
  std::erase_if(expected_, [](const auto& entry) { return entry.second.empty(); });
  std::erase_if(requested_, [&](const auto& entry) { return of_batch(entry.second); });
  std::erase_if(to_clear_, of_batch);
  std::erase_if(incoming_, [&](const auto& entry) { return of_batch(entry.second) && entry.second->pieces == 0; });
  for (auto& [address, message] : in_use_)
    if (of_batch(message)) message->withdrawn = true;
  withdrawn_[batch] = Clock::now();
  release_if_unused(batch);
}

void Rendezvous::release_if_unused(const std::shared_ptr<Batch>& batch) {
  for (const auto& [address, message] : in_use_)
    if (message->batch == batch) return;
  withdrawn_.erase(batch);
  batch->release();
}

bool Rendezvous::is_overdue() const {
  const auto now = Clock::now();
  return std::any_of(withdrawn_.begin(), withdrawn_.end(),
                     [&](const auto& entry) { return now > entry.second + grace; });
}

}  // namespace piper
