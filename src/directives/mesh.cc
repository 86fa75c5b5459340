// mesh(pp=2, dp=4): the devices are the product of named axes; the last varies fastest (device = pp * 4 + dp).
//   before:  a DAG without devices
//   after:   devices=8, axes pp and dp
// Illegal: a second devices or mesh (E207); more than 2^20 devices (E105).
#include "directives/device_choice.h"
#include "directives/directives.h"

namespace piper {

Result<TrainingDag> apply(TrainingDag dag, const Mesh& mesh, DirectiveId by) {
  if (dag.devices > 0) return declared_twice(dag, by);
  if (mesh.axes.empty())
    return error(ErrorCode::E104, dag.where(by), "mesh: needs at least one axis").help("for example mesh(pp=2, dp=4)");
  int64_t count = 1;
  for (const MeshAxis& axis : mesh.axes) {
    count *= axis.size;
    if (count > (1 << 20))
      return error(ErrorCode::E105, dag.where(by, {axis.name}), "mesh: more than 2^20 devices")
          .help("make an axis shorter");
  }
  dag.devices = static_cast<int>(count);
  dag.mesh = mesh.axes;
  return dag;
}

}  // namespace piper
