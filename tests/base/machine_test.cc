#include "base/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

namespace piper {
namespace {

/// A file system with these files, removed at the end.
struct Root {
  explicit Root(const std::vector<std::pair<std::string, std::string>>& files) {
    std::string pattern = (std::filesystem::temp_directory_path() / "piper_machine_XXXXXX").string();
    path = mkdtemp(pattern.data());
    for (const auto& [name, text] : files) {
      std::filesystem::create_directories((path / name).parent_path());
      std::ofstream(path / name) << text;
    }
  }
  ~Root() { std::filesystem::remove_all(path); }
  std::filesystem::path path;
};

TEST(Machine, CoresWithoutControlGroups) {
  EXPECT_GE(usable_cores(Root({}).path), 1);
}

TEST(Machine, CoresOfTheTightestGroup) {
  const Root root({{"proc/self/cgroup", "0::/a/b\n"},
                   {"sys/fs/cgroup/a/cpu.max", "25000 100000\n"},
                   {"sys/fs/cgroup/a/b/cpu.max", "max 100000\n"}});
  EXPECT_EQ(usable_cores(root.path), 0.25);
  const Root old({{"proc/self/cgroup", "3:cpu,cpuacct:/\n2:memory:/\n"},
                  {"sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n"},
                  {"sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}});
  EXPECT_EQ(usable_cores(old.path), 0.5);
  const Root unlimited({{"proc/self/cgroup", "3:cpu:/\n"},
                        {"sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"},
                        {"sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}});
  EXPECT_GE(usable_cores(unlimited.path), 1);
}

}  // namespace
}  // namespace piper
