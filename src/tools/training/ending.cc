#include "tools/training/ending.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "comm/processes/launcher.h"
#include "tools/supervise.h"

namespace piper {
namespace {

void say_why(const Ending& ending) {
  std::fflush(stdout);
  if (!ending.said) {
    std::this_thread::sleep_for(std::chrono::seconds(10));
    std::fputs(ending.why.c_str(), stderr);
  }
  say_end(ending.code);
  std::fflush(stderr);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));  // for what was said to be on its way
}

}  // namespace

void end_together(World& world, const Ending& ending) {
  say_why(ending);
  world.end_everywhere(ending.code);
  std::_Exit(ending.code);
}

void end_before(const Diagnostic& problem, bool color) {
  const bool speaks = Launcher().first_here();
  if (speaks) report_text(problem, color);
  say_why({refused, speaks, render(problem)});
  std::_Exit(refused);
}

void end_alone(const Diagnostic& problem, bool color) {
  report_text(problem, color);
  std::fflush(nullptr);
  std::_Exit(run_failed);
}

void end_after_losses(const Recovery& recovery, const Diagnostic& problem, bool color) {
  const bool speaks = Launcher().first_here();
  if (speaks) {
    std::fputs(recovery.why.c_str(), stderr);
    report_text(problem, color);
  }
  say_why({run_failed, speaks, recovery.why + render(problem)});
  std::_Exit(run_failed);
}

}  // namespace piper
