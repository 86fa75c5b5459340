// Random schedules for random small models: right, or refused before they run.
//
// In the environment: PIPER_CASES, how many; PIPER_SEED, the seed of the first, on which alone a case depends;
// PIPER_SHRINK, how many smaller cases are tried for one with a fault.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <map>

#include "random/judge.h"
#include "random/random_case.h"
#include "random/shrink.h"

namespace piper::random {
namespace {

int64_t from_environment(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atoll(text) : otherwise;
}

int64_t first_seed() {
  return from_environment("PIPER_SEED", 1);
}
int64_t case_count() {
  return from_environment("PIPER_CASES", property::cases(20, 6'000));
}

/// What to say if a case ends the program: its text.
std::string in_progress;
void say_what_was_in_progress(int signal) {
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, in_progress.data(), in_progress.size());
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

/// Cases take fractions of a second; one that takes this long never ends.
constexpr unsigned seconds_of_a_case = 1'200;

Verdict judge_watched(const Case& c, const std::string& title) {
  in_progress = fmt::format("\nthe program ended, or was ended, in {}\n{}", title, c.shown());
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGALRM, SIGTERM})
    std::signal(signal, say_what_was_in_progress);
  ::alarm(seconds_of_a_case);
  Verdict out = judge(c);
  ::alarm(0);
  return out;
}

constexpr int parts = 4;  // which may run side by side
class RandomSchedules : public testing::TestWithParam<int> {};

TEST_P(RandomSchedules, AreRightOrRefused) {
  std::map<std::string, int> outcomes;
  std::map<std::string, std::string> faults;  // the first of each kind
  int all = 0, equal = 0;
  for (int64_t number = GetParam(); number < case_count(); number += parts, ++all) {
    const int64_t seed = first_seed() + number;
    const Case c = random_case(static_cast<uint64_t>(seed));
    const std::string title = fmt::format("the case of seed {} (PIPER_SEED={} PIPER_CASES=1)", seed, seed);
    const Verdict verdict = judge_watched(c, title);
    ++outcomes[verdict.kind == Verdict::Kind::Equal ? "equal" : verdict.what];
    equal += verdict.kind == Verdict::Kind::Equal;
    if (verdict.kind != Verdict::Kind::Fault || faults.contains(verdict.what)) continue;
    const Case least = shrink(c, verdict.what, static_cast<int>(from_environment("PIPER_SHRINK", 400)));
    faults[verdict.what] = fmt::format("{}: {}\n{}{}", title, verdict.what, least.shown(), judge(least).details);
    ADD_FAILURE() << faults[verdict.what];
  }
  std::string table;
  for (const auto& [outcome, count] : outcomes) table += fmt::format("  {:5}  {}\n", count, outcome);
  fmt::print("{} cases from seed {} on:\n{}", all, first_seed() + GetParam(), table);
  if (all >= 10) {  // of few not quite as many may be
    EXPECT_GE(equal * (all < 100 ? 3 : 2), all) << "most cases should be legal";
  }
}
INSTANTIATE_TEST_SUITE_P(Part, RandomSchedules, testing::Range(0, parts));

}  // namespace
}  // namespace piper::random
