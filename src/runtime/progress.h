// What devices are doing now, in a form that can be told to other processes, and reports of a run that does not go on.
#pragma once

#include <string>
#include <string_view>
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
};

DeviceProgress progress_of(const DeviceRun& device);

/// As bytes, for processes of the same build.
std::string pack(const std::vector<DeviceProgress>& devices);
/// Nothing if they are not what `pack` gives.
std::vector<DeviceProgress> unpack_progress(std::string_view bytes);

/// Who keeps the others waiting: processes without a sign of life, or else devices that are busy with something that
/// needs nobody else. Empty: nobody in particular.
std::string describe_culprits(const Plan& plan, const std::vector<DeviceProgress>& devices);
/// What every device does and waits for, in the user's words.
std::string describe_progress(const Plan& plan, const std::vector<DeviceProgress>& devices);

}  // namespace piper
