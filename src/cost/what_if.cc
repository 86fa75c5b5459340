#include "cost/what_if.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "base/suggest.h"
#include "base/text/scanner.h"

namespace piper {

Result<WhatIf> parse_what_if(const std::string& text, const Cluster& cluster) {
  std::vector<std::string> names = {"compute", "memory", "bandwidth", "latency", "issue"};
  for (const LinkLevel& level : cluster.levels) names.push_back(level.name);
  WhatIf what_if;
  PIPER_TRY(Scanner in, Scanner::scan(make_source("--what-if", text)));
  do {
    const Token key = in.take();
    double* target = key.text == "compute"     ? &what_if.compute
                     : key.text == "memory"    ? &what_if.memory
                     : key.text == "bandwidth" ? &what_if.bandwidth
                     : key.text == "latency"   ? &what_if.latency
                     : key.text == "issue"     ? &what_if.issue
                                               : nullptr;
    if (!target) {
      if (std::ranges::find(names, key.text) == names.end())
        return error(ErrorCode::E105, in.range(key), fmt::format("nothing called \"{}\" can be changed", key.text))
            .help(did_you_mean(key.text, names));
      target = &what_if.links[key.text];
    }
    PIPER_CHECK(in.expect("=", fmt::format("after {}", key.text)));
    const Token value = in.take();  // x2, x0.5
    const char* begin = value.text.c_str() + (value.text.starts_with('x') ? 1 : 0);
    char* end = nullptr;
    *target = std::strtod(begin, &end);
    if (end == begin || *end != '\0' || !(*target > 0) || *target > 1e9)
      return error(ErrorCode::E102, in.range(value), fmt::format("{} must be a factor above 0", key.text))
          .help("write --what-if bandwidth=x2,compute=x0.5");
  } while (in.accept(","));
  if (!in.at_end()) return in.unexpected("',' or the end");
  return what_if;
}

Cluster changed(Cluster cluster, const WhatIf& what_if) {
  for (DeviceKind& kind : cluster.kinds) {
    for (double& peak : kind.peak) peak *= what_if.compute;
    kind.memory_bandwidth *= what_if.memory;
    kind.issue *= what_if.issue;
    if (kind.operators) kind.operators->issue *= what_if.issue;
  }
  for (LinkLevel& level : cluster.levels) {
    level.bandwidth *= what_if.bandwidth;
    if (const auto link = what_if.links.find(level.name); link != what_if.links.end()) level.bandwidth *= link->second;
    level.latency *= what_if.latency;
    if (level.gap) *level.gap *= what_if.latency;
  }
  return cluster;
}

}  // namespace piper
