#include "fuzz/trial.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>

namespace piper::fuzz {
namespace {

/// Most memory the process ever had, in kilobytes.
long peak_memory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

/// Inputs take milliseconds; one that takes this long does not end in practice, on any machine.
constexpr double hung = 600;

/// Time of this process only: a busy machine makes nothing a hang.
double cpu_seconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

}  // namespace

int scaled(int inputs) {
  const char* set = std::getenv("PIPER_LONG");
  if (set && std::string(set) == "1") return inputs * 10;
#ifdef PIPER_SANITIZED  // where each takes ten times as long
  return inputs / 4;
#else
  return inputs;
#endif
}

Tally try_mutations(const std::string& folder, int inputs,
                    const std::function<Outcome(const Seed&, const std::string&)>& run) {
  const std::vector<Seed> seeds = corpus(folder);
  Mutator mutator(20'260'000);
  Tally tally;
  for (; tally.inputs < inputs; ++tally.inputs) {
    const Seed& seed = seeds[static_cast<size_t>(tally.inputs) % seeds.size()];
    const std::string text = mutator.mutate(seed.text);
    const long before = peak_memory();
    const double start = cpu_seconds();
    try {
      const Outcome outcome = run(seed, text);
      tally.parsed += outcome != Outcome::Refused;
      tally.compiled += outcome == Outcome::Compiled;
    } catch (const std::exception& exception) {
      ADD_FAILURE() << exception.what() << "\nfrom " << seed.name << ":\n" << text;
      return tally;
    }
    const double seconds = cpu_seconds() - start;
    tally.slowest = std::max(tally.slowest, seconds);
    EXPECT_LT(seconds, hung) << "from " << seed.name << ":\n" << text;
    EXPECT_LT(peak_memory() - before, 1'000'000) << "kilobytes, from " << seed.name << ":\n" << text;
    if (testing::Test::HasFailure()) return tally;
  }
  fmt::print("{}: {} inputs, {:.0f} % past the parser, {} compiled, slowest {:.3f} s\n", folder, tally.inputs,
             100.0 * tally.parsed / tally.inputs, tally.compiled, tally.slowest);
  EXPECT_GE(tally.parsed * 5, tally.inputs);
  return tally;
}

}  // namespace piper::fuzz
