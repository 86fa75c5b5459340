// How long exchanges take over MPI; started by bench/comm_bench.py. Rank 0 prints lines of JSON.
//   mpi_exchanges BYTES...
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <thread>

#include "comm/mpi/mpi_world.h"

namespace piper {
namespace {

using Clock = std::chrono::steady_clock;

/// Between exchanges: an emulated cable lets 128 KB pass at full speed, and has them again after 1 ms at 1 Gbit/s.
constexpr auto recovery = std::chrono::milliseconds(5);
constexpr auto late = std::chrono::milliseconds(3);

double core_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

class Bench {
 public:
  explicit Bench(MpiWorld& world) : world_(world), devices_(world.make(world.ranks(), std::chrono::minutes(1))) {
    std::vector<int> members;
    for (int d = 0; d < world.ranks(); ++d) members.push_back(d);
    device().make_group(members);
  }

  /// There and back, half of it.
  void transfer(size_t bytes) {
    std::vector<std::byte> data(bytes);
    measure("p2p", bytes, 2, [&] {
      if (world_.rank() > 1) return;
      const int other = 1 - world_.rank();
      if (world_.rank() == 0) device().send(other, number_, data);
      device().receive(other, number_, data);
      if (world_.rank() == 1) device().send(other, number_, data);
    });
  }
  void all_reduce(size_t bytes) {
    std::vector<std::byte> data(bytes);
    measure("all_reduce", bytes, 1, [&] { device().all_reduce(0, number_, data, DataType::Float32); });
  }
  /// Rank 0 comes late, as somebody always does in a step: from then on.
  void all_to_all(size_t bytes) {
    std::vector<std::byte> out(bytes), in(bytes);
    const auto part = static_cast<int64_t>(bytes) / world_.ranks();
    measure(
        "all_to_all", bytes, 1, [&] { device().all_to_all(0, number_, out, part, in, part); }, 0,
        world_.rank() == 0 ? late : late.zero());
  }
  /// The share of a core that waiting uses.
  void wait() {
    measure(
        "wait", 0, 1,
        [&] {
          if (world_.rank() == 1) {
            std::this_thread::sleep_for(std::chrono::seconds(1));
            device().send(0, number_, {});
          } else if (world_.rank() == 0) {
            device().receive(1, number_, {});
          }
        },
        1);
  }

 private:
  Communicator& device() { return *devices_[0]; }

  void meet() {
    std::vector<double> x(1);
    device().all_reduce(0, ++number_, std::as_writable_bytes(std::span(x)), DataType::Float64);
  }

  void measure(const char* what, size_t bytes, int halves, const std::function<void()>& run, int times = 0,
               std::chrono::milliseconds wait_before = {}) {
    if (times == 0) times = std::clamp(static_cast<int>((size_t{64} << 20) / std::max<size_t>(bytes, 1)), 3, 30);
    std::vector<double> seconds;
    double cores = 0, wall = 0;
    for (int i = -1; i < times; ++i) {  // once for nothing
      std::this_thread::sleep_for(recovery);
      meet();
      number_ += 10;
      std::this_thread::sleep_for(wait_before);
      const double used = core_seconds();
      const auto start = Clock::now();
      run();
      const double took = std::chrono::duration<double>(Clock::now() - start).count();
      cores += core_seconds() - used;
      wall += took;
      if (i >= 0) seconds.push_back(took / halves);
    }
    const double share = cores / wall;
    std::sort(seconds.begin(), seconds.end());
    if (world_.rank() == 0)
      fmt::print("{{\"what\": \"{}\", \"bytes\": {}, \"seconds\": {:.6f}, \"core\": {:.3f}}}\n", what, bytes,
                 seconds[seconds.size() / 2], share);
  }

  MpiWorld& world_;
  std::vector<std::unique_ptr<Communicator>> devices_;
  int64_t number_ = 0;
};

}  // namespace
}  // namespace piper

int main(int argc, char** argv) {
  piper::MpiWorld world;
  piper::Bench bench(world);
  for (int i = 1; i < argc; ++i) bench.transfer(std::strtoull(argv[i], nullptr, 10));
  for (int i = 1; i < argc; ++i) bench.all_reduce(std::strtoull(argv[i], nullptr, 10));
  for (int i = 1; i < argc; ++i) bench.all_to_all(std::strtoull(argv[i], nullptr, 10));
  bench.wait();
}
