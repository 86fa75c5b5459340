// The thread that carries the messages of a process: it makes all calls of the transport and knows the
// protocol (README.md).
#pragma once

#include <atomic>
#include <compare>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <thread>
#include <vector>

#include "comm/processes/batch.h"
#include "comm/processes/launcher.h"
#include "comm/processes/neighbours.h"
#include "comm/processes/transport.h"
#include "comm/world.h"

namespace piper {

class Engine {
 public:
  /// Returns when all processes have joined. Throws what `join` throws; NobodyCame when it takes longer than
  /// `timeout`: then it is left behind, for it cannot be ended.
  static std::shared_ptr<Engine> join(const MakeTransport& join, std::optional<std::chrono::milliseconds> timeout);
  ~Engine();

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  const std::string& library() const { return library_; }

  /// Throws if the world has been aborted.
  std::shared_ptr<Batch> open(int world);
  /// Afterwards nothing uses the caller's memory any more, complete or not.
  void close(const std::shared_ptr<Batch>& batch);
  void send(const std::shared_ptr<Batch>& batch, int rank, const MessageKey& key, std::span<const std::byte> data,
            size_t whole);
  void receive(const std::shared_ptr<Batch>& batch, int rank, const MessageKey& key, std::span<std::byte> data,
               size_t whole);

  /// Ends all calls of a world, on all ranks.
  void abort(int world, const std::string& reason);
  /// Why calls of a world fail from now on, if they do.
  std::optional<Communicator::Trouble> trouble(int world);

  void post(std::string block, World::To to);
  std::vector<PeerHeartbeat> heartbeats();
  int64_t moved() const { return pieces_moved_.load(std::memory_order_relaxed); }
  [[noreturn]] void end_everywhere(int code);

 private:
  using Clock = std::chrono::steady_clock;
  struct ControlMessage;
  struct Message {
    std::shared_ptr<Batch> batch;
    MessageKey key;
    int rank = 0;
    std::byte* data = nullptr;  // of a send only read
    size_t bytes = 0, whole = 0;
    int64_t id = 0;      // the sender's
    int tag = 0;         // the receiver's choice
    size_t cleared = 0;  // of a receive
    size_t moved = 0;
    int pieces = 0;  // under way: the transport uses the memory
    bool withdrawn = false;
  };
  using MessagePointer = std::shared_ptr<Message>;
  /// That its receiver waits for.
  struct Piece {
    MessagePointer message;
    int tag = 0;
    size_t offset = 0, bytes = 0;
  };
  /// What a sender says about a message.
  struct Arrival {
    MessageKey key;
    int rank = 0;
    int64_t id = 0;
    size_t bytes = 0, whole = 0;
  };
  /// Before its receive was posted.
  struct Early {
    Arrival arrival;
    bool complete = false;  // otherwise announced
    std::vector<std::byte> data;
  };
  struct Heartbeat {
    std::optional<std::string> next;  // to be sent when the last one is on its way
    bool sending = false;
  };

  Engine() = default;
  void run(const MakeTransport& join, std::promise<void>& joined);
  void work();
  bool do_as_told();
  void back_off(bool moved);
  void handle(const Transport::Event& event);
  void handle_control(int from, std::span<const std::byte> bytes);
  void write(int to, const ControlMessage& control, std::span<const std::byte> data = {}, int use = 0);

  static MessagePointer message(const std::shared_ptr<Batch>& batch, int rank, const MessageKey& key,
                                std::span<std::byte> data, size_t whole);
  void start_send(const MessagePointer& message);
  void start_receive(const MessagePointer& message);
  void arrive(const Arrival& arrival, bool complete, std::span<const std::byte> data);
  void meet(const MessagePointer& message, const Arrival& arrival, bool complete, std::span<const std::byte> data);
  void clear_pieces();
  void cleared(int from, const ControlMessage& control);
  void send_granted();
  void refused(int from, const ControlMessage& control);
  void end_piece(Message& message, const Transport::Event& event);
  void forget(const MessagePointer& message);
  void withdraw(const std::shared_ptr<Batch>& batch);
  void release_if_unused(const std::shared_ptr<Batch>& batch);
  void send_news(int to);
  void is_alive(int rank);
  void stop_world(int world, const std::string& reason);
  void break_off(const std::string& reason);
  void say_goodbye();
  [[noreturn]] void end_process(int code);

  void tell(std::function<void()> order);

  int rank_ = 0, ranks_ = 1;
  std::string library_;
  const Launcher launcher_;
  Neighbours neighbours_;

  std::mutex orders_mutex_;
  std::condition_variable ordered_;
  std::vector<std::function<void()>> orders_;

  std::mutex calls_mutex_;  // what callers and the engine share
  std::set<std::shared_ptr<Batch>> open_;
  std::map<int, std::string> stopped_;  // worlds, with the reason
  std::string broken_;                  // not empty: nothing can be carried any more
  std::vector<PeerHeartbeat> heartbeats_;
  std::atomic<bool> hangs_ = false;  // the engine, in a call of the transport
  std::atomic<int64_t> pieces_moved_ = 0;

  // The engine's thread only.
  std::unique_ptr<Transport> transport_;
  std::vector<Transport::Event> events_;
  std::map<MessageKey, std::deque<MessagePointer>> expected_;
  std::map<MessageKey, std::deque<Early>> arrived_;
  std::map<int64_t, MessagePointer> requested_;                  // sends, by id
  std::map<int, MessagePointer> incoming_;                       // by tag, until the last piece is here
  std::deque<MessagePointer> to_clear_;                          // the next piece of the first is cleared next
  std::vector<Piece> to_send_;                                   // cleared since the last look
  std::map<Message*, MessagePointer> in_use_;                    // with pieces under way
  std::map<std::shared_ptr<Batch>, Clock::time_point> leaving_;  // withdrawn while memory is in use, since when
  size_t cleared_bytes_ = 0;                                     // bytes that may arrive now
  int64_t next_id_ = 0, posts_ = 0;
  int next_tag_ = 0;
  std::vector<Heartbeat> heartbeats_out_;
  std::vector<int64_t> heartbeats_seen_;  // the newest number, by rank
  std::set<int> goodbyes_;                // the ranks that nothing follows from
  bool leaving_job_ = false;
  Clock::duration back_off_{};  // the last
  Clock::time_point launcher_seen_;
  std::future<void> left_;
  std::thread thread_;
};

/// A call's messages. When it ends, complete or not, its memory is the caller's again.
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
