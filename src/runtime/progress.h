// What devices are doing now, in a form that can be told to other processes, and reports of a run that does not go on.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "plan/plan.h"

namespace piper {

class DeviceRun;

/// Of one device. Streams run in order, so the last operation that started says how far each has come.
struct DeviceProgress {
  int device = -1;
  int job = 0;  // of those whose turns the process takes
  int64_t step = 0;
  int64_t ended = 0;  // operations, since the beginning
  struct Last {
    OpId op;
    double since = 0;    // seconds it has been under way
    bool ended = false;  // it is not any more
    double longest = 0;  // seconds that it took in an earlier step; 0: there was none
  };
  std::vector<Last> streams;  // by PlanStreamId, up to the last that is used
  int64_t moved = 0;          // grows while messages of its process move
  double silent = 0;          // seconds since this was known; of another process
  std::string where = {};     // the process, if there are several

  /// All that other processes are told (`packed.h`).
  template <class Self, class Each>
  static void each_field(Self& self, Each each) {
    each(self.device);
    each(self.job);
    each(self.step);
    each(self.ended);
    each(self.streams);
    each(self.moved);
    each(self.where);
  }
};

DeviceProgress progress_of(const DeviceRun& device);

/// Who takes part in what: made once, because plans are long.
class Partners {
 public:
  explicit Partners(const Plan& plan);

  /// Devices that a communication of this one needs and that have not reached it, or that nothing is known of.
  std::vector<int> missing(const std::vector<DeviceProgress>& devices, const DeviceProgress& of, OpId op) const;

 private:
  std::vector<int> of(int device, OpId op) const;

  const Plan& plan_;
  std::map<int, const PlanTemplate*> programs_;  // by device
  std::map<const PlanTemplate*, std::map<std::pair<CommunicationId, OpKind>, OpId>> operations_;
};

/// Processes that give no sign of life.
std::set<std::string> silent_processes(const std::vector<DeviceProgress>& devices);
/// Their devices; empty: there are none.
std::string describe_silent(const std::vector<DeviceProgress>& devices);
/// What every device does and waits for, in the user's words.
std::string describe_progress(const Plan& plan, const std::vector<DeviceProgress>& devices);

}  // namespace piper
