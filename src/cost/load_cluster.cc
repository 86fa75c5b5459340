#include "cost/load_cluster.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/read_file.h"
#include "base/suggest.h"

namespace piper {

Result<Cluster> load_cluster(const std::string& name_or_path) {
  std::vector<std::string> known;
  for (const ShippedCluster& shipped : shipped_clusters()) {
    if (name_or_path == shipped.name)
      return parse_cluster(make_source(fmt::format("clusters/{}.toml", shipped.name), shipped.text));
    known.emplace_back(shipped.name);
  }
  auto file = read_file(name_or_path, "cluster");
  if (file) return parse_cluster(*file);
  if (name_or_path.find_first_of("./") != std::string::npos) return std::move(file.error());
  const std::string meant = nearest(name_or_path, known);
  return error(ErrorCode::E108, {}, fmt::format("no cluster is called \"{}\", nor is there such a file", name_or_path))
      .help(meant.empty() ? "" : fmt::format("did you mean \"{}\"?", meant))
      .help(fmt::format("shipped: {}", fmt::join(known, ", ")));
}

}  // namespace piper
