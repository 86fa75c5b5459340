// What becomes of a case: it trains as one device does, or it is refused before it runs. Anything else is a fault.
#pragma once

#include <functional>
#include <string>

#include "random/case.h"
#include "train_loop/trained.h"

namespace piper::random {

struct Verdict {
  enum class Kind { Equal, Refused, Fault };
  Kind kind = Kind::Equal;
  std::string what;     // the code of a refusal; the kind of a fault, the same for the same mistake of ours
  std::string details;  // all that is known
};

/// Trains two steps and compares losses, gradients, weights and moments with one device that runs the same slices in
/// turn; asks `piper check` too, which must agree. Models and references are kept for the next case.
/// `plant`: a fault that the run is to have.
Verdict judge(const Case& c, const std::function<void(TrainSettings&)>& plant = {});

}  // namespace piper::random
