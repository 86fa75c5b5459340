#include "capture/chunk/chunk_ir.h"

namespace piper {

bool shows_argument(const ChunkIr& body, const Call& call, TensorId result) {
  bool shown = false;
  each_tensor(call.arguments, [&](TensorId id) { shown |= body[id].storage == body[result].storage; });
  return shown;
}

bool is_view(const ChunkIr& body, const Call& call) {
  bool some = false, all = call.writes.empty() && call.random < 0;
  each_tensor(call.results, [&](TensorId result) {
    some = true;
    all &= shows_argument(body, call, result);
  });
  return some && all;
}

}  // namespace piper
