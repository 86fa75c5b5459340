#include "train_loop/nccl/run_apart.h"

#include <cstdlib>
#include <thread>

#include "comm/local/local_world.h"

namespace piper {
namespace {

/// A process with one device, of which only the communicator is asked for.
class OneDevice : public World {
 public:
  explicit OneDevice(std::unique_ptr<Communicator> communicator) : communicator_(std::move(communicator)) {}
  int rank() const override { return communicator_->device(); }
  int ranks() const override { return 0; }
  const std::string& library() const override { return nothing_; }
  std::vector<std::unique_ptr<Communicator>> make(int, std::chrono::milliseconds) override {
    std::vector<std::unique_ptr<Communicator>> out;
    out.push_back(std::move(communicator_));
    return out;
  }
  std::string broadcast(std::string bytes, std::chrono::milliseconds) override { return bytes; }
  std::vector<std::optional<std::string>> gather(const std::string&, std::chrono::milliseconds) override { return {}; }
  void post(std::string, To) override {}
  std::vector<PeerHeartbeat> heartbeats() const override { return {}; }
  int64_t moved() const override { return 0; }
  std::vector<int> lost() const override { return {}; }
  void leave() override {}
  [[noreturn]] void end_everywhere(int code) override { std::_Exit(code); }

 private:
  std::unique_ptr<Communicator> communicator_;
  std::string nothing_;
};

}  // namespace

Ran run_apart(const std::function<std::unique_ptr<Communicator>(std::unique_ptr<Communicator> host)>& join,
              const TrainableModel& model, const CapturedModel& captured, const std::shared_ptr<const Plan>& plan,
              const TrainSettings& settings) {
  LocalOptions options;
  options.timeout = std::chrono::seconds(60);
  std::vector<std::unique_ptr<Communicator>> host_communicators =
      make_local_world(static_cast<int>(template_of_device(*plan).size()), options);
  Ran out;
  out.devices.resize(host_communicators.size());
  out.problems.resize(host_communicators.size());
  std::vector<std::thread> threads;
  for (size_t d = 0; d < host_communicators.size(); ++d)
    threads.emplace_back([&, d] {
      OneDevice here(join(std::move(host_communicators[d])));
      TrainSettings mine = settings;
      mine.world = &here;
      try {
        out.devices[d] = train(model, captured, plan, mine);
      } catch (const std::exception& problem) {
        out.problems[d] = problem.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return out;
}

}  // namespace piper
