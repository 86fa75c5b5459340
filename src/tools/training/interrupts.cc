#include "tools/training/interrupts.h"

#include <chrono>
#include <csignal>
#include <utility>

namespace piper {
namespace {

volatile std::sig_atomic_t asked = 0, terminated = 0;  // the signal that asked for the end; SIGTERM came

void note(int which) {
  asked = which;
  if (which == SIGTERM) terminated = 1;
  std::signal(which, SIG_DFL);
}

}  // namespace

WatchInterrupts::WatchInterrupts()
    : interrupt_(std::signal(SIGINT, note)),
      terminate_(std::signal(SIGTERM, note)),
      user_(std::signal(SIGUSR1, note)) {}

WatchInterrupts::~WatchInterrupts() {
  std::signal(SIGINT, interrupt_);
  std::signal(SIGTERM, terminate_);
  std::signal(SIGUSR1, user_);
}

int WatchInterrupts::asked_by() {
  return asked;
}

OnTerminate::OnTerminate(std::function<void()> act) : act_(std::move(act)), thread_([this] { look(); }) {}

OnTerminate::~OnTerminate() {
  ended_ = true;
  thread_.join();
}

void OnTerminate::look() {
  while (!ended_ && !terminated) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  if (terminated) act_();
}

}  // namespace piper
