// Runs one damaged input after the other and sees that none crashes, hangs, eats memory or trips over our own checks.
#pragma once

#include <functional>
#include <string>

#include "fuzz/mutate.h"

namespace piper::fuzz {

/// What became of an input.
enum class Outcome { Refused, Parsed, Compiled };

struct Tally {
  int inputs = 0, parsed = 0, compiled = 0;
  double slowest = 0;  // seconds
};

/// Ten times as many with PIPER_LONG=1, else a quarter under a sanitizer.
int scaled(int inputs);

/// Feeds mutations of the corpus in `folder` to `run`, until `inputs` are through. An exception, 10 s or 1 GB for one
/// input is a failure of the current test, shown with the text. Prints the tally; at least 20 % must get past the
/// parser.
Tally try_mutations(const std::string& folder, int inputs,
                    const std::function<Outcome(const Seed& seed, const std::string& text)>& run);

}  // namespace piper::fuzz
