#include "tools/join_mpi.h"

namespace piper {

Result<std::unique_ptr<World>> join_mpi() {
  return error(ErrorCode::E806, {}, "this program was built without MPI")
      .help("make build installs Open MPI and builds with it; --backend local needs none");
}

}  // namespace piper
