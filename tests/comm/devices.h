// The devices of a test, whatever joins them: the same tests run over every kind of world.
#pragma once

#include <gmock/gmock.h>

#include <chrono>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.h"

namespace piper {

/// The communicators of those devices that this process has: all of them, or some.
using Communicators = std::vector<std::unique_ptr<Communicator>>;

/// A new world. Every test program has its own; all processes of a job make the same.
Communicators make_world(int devices, std::chrono::milliseconds timeout = std::chrono::minutes(5));

inline std::span<std::byte> bytes(auto& values) {
  return std::as_writable_bytes(std::span(values));
}
inline std::span<const std::byte> bytes(const auto& values) {
  return std::as_bytes(std::span(values));
}

/// Runs `work(communicator, device, thread)` on so many threads per device; what was thrown, by device and thread.
template <class Work>
std::map<int, std::string> on_all(const Communicators& world, Work work, int threads = 1) {
  std::vector<std::string> problems(world.size() * static_cast<size_t>(threads));
  std::vector<std::thread> running;
  for (size_t i = 0; i < problems.size(); ++i)
    running.emplace_back([&, i] {
      Communicator& communicator = *world[i / static_cast<size_t>(threads)];
      try {
        work(communicator, static_cast<size_t>(communicator.device()), i % static_cast<size_t>(threads));
      } catch (const std::exception& problem) {
        problems[i] = problem.what();
      }
    });
  for (std::thread& thread : running) thread.join();
  std::map<int, std::string> by_device;
  for (size_t i = 0; i < problems.size(); ++i)
    by_device[world[i / static_cast<size_t>(threads)]->device()] += problems[i];
  return by_device;
}

inline void make_process_groups(const Communicators& world, const std::vector<std::vector<int>>& groups) {
  for (const auto& communicator : world)
    for (const auto& group : groups) communicator->make_group(group);
}

inline void wait_a_little(std::mt19937& random) {
  std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
}

inline const auto none_failed = testing::Each(testing::Pair(testing::_, testing::IsEmpty()));

}  // namespace piper
