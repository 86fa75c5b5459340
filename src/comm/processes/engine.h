// The thread that carries the messages of a process: it makes all calls of the transport, polls it, and hands what has
// come to the rendezvous protocol and to the heartbeats. Callers give it orders.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <thread>
#include <vector>

#include "comm/processes/heartbeats.h"
#include "comm/processes/launcher.h"
#include "comm/processes/neighbours.h"
#include "comm/processes/rendezvous.h"
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
  std::vector<PeerHeartbeat> heartbeats() const { return heartbeats_->all(); }
  int64_t moved() const { return rendezvous_->moved(); }
  /// Ranks that nothing comes from any more, though they have not said so. Then nothing is carried any more.
  std::vector<int> lost() const;
  /// Carries nothing any more, and does not wait for the others when it ends.
  void leave();
  [[noreturn]] void end_everywhere(int code);

 private:
  using Clock = std::chrono::steady_clock;

  Engine() = default;
  void run(const MakeTransport& join, std::promise<void>& joined);
  void work();
  bool do_as_told();
  void back_off(bool moved);
  void handle(const Transport::Event& event);
  void handle_control(int from, const ReceivedControl& received);
  void tell_all(const ControlMessage& control, std::span<const std::byte> data = {});
  void order(std::function<void()> what);
  void stop_world(int world, const std::string& reason);
  void break_off(const std::string& reason);
  [[noreturn]] void lose(int rank, const std::string& problem);
  void look_for_launcher();
  [[noreturn]] void end_process(int code);

  int rank_ = 0, ranks_ = 1;
  std::string library_;
  const Launcher launcher_;
  Neighbours neighbours_;

  std::mutex orders_mutex_;
  std::condition_variable ordered_;
  std::vector<std::function<void()>> orders_;

  mutable std::mutex calls_mutex_;  // what callers and the engine share
  std::set<std::shared_ptr<Batch>> open_;
  std::map<int, std::string> stopped_;  // worlds, with the reason
  std::string broken_;                  // not empty: nothing can be carried any more
  std::vector<int> lost_;               // ranks
  std::atomic<bool> hangs_ = false;     // the engine, in a call of the transport

  // The engine's thread only, but for what they say themselves. Made when all have joined.
  std::unique_ptr<Transport> transport_;
  std::optional<Rendezvous> rendezvous_;
  std::optional<Heartbeats> heartbeats_;
  std::vector<Transport::Event> events_;
  std::set<int> goodbyes_;  // the ranks that nothing follows from
  bool leaving_job_ = false;
  Clock::duration back_off_{};  // the last
  Clock::time_point launcher_seen_;
  std::future<void> left_;
  std::thread thread_;
};

}  // namespace piper
