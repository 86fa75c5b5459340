// What of this machine the process may use, as Linux says.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace piper {

/// A control group that this process is in, or one around it.
struct ControlGroup {
  std::string name;
  std::filesystem::path folder;
  int version = 2;
};
/// Those that limit `controller`, such as memory or cpu, innermost first. `root`: of the file system.
std::vector<ControlGroup> control_groups(const std::string& controller, const std::filesystem::path& root = "/");

/// Processor cores whose time this process may use: those that it may run on, and no more than control groups give.
double usable_cores(const std::filesystem::path& root = "/");

}  // namespace piper
