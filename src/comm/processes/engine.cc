#include "comm/processes/engine.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/prompt_thread.h"
#include "comm/communicator.h"
#include "comm/processes/process_world.h"

namespace piper {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr size_t inline_bytes = 64 << 10;  // messages up to here travel in a control message
constexpr size_t window_bytes = 1 << 20;   // that may be on their way to this process at once
constexpr Clock::duration shortest_back_off = microseconds(10),
                          longest_back_off = microseconds(100);  // while somebody waits
constexpr Clock::duration idle_back_off = milliseconds(1);       // while nobody does
constexpr auto grace = seconds(3);                               // for pieces under way when their call is given up
constexpr auto farewell = seconds(10);                           // how long leaving waits for the others
constexpr size_t longest_reason = 8 << 10;
constexpr int launcher_gone_code = 3;
constexpr int about_heartbeat = 1;  // use of a control message

}  // namespace

/// Fixed part of every control message; what follows depends on the kind.
struct Engine::ControlMessage {
  enum class Kind : int32_t {
    Data,            // key, bytes, whole; the message
    RequestToSend,   // key, id, bytes, whole: a message that is too long for a control message
    ClearToSend,     // id, tag, offset, bytes: the receiver waits for this piece
    Refusal,         // id, tag: the message of a clear to send has been withdrawn
    DifferentSizes,  // id: of a request to send
    Abort,           // key.world; the reason
    Heartbeat,       // id: counts them; the block
    End,             // id: this process ends with that code
    Goodbye,         // nothing follows from this rank
  } kind;
  int32_t tag = 0;
  MessageKey key;
  int64_t id = 0;
  uint64_t offset = 0, bytes = 0, whole = 0;
};

std::shared_ptr<Engine> Engine::join(const MakeTransport& join, std::optional<milliseconds> timeout) {
  const std::shared_ptr<Engine> engine(new Engine);
  std::promise<void> joined, left;
  auto ready = joined.get_future();
  engine->left_ = left.get_future();
  engine->thread_ =
      std::thread([engine = engine.get(), join, joined = std::move(joined), left = std::move(left)]() mutable {
        engine->run(join, joined);
        left.set_value();
      });
  if (timeout && ready.wait_for(*timeout) == std::future_status::timeout) {
    static auto& left_behind = *new std::vector<std::shared_ptr<Engine>>;
    left_behind.push_back(engine);
    throw NobodyCame("the processes have not come together");
  }
  try {
    ready.get();
  } catch (...) {
    engine->thread_.join();
    throw;
  }
  return engine;
}

Engine::~Engine() {
  if (!thread_.joinable()) return;  // nobody was joined
  tell([this] { say_goodbye(); });
  if (left_.wait_for(2 * farewell) == std::future_status::timeout) {
    std::fprintf(stderr, "piper: %s does not end; this process ends without it\n", library_.c_str());
    end_process(0);
  }
  thread_.join();
}

// ---- Callers

void Engine::tell(std::function<void()> order) {
  const std::lock_guard lock(orders_mutex_);
  orders_.push_back(std::move(order));
  ordered_.notify_one();
}

std::shared_ptr<Batch> Engine::open(int world) {
  const std::lock_guard lock(calls_mutex_);
  if (hangs_) throw CommunicationError(library_ + " does not return from a call");
  if (!broken_.empty()) throw CommunicationError(broken_);
  if (const auto stopped = stopped_.find(world); stopped != stopped_.end()) throw JobStopped(stopped->second);
  return *open_.insert(std::make_shared<Batch>(world)).first;
}

void Engine::close(const std::shared_ptr<Batch>& batch) {
  if (!batch->all_complete()) {
    neighbours_.withdraw(batch);
    tell([this, batch] { withdraw(batch); });
    if (!hangs_ && !batch->wait_for_release(2 * grace)) hangs_ = true;
  }
  const std::lock_guard lock(calls_mutex_);
  open_.erase(batch);
}

Engine::MessagePointer Engine::message(const std::shared_ptr<Batch>& batch, int rank, const MessageKey& key,
                                       std::span<std::byte> data, size_t whole) {
  auto out = std::make_shared<Message>();
  out->batch = batch;
  out->key = key;
  out->rank = rank;
  out->data = data.data();
  out->bytes = data.size();
  out->whole = whole;
  return out;
}

void Engine::send(const std::shared_ptr<Batch>& batch, int rank, const MessageKey& key, std::span<const std::byte> data,
                  size_t whole) {
  batch->add();
  if (rank == rank_) return neighbours_.send(batch, key, data, whole);
  const std::span<std::byte> only_read(const_cast<std::byte*>(data.data()), data.size());
  tell([this, sent = message(batch, rank, key, only_read, whole)] { start_send(sent); });
}

void Engine::receive(const std::shared_ptr<Batch>& batch, int rank, const MessageKey& key, std::span<std::byte> data,
                     size_t whole) {
  batch->add();
  if (rank == rank_) return neighbours_.receive(batch, key, data, whole);
  tell([this, received = message(batch, rank, key, data, whole)] { start_receive(received); });
}

void Engine::abort(int world, const std::string& reason) {
  stop_world(world, reason);
  tell([this, world, reason = reason.substr(0, longest_reason)] {
    ControlMessage control{.kind = ControlMessage::Kind::Abort, .key = {}};
    control.key.world = world;
    for (int to = 0; to < ranks_; ++to)
      if (to != rank_) write(to, control, std::as_bytes(std::span(reason)));
  });
}

void Engine::stop_world(int world, const std::string& reason) {
  const std::lock_guard lock(calls_mutex_);
  if (!stopped_.emplace(world, reason.empty() ? "stopped" : reason).second) return;
  for (const auto& batch : open_)
    if (batch->world() == world) batch->stop(reason);
}

std::optional<Communicator::Trouble> Engine::trouble(int world) {
  const std::lock_guard lock(calls_mutex_);
  if (!broken_.empty()) return Communicator::Trouble{broken_, false};
  if (const auto stopped = stopped_.find(world); stopped != stopped_.end())
    return Communicator::Trouble{stopped->second, true};
  return {};
}

void Engine::post(std::string block, World::To to) {
  if (block.size() > inline_bytes) throw std::length_error("a block about a process is too long");
  {
    const std::lock_guard lock(calls_mutex_);
    heartbeats_[static_cast<size_t>(rank_)] = {block, Clock::now()};
  }
  tell([this, block = std::move(block), to] {
    ++posts_;
    for (int rank = 0; rank < (to == World::To::Everybody ? ranks_ : 1); ++rank)
      if (rank != rank_) {
        heartbeats_out_[static_cast<size_t>(rank)].next = block;
        send_news(rank);
      }
  });
}

std::vector<PeerHeartbeat> Engine::heartbeats() {
  const std::lock_guard lock(calls_mutex_);
  return heartbeats_;
}

void Engine::end_everywhere(int code) {
  tell([this, code] {
    for (int to = 0; to < ranks_; ++to)
      if (to != rank_) write(to, {.kind = ControlMessage::Kind::End, .key = {}, .id = code});
    for (const auto until = Clock::now() + milliseconds(50); broken_.empty() && Clock::now() < until;) {
      transport_->poll(events_);
      std::this_thread::sleep_for(milliseconds(1));
    }
    transport_->abort(code);
  });
  std::this_thread::sleep_for(seconds(3));
  launcher_.end(true);  // it cannot reach the others
  end_process(code);    // the engine hangs in a call
}

/// Without destructors: other threads are in the middle of something.
void Engine::end_process(int code) {
  launcher_.end(false);
  std::fflush(nullptr);
  std::_Exit(code);
}

// ---- The thread

void Engine::run(const MakeTransport& join, std::promise<void>& joined) {
  make_thread_prompt();
  try {
    transport_ = join();
    rank_ = transport_->rank();
    ranks_ = transport_->ranks();
    library_ = transport_->library();
    heartbeats_.assign(static_cast<size_t>(ranks_), {"", Clock::now()});
    heartbeats_out_.resize(static_cast<size_t>(ranks_));
    heartbeats_seen_.resize(static_cast<size_t>(ranks_));
  } catch (...) {
    joined.set_exception(std::current_exception());
    return;
  }
  joined.set_value();
  work();
  transport_.reset();
}

void Engine::work() {
  Clock::time_point leave_by = Clock::time_point::max();
  while (true) {
    bool moved = false;
    try {
      moved = do_as_told();
      if (broken_.empty()) {
        events_.clear();
        transport_->poll(events_);
        for (const Transport::Event& event : events_) handle(event);
        moved |= !events_.empty();
        clear_pieces();
        send_granted();
      }
    } catch (const std::exception& problem) {
      break_off(problem.what());
    }
    const auto now = Clock::now();
    if (now > launcher_seen_ + milliseconds(500)) {
      launcher_seen_ = now;
      if (launcher_.gone()) {
        std::fputs("piper: what has started this process is gone; it ends too\n", stderr);
        end_process(launcher_gone_code);
      }
    }
    for (const auto& [batch, since] : leaving_)
      if (now > since + grace) {
        break_off("a peer cannot be reached");
        break;
      }
    if (leaving_job_) {
      if (broken_.empty() && static_cast<int>(goodbyes_.size()) == ranks_ - 1 && !transport_->busy())
        return transport_->finish();
      leave_by = std::min(leave_by, now + farewell);
      if (!broken_.empty() || now > leave_by) return;
    }
    back_off(moved);
  }
}

bool Engine::do_as_told() {
  std::vector<std::function<void()>> orders;
  {
    const std::lock_guard lock(orders_mutex_);
    orders.swap(orders_);
  }
  for (const auto& order : orders) order();
  return !orders.empty();
}

/// An order ends it. Half as long as the last after something has happened, a quarter longer after nothing has: some
/// four looks for each thing, however fast the transport is. Long messages then cost a core little, and short ones are
/// met at once.
void Engine::back_off(bool moved) {
  const bool waiting =
      transport_->busy() || !expected_.empty() || !requested_.empty() || !incoming_.empty() || leaving_job_;
  back_off_ = waiting ? std::clamp(moved ? back_off_ / 2 : back_off_ * 5 / 4, shortest_back_off, longest_back_off)
                      : shortest_back_off;
  std::unique_lock lock(orders_mutex_);
  ordered_.wait_until(lock, Clock::now() + (waiting ? back_off_ : idle_back_off), [&] { return !orders_.empty(); });
}

void Engine::handle(const Transport::Event& event) {
  switch (event.kind) {
    case Transport::Event::Kind::ControlCame:
      is_alive(event.rank);
      handle_control(event.rank, event.control);
      break;
    case Transport::Event::Kind::ControlSent:
      if (event.use == about_heartbeat) {
        heartbeats_out_[static_cast<size_t>(event.rank)].sending = false;
        send_news(event.rank);
      }
      break;
    case Transport::Event::Kind::Gone:
      if (!goodbyes_.contains(event.rank))
        throw CommunicationError("rank " + std::to_string(event.rank) + " is gone: " + event.problem);
      break;
    case Transport::Event::Kind::PieceDone:
    case Transport::Event::Kind::PieceCancelled:
      end_piece(*static_cast<Message*>(event.piece), event);
  }
}

void Engine::write(int to, const ControlMessage& control, std::span<const std::byte> data, int use) {
  if (!broken_.empty()) return;
  std::vector<std::byte> bytes(sizeof control + data.size());
  std::memcpy(bytes.data(), &control, sizeof control);
  std::copy(data.begin(), data.end(), bytes.begin() + sizeof control);
  transport_->send_control(to, std::move(bytes), use);
}

void Engine::handle_control(int from, std::span<const std::byte> bytes) {
  static_assert(sizeof(ControlMessage) + inline_bytes <= Transport::longest_control);
  ControlMessage control;
  std::memcpy(&control, bytes.data(), sizeof control);
  const auto data = bytes.subspan(sizeof control);
  const auto text = [&] { return std::string(reinterpret_cast<const char*>(data.data()), data.size()); };
  switch (control.kind) {
    case ControlMessage::Kind::Data:
    case ControlMessage::Kind::RequestToSend:
      return arrive({control.key, from, control.id, control.bytes, control.whole},
                    control.kind == ControlMessage::Kind::Data, data);
    case ControlMessage::Kind::ClearToSend:
      return cleared(from, control);
    case ControlMessage::Kind::Refusal:
      return refused(from, control);
    case ControlMessage::Kind::DifferentSizes:
      if (const auto found = requested_.find(control.id); found != requested_.end())
        found->second->batch->fail(different_sizes);
      return;
    case ControlMessage::Kind::Abort:
      return stop_world(control.key.world, text());
    case ControlMessage::Kind::Heartbeat: {
      int64_t& newest = heartbeats_seen_[static_cast<size_t>(from)];
      if (control.id <= newest) return;
      newest = control.id;
      const std::lock_guard lock(calls_mutex_);
      heartbeats_[static_cast<size_t>(from)] = {text(), Clock::now()};
      return;
    }
    case ControlMessage::Kind::End:
      end_process(static_cast<int>(control.id));
    case ControlMessage::Kind::Goodbye:
      goodbyes_.insert(from);
  }
}

// ---- Messages

void Engine::start_send(const MessagePointer& message) {
  if (!broken_.empty()) return;  // its batch has failed
  ControlMessage control{
      .kind = ControlMessage::Kind::Data, .key = message->key, .bytes = message->bytes, .whole = message->whole};
  if (message->bytes <= inline_bytes) {
    write(message->rank, control, {message->data, message->bytes});
    message->batch->complete();
    return;
  }
  control.kind = ControlMessage::Kind::RequestToSend;
  control.id = message->id = ++next_id_;
  requested_[message->id] = message;
  write(message->rank, control);
}

void Engine::start_receive(const MessagePointer& message) {
  if (!broken_.empty()) return;
  const auto found = arrived_.find(message->key);
  if (found == arrived_.end()) {
    expected_[message->key].push_back(message);
    return;
  }
  const Early early = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty()) arrived_.erase(found);
  meet(message, early.arrival, early.complete, early.data);
}

void Engine::arrive(const Arrival& arrival, bool complete, std::span<const std::byte> data) {
  pieces_moved_.fetch_add(1, std::memory_order_relaxed);
  const auto found = expected_.find(arrival.key);
  if (found == expected_.end()) {
    arrived_[arrival.key].push_back({arrival, complete, {data.begin(), data.end()}});
    return;
  }
  const MessagePointer message = found->second.front();
  found->second.pop_front();
  if (found->second.empty()) expected_.erase(found);
  meet(message, arrival, complete, data);
}

void Engine::meet(const MessagePointer& message, const Arrival& arrival, bool complete,
                  std::span<const std::byte> data) {
  if (arrival.bytes != message->bytes || arrival.whole != message->whole) {
    message->batch->fail(different_sizes);
    if (!complete) write(arrival.rank, {.kind = ControlMessage::Kind::DifferentSizes, .key = {}, .id = arrival.id});
    return;
  }
  if (complete) {
    std::copy(data.begin(), data.end(), message->data);
    message->batch->complete();
    return;
  }
  message->id = arrival.id;
  do next_tag_ = next_tag_ % transport_->highest_tag() + 1;
  while (incoming_.contains(next_tag_));
  message->tag = next_tag_;
  incoming_[message->tag] = message;
  to_clear_.push_back(message);
}

/// Messages take turns, so that all senders are kept busy; what is under way is limited, so that they do not crowd the
/// last link.
void Engine::clear_pieces() {
  while (!to_clear_.empty() && cleared_bytes_ < window_bytes) {
    const MessagePointer message = to_clear_.front();
    to_clear_.pop_front();
    const size_t bytes = std::min(Transport::longest_piece, message->bytes - message->cleared);
    transport_->receive_piece(message->rank, message->tag, {message->data + message->cleared, bytes}, message.get());
    write(message->rank, {.kind = ControlMessage::Kind::ClearToSend,
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

void Engine::cleared(int from, const ControlMessage& control) {
  const auto found = requested_.find(control.id);
  if (found == requested_.end())
    return write(from, {.kind = ControlMessage::Kind::Refusal, .tag = control.tag, .key = {}, .id = control.id});
  to_send_.push_back({found->second, control.tag, control.offset, control.bytes});
}

/// After our own clearances: they would wait on the connection behind these pieces, and the other direction would be
/// idle.
void Engine::send_granted() {
  for (const Piece& piece : to_send_) {
    Message& message = *piece.message;
    transport_->send_piece(message.rank, piece.tag, {message.data + piece.offset, piece.bytes}, &message);
    ++message.pieces;
    in_use_[&message] = piece.message;
  }
  to_send_.clear();
}

void Engine::refused(int from, const ControlMessage& control) {
  const auto found = incoming_.find(control.tag);
  if (found == incoming_.end() || found->second->rank != from || found->second->id != control.id) return;
  std::erase(to_clear_, found->second);
  transport_->cancel_receives(found->second.get());
}

void Engine::end_piece(Message& message, const Transport::Event& event) {
  const MessagePointer keep = in_use_.at(&message);
  const bool receives = message.tag != 0;
  if (receives) {
    cleared_bytes_ -= event.bytes;
    is_alive(message.rank);
  }
  pieces_moved_.fetch_add(1, std::memory_order_relaxed);
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
}

void Engine::forget(const MessagePointer& message) {
  if (message->tag != 0)
    incoming_.erase(message->tag);
  else
    requested_.erase(message->id);
}

/// The call has given up: whatever is not under way stays where it is, the rest ends soon.
void Engine::withdraw(const std::shared_ptr<Batch>& batch) {
  const auto of_batch = [&](const MessagePointer& message) { return message->batch == batch; };
  for (auto& [key, messages] : expected_) std::erase_if(messages, of_batch);
  std::erase_if(expected_, [](const auto& entry) { return entry.second.empty(); });
  std::erase_if(requested_, [&](const auto& entry) { return of_batch(entry.second); });
  std::erase_if(to_clear_, of_batch);
  std::erase_if(incoming_, [&](const auto& entry) { return of_batch(entry.second) && entry.second->pieces == 0; });
  for (auto& [address, message] : in_use_)
    if (of_batch(message)) message->withdrawn = true;
  leaving_[batch] = Clock::now();
  release_if_unused(batch);
}

void Engine::release_if_unused(const std::shared_ptr<Batch>& batch) {
  for (const auto& [address, message] : in_use_)
    if (message->batch == batch) return;
  leaving_.erase(batch);
  batch->release();
}

void Engine::is_alive(int rank) {
  const std::lock_guard lock(calls_mutex_);
  heartbeats_[static_cast<size_t>(rank)].when = Clock::now();
}

void Engine::send_news(int to) {
  Heartbeat& heartbeat = heartbeats_out_[static_cast<size_t>(to)];
  if (heartbeat.sending || !heartbeat.next) return;
  write(to, {.kind = ControlMessage::Kind::Heartbeat, .key = {}, .id = posts_},
        std::as_bytes(std::span(*heartbeat.next)), about_heartbeat);
  heartbeat.sending = true;
  heartbeat.next.reset();
}

/// The transport is not called any more, so it does not touch memory that callers take back.
void Engine::break_off(const std::string& reason) {
  const std::lock_guard lock(calls_mutex_);
  if (broken_.empty()) broken_ = reason;
  for (const auto& batch : open_) {
    batch->fail(reason);
    batch->release();
  }
  leaving_.clear();
}

void Engine::say_goodbye() {
  leaving_job_ = true;
  for (int to = 0; to < ranks_; ++to)
    if (to != rank_) write(to, {.kind = ControlMessage::Kind::Goodbye, .key = {}});
}

}  // namespace piper
