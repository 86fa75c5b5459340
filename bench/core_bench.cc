// Whether others use this machine's cores: two loops on each core, in turn.
//   core_bench [ROUNDS]
//
// In `chain` every instruction waits for the one before: it takes longer when the clock is slower or the thread is
// stopped. `wide` has several instructions for every cycle: it also takes longer, up to twice as long, while another
// hardware thread uses the same core. Where `wide` alone varies, that is what happens. Then all other cores are kept
// busy too: if that changes nothing, the other thread is none that this machine sees.
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

void stay_on(size_t core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  sched_setaffinity(0, sizeof set, &set);
}

std::vector<size_t> usable_cores() {
  cpu_set_t set;
  sched_getaffinity(0, sizeof set, &set);
  std::vector<size_t> out;
  for (size_t core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set)) out.push_back(core);
  return out;
}

void chain() {
  uint64_t x = 1;
  for (int i = 0; i < 20000; ++i) {
    x = x * 6364136223846793005ULL + 1;
    asm volatile("" : "+r"(x));  // one after the other
  }
}

void wide() {
  std::array<uint64_t, 6> x = {1, 2, 3, 4, 5, 6};
  for (uint64_t i = 0; i < 16000; ++i) {
    x[0] = (x[0] + i) ^ 5;
    x[1] ^= i;
    x[2] = (x[2] + 7) ^ 9;
    x[3] = (x[3] ^ i) + 11;
    x[4] += 3;
    x[5] ^= i;
    asm volatile("" : "+r"(x[0]), "+r"(x[1]), "+r"(x[2]), "+r"(x[3]), "+r"(x[4]), "+r"(x[5]));
  }
}

/// Microseconds, the median of some.
template <class Loop>
double measure(const Loop& loop) {
  std::array<double, 61> times;
  for (double& time : times) {
    const auto begin = std::chrono::steady_clock::now();
    loop();
    time = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
  }
  std::ranges::nth_element(times, times.begin() + 30);
  return times[30];
}

/// While it lives, keeps cores busy.
class Busy {
 public:
  Busy(const std::vector<size_t>& cores, size_t but) {
    for (const size_t core : cores)
      if (core != but)
        threads_.emplace_back([this, core] {
          stay_on(core);
          while (!stop_) wide();
        });
  }
  ~Busy() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  std::atomic<bool> stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

int main(int count, char** arguments) {
  const int rounds = count > 1 ? std::atoi(arguments[1]) : 5;
  const std::vector<size_t> cores = usable_cores();
  fmt::print("{:<24}", "us on core");
  for (const size_t core : cores) fmt::print("{:>5}", core);
  const auto line = [&](const char* name, const auto& on_core) {
    fmt::print("\n{:<24}", name);
    for (const size_t core : cores) {
      stay_on(core);
      fmt::print("{:>5.1f}", on_core(core));
    }
  };
  for (int round = 0; round < rounds; ++round) {
    line("chain", [](size_t) { return measure(chain); });
    line("wide", [](size_t) { return measure(wide); });
    line("wide, others busy", [&](size_t core) {
      const Busy others(cores, core);
      return measure(wide);
    });
  }
  fmt::print("\n");
}
