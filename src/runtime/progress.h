// What devices are doing now, as data that can be sent to other processes, and the report of a stalled run.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "plan/plan.h"

namespace piper {

class DeviceRun;

/// Of one device. Streams run in order, so the last operation that started says how far a stream is.
struct DeviceProgress {
  int device = -1;
  int job = 0;  // number of the job, in a process that runs several in turn
  int64_t step = 0;
  int64_t ended = 0;  // operations, since the run began
  struct Last {
    OpId op;
    double since = 0;    // seconds since it started
    bool ended = false;  // it has ended
    double longest = 0;  // most seconds it took in an earlier step; 0: there was none
  };
  std::vector<Last> streams;  // by PlanStreamId, up to the last that is used
  int64_t moved = 0;          // grows while messages of its process make progress
  double silent = 0;          // seconds since another process has sent this
  std::string where = {};     // the process, if there are several

  /// What other processes are sent (`packed.h`).
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

/// Which devices take part in which communication; built once, because plans are long.
class Partners {
 public:
  explicit Partners(const Plan& plan);

  /// Devices that take part in the communication `op` of device `of` and have not reached it, or are unknown.
  std::vector<int> missing(const std::vector<DeviceProgress>& devices, const DeviceProgress& of, OpId op) const;

 private:
  std::vector<int> of(int device, OpId op) const;

  const Plan& plan_;
  std::map<int, const PlanTemplate*> programs_;  // by device
  std::map<const PlanTemplate*, std::map<std::pair<CommunicationId, OpKind>, OpId>> operations_;
};

/// Processes from which no heartbeat has come for long.
std::set<std::string> silent_processes(const std::vector<DeviceProgress>& devices);
/// A text about their devices; empty if there are none.
std::string describe_silent(const std::vector<DeviceProgress>& devices);
/// What every device does and waits for, as text for the user.
std::string describe_progress(const Plan& plan, const std::vector<DeviceProgress>& devices);

}  // namespace piper
