// What stages are made of: the instances of one scope.
#pragma once

#include <string>
#include <vector>

#include "model/model_graph.h"

namespace piper {

/// The scope with the most instances on the outermost level, and for each selected chunk the instance it belongs to:
/// the one that contains it or runs before it (0 if none does).
struct Instances {
  std::string scope;
  int count = 0;
  std::vector<int> of_chunk;
};
Instances find_instances(const ModelGraph& model, const std::vector<ChunkId>& chunks);

/// First instance of every stage, if so many instances are divided evenly: the first stages get one more.
std::vector<int> even_starts(int instances, int stages);

}  // namespace piper
