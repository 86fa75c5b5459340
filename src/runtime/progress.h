// What devices are doing now, in a form that can be told to other processes, and reports of a run that does not go on.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.h"

namespace piper {

class DeviceRun;

/// Of one device. Streams run in order, so the last operation that started says how far each has come.
struct DeviceProgress {
  int device = -1;
  int64_t step = 0;
  int64_t ended = 0;  // operations, since the beginning
  struct Last {
    int op = -1;         // none: -1
    double since = 0;    // seconds it has been under way
    bool ended = false;  // it is not any more
  };
  std::vector<Last> streams;
  double silent = 0;       // seconds since this was known; of another process
  std::string where = {};  // the process, if there are several

  /// All that other processes are told (`packed.h`).
  template <class Self, class Each>
  static void each_field(Self& self, Each each) {
    each(self.device);
    each(self.step);
    each(self.ended);
    each(self.streams);
    each(self.where);
  }
};

DeviceProgress progress_of(const DeviceRun& device);

/// Why nothing goes on, in the user's words: `what` was seen; who keeps the others waiting (processes without a sign of
/// life, or else operations that need nobody and do not end); and what every device does and waits for.
std::string describe_stall(const Plan& plan, const std::string& what, const std::vector<DeviceProgress>& devices);

}  // namespace piper
