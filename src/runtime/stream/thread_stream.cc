#include "runtime/stream/thread_stream.h"

#include <iterator>
#include <utility>

namespace piper {

ThreadStream::ThreadStream(std::function<void(const std::function<void()>&)> on_thread,
                           std::function<void(std::exception_ptr)> failed)
    : failed_(std::move(failed)), thread_([this, on_thread = std::move(on_thread)] { on_thread([this] { run(); }); }) {}

ThreadStream::~ThreadStream() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void ThreadStream::wait(const Event& event, uint32_t step) {
  filling_.push_back({{}, &event, nullptr, step});
}
void ThreadStream::launch(std::function<void()> work) {
  filling_.push_back({std::move(work), nullptr, nullptr, 0});
}
void ThreadStream::record(Event& event, uint32_t step) {
  filling_.push_back({{}, nullptr, &event, step});
}

void ThreadStream::flush() {
  {
    const std::lock_guard lock(mutex_);
    idle_ = false;
    if (handed_.empty())
      std::swap(handed_, filling_);
    else
      std::move(filling_.begin(), filling_.end(), std::back_inserter(handed_));
  }
  filling_.clear();
  changed_.notify_one();
}

void ThreadStream::run() {
  std::vector<Command> commands;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      idle_ = handed_.empty();
      changed_.wait(lock, [&] { return ended_ || !handed_.empty(); });
      if (handed_.empty()) return;
      std::swap(commands, handed_);
    }
    for (Command& command : commands) execute(command);
    commands.clear();
  }
}

void ThreadStream::execute(Command& command) {
  if (command.awaited) {
    command.awaited->wait(command.step);
  } else if (command.recorded) {
    command.recorded->signal(command.step);
  } else if (!stopped_) {
    try {
      command.work();
    } catch (...) {
      stopped_ = true;
      failed_(std::current_exception());
    }
  }
}

}  // namespace piper
