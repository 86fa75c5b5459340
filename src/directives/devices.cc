// devices(n): the step runs on devices 0 … n-1.
//   before:  a DAG without devices
//   after:   devices=n
// Illegal: a second devices or mesh (E207).
#include <fmt/format.h>

#include "directives/directives.h"

namespace piper {

Result<TrainingDag> apply(TrainingDag dag, const Devices& devices, DirectiveId by) {
  if (dag.devices > 0)
    return error(ErrorCode::E207, dag.where(by), fmt::format("the step has {} devices already", dag.devices))
        .help("keep one of devices(n) and mesh(…)");
  dag.devices = devices.count;
  return dag;
}

}  // namespace piper
