// Random directives that any schedule can have, whatever its model.
#pragma once

#include <string>
#include <vector>

#include "property/random.h"

namespace piper::property {

/// Arguments of a replicate directive after its devices.
struct ReplicaChoice {
  int zero = 0;
  std::string arguments;
};
ReplicaChoice random_replicas(Random& random);

/// A prefetch directive for the gathers of all or some passes.
std::string random_prefetch(Random& random);

/// Stages and microbatches for which a timeline of the library is defined, or sizes without a timeline.
struct PipelineSizes {
  int pp = 1, stages = 1, microbatches = 1;
  std::string shape = "loop", timeline;
};
PipelineSizes random_pipeline(Random& random);

/// One element of an order: a pass of a cell, which is some part of the model, and a microbatch.
struct Task {
  size_t cell = 0;
  std::string pass;
  int mb = 0;
};
/// A step in an order that data allow: forward through all cells, backward through them again, BW, if backward is in
/// halves, at any later time.
std::vector<Task> random_tasks(Random& random, size_t cells, int microbatches, bool halves);

}  // namespace piper::property
