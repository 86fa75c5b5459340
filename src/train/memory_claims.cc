#include "train/memory_claims.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>

#include "base/bytes.h"
#include "base/machine.h"
#include "base/saturate.h"

namespace piper {
namespace {

constexpr int64_t no_limit = int64_t{1} << 60;

/// The number behind the name, in a file of lines `name: 12 kB` or `name 12`.
std::optional<int64_t> number_in(const std::filesystem::path& file, const std::string& name) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string word, unit;
    int64_t number = 0;
    if (!(words >> word >> number) || (word != name && word != name + ":")) continue;
    words >> unit;
    return unit == "kB" ? saturating_multiply(number, 1024) : number;
  }
  return std::nullopt;
}

/// None: there is no such file, or it holds a word such as `max`.
std::optional<int64_t> number_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  int64_t number = 0;
  return in >> number ? std::optional(number) : std::nullopt;
}

/// How one version of control groups is written.
struct GroupFiles {
  std::string_view limit, used, files;
};
constexpr GroupFiles version_1 = {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache"};
constexpr GroupFiles version_2 = {"memory.max", "memory.current", "file"};

}  // namespace

Checked check_memory(const std::vector<MemoryClaim>& claims) {
  struct Use {
    int64_t needed = 0, copies = 0, recent = 0, there = no_limit;
    int64_t all() const { return saturating_add(saturating_add(needed, copies), recent); }
    std::vector<const MemoryClaim*> by;
  };
  std::map<std::string, Use> pools;
  for (const MemoryClaim& claim : claims)
    for (const auto& [name, bytes] : claim.pools) {
      Use& use = pools[name];
      use.needed = saturating_add(use.needed, claim.needed);
      use.copies = saturating_add(use.copies, claim.copies);
      use.recent = saturating_add(use.recent, claim.recent);
      use.there = std::min(use.there, bytes);
      use.by.push_back(&claim);
    }
  for (const auto& [name, use] : pools) {
    if (use.all() <= use.there) continue;
    const std::string who = use.by.size() == 1 ? use.by[0]->process : fmt::format("{} processes", use.by.size());
    std::string what = fmt::format("the devices of {} need {} at their peaks", who, human_bytes(use.needed));
    if (use.copies > 0) what += fmt::format(", and {} for the copies of a save", human_bytes(use.copies));
    if (use.needed == 0 && use.copies > 0)
      what = fmt::format("the copies of a save of {} need {}", who, human_bytes(use.copies));
    if (use.recent > 0)
      what += fmt::format(", and {} for what they held after the last steps", human_bytes(use.recent));
    Diagnostic problem =
        error(ErrorCode::E405, {},
              fmt::format("{}; {} has {} left", what, name, human_bytes(std::max<int64_t>(use.there, 0))));
    for (size_t i = 0; use.by.size() > 1 && i < std::min<size_t>(4, use.by.size()); ++i)
      problem.notes.push_back(
          {{},
           fmt::format(
               "{} needs {}", use.by[i]->process,
               human_bytes(saturating_add(saturating_add(use.by[i]->needed, use.by[i]->copies), use.by[i]->recent)))});
    if (use.copies > 0)
      problem.helps.emplace_back(
          "piper check --checkpoint shows the copies of each process: more processes on more hosts divide them");
    return std::move(problem)
        .help(
            "piper check shows what takes the memory of each device, and what would help: zero, recompute, more stages")
        .help("several hosts have more of it; or make model or batch smaller");
  }
  return Ok{};
}

std::vector<MemoryPool> host_memory(const std::string& host, const std::filesystem::path& root) {
  std::vector<MemoryPool> out;
  const std::filesystem::path info = root / "proc/meminfo";
  if (const auto available = number_in(info, "MemAvailable"))
    out.emplace_back(host, saturating_add(*available, number_in(info, "SwapFree").value_or(0)));
  for (const ControlGroup& group : control_groups("memory", root)) {
    const GroupFiles& files = group.version == 2 ? version_2 : version_1;
    const auto limit = number_of(group.folder / files.limit), used = number_of(group.folder / files.used);
    if (!limit || !used || *limit >= no_limit) continue;
    const int64_t cached = number_in(group.folder / "memory.stat", std::string(files.files)).value_or(0);
    out.emplace_back(fmt::format("the control group {} on {}", group.name, host),
                     *limit - std::max<int64_t>(*used - cached, 0));
  }
  return out;
}

}  // namespace piper
