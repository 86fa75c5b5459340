#include "random/known_faults.h"

#include <set>

namespace piper::random {
namespace {

/// A model is captured for its cuts before the rest of the schedule is looked at, so of two mistakes `train` may tell
/// another than `check`.
bool both_refuse(const std::string& what) {
  return what.starts_with("check: E") && what.find(", train: E") != std::string::npos;
}

}  // namespace

bool is_known(const Verdict& fault) {
  static const std::set<std::string> known = {
      // a plan in which a device has nothing to do
      "internal error: the plan has no device ",
      // slices of one sample and of several, or of one where the sequence is divided
      "check: accepts, train: E607",
      // `check` compiles the analytic model, `train` the captured one, whose values and labels are others
      "check: E317, train: accepts",
      "check: accepts, train: E317",
      "check: accepts, train: E311",
  };
  return known.contains(fault.what) || both_refuse(fault.what);
}

}  // namespace piper::random
