// Decides when a run has stalled. There are no fixed limits: they follow from predicted times and from times of earlier
// steps, so a slow link or a long computation is not a fault.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/timeouts.h"
#include "plan/plan.h"
#include "runtime/progress.h"

namespace piper {

/// Seconds, from costs and a cluster; 0 or missing: unknown.
struct Predictions {
  Table<WorkId, double> works;
  Table<CommunicationId, double> communications;
};

/// Which rules a watch applies.
enum class Judges {
  All,     // this process knows what all devices do
  Silence  // another process judges operations; this one only whether that one is alive
};

/// Polls the progress of devices, and reports what takes too long:
/// - an operation that waits for no other. The time of a communication starts when the last device has reached it, and
///   anew whenever messages of its process make progress;
/// - the silence of another process, compared with its longest so far;
/// - a step in which no operation is in progress and none starts.
/// Time in which this process itself did not run does not count.
class Watch {
 public:
  Watch(const Plan& plan, const Timeouts& timeout, Predictions predictions, Judges judges);

  /// At `now`, in seconds of any clock: if the run has stalled, the reason, as text for the user.
  std::optional<std::string> look(const std::vector<DeviceProgress>& devices, double now);
  /// Until the next look, nothing is expected to make progress.
  void rest() { last_look_.reset(); }

 private:
  struct InProgress {
    OpId op;
    int64_t step = 0, moved = 0;
    double since = 0;
  };

  void remember_silence(const std::vector<DeviceProgress>& devices);
  std::optional<std::string> silent_for_too_long(const std::vector<DeviceProgress>& devices, double now) const;
  std::optional<std::string> too_long_in_progress(const std::vector<DeviceProgress>& devices, double now);
  double limit_of(const PlannedOp& op, double longest) const;

  const Plan& plan_;
  const Timeouts timeout_;
  const Predictions predictions_;
  const Judges judges_;
  const Partners partners_;
  std::optional<double> last_look_;
  double awake_since_ = 0, quiet_since_ = 0, longest_quiet_ = 0;
  int64_t progress_ = -1;                                     // of all devices together
  std::map<std::pair<int, size_t>, InProgress> in_progress_;  // by device and stream: operations that wait for no other
  std::map<int, double> silence_, longest_silence_;           // by device: at the last look, and of those that ended
};

}  // namespace piper
