#include "base/machine.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <thread>

namespace piper {
namespace {

/// The group and those around it.
void add_around(const std::filesystem::path& mount, std::string group, int version, std::vector<ControlGroup>& out) {
  if (!std::filesystem::is_directory(mount / group.substr(1))) group = "/";  // a container sees only its own
  while (true) {
    out.push_back({group, mount / group.substr(1), version});
    if (group == "/") return;
    group = std::filesystem::path(group).parent_path().string();
  }
}

/// Cores whose time the group gives; none: all.
std::optional<double> cores_given(const ControlGroup& group) {
  double quota = 0, period = 0;
  if (group.version == 2) {
    std::ifstream in(group.folder / "cpu.max");  // `max 100000`, or microseconds of every so many
    if (!(in >> quota >> period)) return {};
  } else {
    std::ifstream quotas(group.folder / "cpu.cfs_quota_us"), periods(group.folder / "cpu.cfs_period_us");
    if (!(quotas >> quota) || !(periods >> period)) return {};
  }
  if (quota <= 0 || period <= 0) return {};
  return quota / period;
}

}  // namespace

std::vector<ControlGroup> control_groups(const std::string& controller, const std::filesystem::path& root) {
  std::vector<ControlGroup> out;
  std::ifstream groups(root / "proc/self/cgroup");  // lines `4:memory:/user.slice`, or `0::/user.slice`
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos || line.size() < second + 2) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), group = line.substr(second + 1);
    const std::filesystem::path mounts = root / "sys/fs/cgroup";
    if (controllers.empty())
      add_around(mounts, group, 2, out);
    else if (("," + controllers + ",").find("," + controller + ",") != std::string::npos)
      add_around(mounts / controller, group, 1, out);
  }
  return out;
}

double usable_cores(const std::filesystem::path& root) {
  cpu_set_t set;
  CPU_ZERO(&set);
  const bool known = sched_getaffinity(0, sizeof set, &set) == 0;
  double out = known ? CPU_COUNT(&set) : std::max(1u, std::thread::hardware_concurrency());
  for (const ControlGroup& group : control_groups("cpu", root))
    if (const auto given = cores_given(group)) out = std::min(out, *given);
  return out;
}

}  // namespace piper
