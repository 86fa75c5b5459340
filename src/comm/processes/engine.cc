#include "comm/processes/engine.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "base/prompt_thread.h"
#include "comm/communicator.h"
#include "comm/processes/process_world.h"

namespace piper {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Clock::duration shortest_back_off = microseconds(10),
                          longest_back_off = microseconds(100);  // while somebody waits
constexpr Clock::duration idle_back_off = milliseconds(1);       // while nobody does
constexpr auto farewell = seconds(10);                           // how long leaving waits for the others
constexpr size_t longest_reason = 8 << 10;
constexpr int launcher_gone_code = 3;

}  // namespace

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
  order([this] {
    leaving_job_ = true;
    tell_all({.kind = ControlMessage::Kind::Goodbye, .key = {}});
  });
  if (left_.wait_for(2 * farewell) == std::future_status::timeout) {
    std::fprintf(stderr, "piper: %s does not end; this process ends without it\n", library_.c_str());
    end_process(0);
  }
  thread_.join();
}

// ---- Callers

void Engine::order(std::function<void()> what) {
  const std::lock_guard lock(orders_mutex_);
  orders_.push_back(std::move(what));
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
    order([this, batch] { rendezvous_->withdraw(batch); });
    if (!hangs_ && !batch->wait_for_release(2 * Rendezvous::grace)) hangs_ = true;
  }
  const std::lock_guard lock(calls_mutex_);
  open_.erase(batch);
}

void Engine::send(const std::shared_ptr<Batch>& batch, int rank, const MessageKey& key, std::span<const std::byte> data,
                  size_t whole) {
  batch->add();
  if (rank == rank_) return neighbours_.send(batch, key, data, whole);
  order([=, this] {
    if (broken_.empty()) rendezvous_->send(batch, rank, key, data, whole);  // otherwise the batch has failed
  });
}

void Engine::receive(const std::shared_ptr<Batch>& batch, int rank, const MessageKey& key, std::span<std::byte> data,
                     size_t whole) {
  batch->add();
  if (rank == rank_) return neighbours_.receive(batch, key, data, whole);
  order([=, this] {
    if (broken_.empty()) rendezvous_->receive(batch, rank, key, data, whole);
  });
}

void Engine::abort(int world, const std::string& reason) {
  stop_world(world, reason);
  order([this, world, reason = reason.substr(0, longest_reason)] {
    ControlMessage control{.kind = ControlMessage::Kind::Abort, .key = {}};
    control.key.world = world;
    tell_all(control, std::as_bytes(std::span(reason)));
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
  heartbeats_->set_own(block);
  order([this, block = std::move(block), to] {
    if (broken_.empty()) heartbeats_->post(block, to);
  });
}

std::vector<int> Engine::lost() const {
  const std::lock_guard lock(calls_mutex_);
  return lost_;
}

void Engine::leave() {
  order([this] { break_off("this process has left the others"); });
}

void Engine::end_everywhere(int code) {
  order([this, code] {
    tell_all({.kind = ControlMessage::Kind::End, .key = {}, .id = code});
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
    rendezvous_.emplace(*transport_);
    heartbeats_.emplace(*transport_);
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
        rendezvous_->start_pieces();
      }
    } catch (const std::exception& problem) {
      break_off(problem.what());
    }
    look_for_launcher();
    if (rendezvous_->is_overdue()) break_off("a peer cannot be reached");
    if (leaving_job_) {
      if (broken_.empty() && static_cast<int>(goodbyes_.size()) == ranks_ - 1 && !transport_->busy())
        return transport_->finish();
      leave_by = std::min(leave_by, Clock::now() + farewell);
      if (!broken_.empty() || Clock::now() > leave_by) return;
    }
    back_off(moved);
  }
}

void Engine::look_for_launcher() {
  if (Clock::now() <= launcher_seen_ + milliseconds(500)) return;
  launcher_seen_ = Clock::now();
  if (!launcher_.gone()) return;
  std::fputs("piper: what has started this process is gone; it ends too\n", stderr);
  end_process(launcher_gone_code);
}

bool Engine::do_as_told() {
  std::vector<std::function<void()>> orders;
  {
    const std::lock_guard lock(orders_mutex_);
    orders.swap(orders_);
  }
  for (const auto& what : orders) what();
  return !orders.empty();
}

/// An order ends it. Half as long as the last after something has happened, a quarter longer after nothing has: some
/// four looks for each thing, however fast the transport is. Long messages then cost a core little, and short ones are
/// met at once.
void Engine::back_off(bool moved) {
  const bool waiting = transport_->busy() || rendezvous_->waits() || leaving_job_;
  back_off_ = waiting ? std::clamp(moved ? back_off_ / 2 : back_off_ * 5 / 4, shortest_back_off, longest_back_off)
                      : shortest_back_off;
  std::unique_lock lock(orders_mutex_);
  ordered_.wait_until(lock, Clock::now() + (waiting ? back_off_ : idle_back_off), [&] { return !orders_.empty(); });
}

void Engine::handle(const Transport::Event& event) {
  switch (event.kind) {
    case Transport::Event::Kind::ControlCame:
      heartbeats_->is_alive(event.rank);
      handle_control(event.rank, read_control(event.control));
      break;
    case Transport::Event::Kind::ControlSent:
      if (event.use == about_heartbeat) heartbeats_->sent(event.rank);
      break;
    case Transport::Event::Kind::Gone:
      if (!goodbyes_.contains(event.rank)) lose(event.rank, event.problem);
      break;
    case Transport::Event::Kind::PieceDone:
    case Transport::Event::Kind::PieceCancelled:
      if (const std::optional<int> from = rendezvous_->end_piece(event)) heartbeats_->is_alive(*from);
  }
}

void Engine::handle_control(int from, const ReceivedControl& received) {
  const ControlMessage& control = received.control;
  const auto text = [&] {
    return std::string(reinterpret_cast<const char*>(received.data.data()), received.data.size());
  };
  switch (control.kind) {
    case ControlMessage::Kind::Data:
    case ControlMessage::Kind::RequestToSend:
    case ControlMessage::Kind::ClearToSend:
    case ControlMessage::Kind::Refusal:
    case ControlMessage::Kind::DifferentSizes:
      return rendezvous_->handle(from, received);
    case ControlMessage::Kind::Heartbeat:
      return heartbeats_->came(from, control.id, text());
    case ControlMessage::Kind::Abort:
      return stop_world(control.key.world, text());
    case ControlMessage::Kind::End:
      end_process(static_cast<int>(control.id));
    case ControlMessage::Kind::Goodbye:
      goodbyes_.insert(from);
  }
}

/// What has come in the same poll is not looked at any more: calls end now, and take their memory back.
void Engine::lose(int rank, const std::string& problem) {
  {
    const std::lock_guard lock(calls_mutex_);
    lost_.push_back(rank);
  }
  throw CommunicationError("rank " + std::to_string(rank) + " is gone: " + problem);
}

void Engine::tell_all(const ControlMessage& control, std::span<const std::byte> data) {
  if (!broken_.empty()) return;
  for (int to = 0; to < ranks_; ++to)
    if (to != rank_) send_control(*transport_, to, control, data);
}

/// The transport is not called any more, so it does not touch memory that callers take back.
void Engine::break_off(const std::string& reason) {
  const std::lock_guard lock(calls_mutex_);
  if (broken_.empty()) broken_ = reason;
  for (const auto& batch : open_) {
    batch->fail(reason);
    batch->release();
  }
  rendezvous_->forget_withdrawn();
}

}  // namespace piper
