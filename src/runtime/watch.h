// Whether a run goes on. Nothing has a fixed limit: what something may take follows from what it was predicted to take,
// and from what it took before, so a slow link or a long computation is no fault.
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

/// Seconds, as costs and a cluster say; 0 or nothing: not known.
struct Predictions {
  Table<WorkId, double> works;
  Table<CommunicationId, double> communications;
};

/// Which of its rules apply.
enum class Judges {
  All,     // this process knows what all devices do
  Silence  // another one judges operations; here only whether that one is alive
};

/// Looks at the progress of devices again and again, and says when something takes too long:
/// - an operation that waits for nobody. A communication's time begins when the last device has reached it, and again
///   whenever messages of its process move;
/// - the silence of another process, compared with its longest before;
/// - that no operation is under way and none begins.
/// Time in which this process itself did not run is not counted.
class Watch {
 public:
  Watch(const Plan& plan, const Timeouts& timeout, Predictions predictions, Judges judges);

  /// At `now`, in seconds of any clock: why the run should be ended, in the user's words, if it should.
  std::optional<std::string> look(const std::vector<DeviceProgress>& devices, double now);
  /// Nobody expects anything until the next look.
  void rest() { last_look_.reset(); }

 private:
  struct UnderWay {
    OpId op;
    int64_t step = 0, moved = 0;
    double since = 0;
  };

  void remember_silence(const std::vector<DeviceProgress>& devices);
  std::optional<std::string> silent_for_too_long(const std::vector<DeviceProgress>& devices, double now) const;
  std::optional<std::string> too_long_under_way(const std::vector<DeviceProgress>& devices, double now);
  double limit_of(const PlannedOp& op, double longest) const;

  const Plan& plan_;
  const Timeouts timeout_;
  const Predictions predictions_;
  const Judges judges_;
  const Partners partners_;
  std::optional<double> last_look_;
  double awake_since_ = 0, quiet_since_ = 0, longest_quiet_ = 0;
  int64_t progress_ = -1;                                 // of all devices together
  std::map<std::pair<int, size_t>, UnderWay> under_way_;  // by device and stream: what waits for nobody
  std::map<int, double> silence_, longest_silence_;       // by device: at the last look, and of those that ended
};

}  // namespace piper
