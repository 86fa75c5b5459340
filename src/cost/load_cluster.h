// Clusters that users name: those shipped with the program, and their own files.
#pragma once

#include <string>
#include <vector>

#include "cost/cluster.h"

namespace piper {

/// A shipped cluster, or a file. E108: neither; lists those there are.
Result<Cluster> load_cluster(const std::string& name_or_path);

/// The files of clusters/, built into the program, by name.
struct ShippedCluster {
  const char* name;
  const char* text;
};
const std::vector<ShippedCluster>& shipped_clusters();

}  // namespace piper
