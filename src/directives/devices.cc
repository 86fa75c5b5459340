// devices(n): the step runs on devices 0 … n-1.
//   before:  a DAG without devices
//   after:   devices=n
// Illegal: a second devices or mesh (E207).
#include "directives/device_choice.h"
#include "directives/directives.h"

namespace piper {

Result<TrainingDag> apply(TrainingDag dag, const Devices& devices, DirectiveId by) {
  if (dag.devices > 0) return declared_twice(dag, by);
  dag.devices = devices.count;
  return dag;
}

}  // namespace piper
