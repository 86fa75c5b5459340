// Which schedule is fastest on this cluster within its memory? Best first by lower bounds; what might be best is
// compiled, proved and simulated by the ordinary functions.
#pragma once

#include <atomic>
#include <functional>
#include <limits>

#include "search/evaluate.h"

namespace piper {

struct SearchProgress {
  double seconds = 0;  // since the search began
  size_t evaluated = 0, waiting = 0;
  const Evaluated* best = nullptr;  // so far, if something fits
};

struct SearchOptions {
  /// Work after which the best so far is the answer: seconds that it takes on two usual cores, counted from sizes and
  /// not measured, so that the answer is the same on every machine.
  double budget = 30;
  /// Seconds of the clock after which the search ends whatever work is left: then the answer may depend on the machine.
  double time = std::numeric_limits<double>::infinity();
  /// Threads that compile and simulate. The answer does not depend on it.
  int threads = 2;
  /// A candidate is left out if it cannot be faster than the best by more than this share.
  double tolerance = 0.003;
  /// Ends with the first that fits, and looks for no other ideas.
  bool first = false;
  /// Called now and then, on the thread that searches.
  std::function<void(const SearchProgress&)> progress;
  /// Set by somebody else: ends the search with the best so far.
  const std::atomic<bool>* stop = nullptr;
};

/// Why the search ended.
enum class SearchEnd { Proved, Budget, Time, Stopped };

/// Another idea than the best, with the best schedule that follows it.
enum class Idea { Mesh, Timeline, Zero, Recomputation };
std::string_view name(Idea idea);
struct RunnerUp {
  Idea idea = Idea::Mesh;
  Evaluated evaluated;
};

struct SearchResult {
  SearchEnd end = SearchEnd::Proved;
  bool hurried = false;              // time was over before the other ideas were looked at
  double seconds = 0, work = 0;      // of the clock; of the budget
  size_t considered = 0;             // candidates that were generated, or bounded away in groups
  std::vector<Evaluated> evaluated;  // all of them, best first
  std::vector<RunnerUp> runners_up;  // whose only difference is the idea, except for another mesh
  /// No candidate that was not evaluated is faster: infinite if there is none.
  double bound = 0;
  /// Of those that cannot fit: the one that needs least, by its bound.
  std::optional<Candidate> smallest;
  int64_t smallest_bytes = 0;
  std::vector<Diagnostic> refused;  // why parts of the space are missing, each reason once

  /// The best that fits, or none.
  const Evaluated* best() const { return !evaluated.empty() && evaluated[0].fits ? &evaluated[0] : nullptr; }
};

/// `tried`: schedules of the user's, with their names; one that is refused is an error, as is a space of which the
/// compiler refuses everything.
Result<SearchResult> search(const Problem& problem, const std::vector<std::pair<std::string, Schedule>>& tried = {},
                            const SearchOptions& options = {});

}  // namespace piper
