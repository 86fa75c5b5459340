#include "kernels/compile_kernels.h"

#include <fmt/format.h>
#include <torch/version.h>

#include <algorithm>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "base/child_process.h"

namespace piper {
namespace {

/// Empty: it is done; otherwise why not.
std::string problem_in(const std::string& answer) {
  const auto json = nlohmann::json::parse(answer, nullptr, false);
  if (!json.is_object()) return fmt::format("the compiler answers \"{}\"", answer);
  return json.value("problem", "");
}

}  // namespace

void compile_kernels(const KernelCompiler& compiler, const std::vector<std::string>& folders,
                     const std::function<void(size_t folder, const std::string& problem)>& finished) {
  std::mutex mutex;
  size_t next = 0;
  const auto take = [&]() -> std::optional<size_t> {
    const std::lock_guard lock(mutex);
    return next < folders.size() ? std::optional(next++) : std::nullopt;
  };
  const auto done = [&](size_t folder, const std::string& problem) {
    const std::lock_guard lock(mutex);
    finished(folder, problem);
  };
  const auto work = [&] {
    std::unique_ptr<ChildProcess> child;
    std::string cannot_begin;
    while (const auto folder = take()) {
      if (!child && cannot_begin.empty()) {
        child = std::make_unique<ChildProcess>(
            std::vector<std::string>{compiler.python, "-c", compile_kernels_script, TORCH_VERSION});
        const auto greeting = child->read();
        cannot_begin = greeting ? problem_in(*greeting) : fmt::format("{}: {}", compiler.python, child->end());
      }
      if (!cannot_begin.empty()) {
        done(*folder, cannot_begin);
        continue;
      }
      const auto answer = child->write(folders[*folder]) ? child->read() : std::nullopt;
      done(*folder, answer ? problem_in(*answer) : fmt::format("the compiler's process ended: {}", child->end()));
      if (!answer) child.reset();  // the next one gets a new process
    }
  };
  const size_t processes = std::min(folders.size(), static_cast<size_t>(std::max(compiler.processes, 1)));
  std::vector<std::thread> threads;
  for (size_t i = 1; i < processes; ++i) threads.emplace_back(work);
  if (processes > 0) work();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace piper
