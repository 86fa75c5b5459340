#include "capture/program/one_at_a_time.h"

#include <ATen/Config.h>

namespace piper {

bool runs_one_at_a_time(const c10::OperatorHandle& op, const ChunkIr& body, const Call& call, c10::Device device) {
  if (!AT_MKLDNN_ACL_ENABLED() || !device.is_cpu()) return false;
  const std::string& name = op.operator_name().name;
  if (name != "aten::convolution" && name != "aten::convolution_backward") return false;
  const auto argument = [&](const char* named) -> const Argument& {
    return call.arguments[static_cast<size_t>(op.schema().argumentIndexWithName(named).value())];
  };
  const int64_t groups = std::get<int64_t>(argument("groups"));
  return groups > 1 && groups == body[std::get<TensorId>(argument("input"))].layout.sizes[1];  // one channel each
}

std::mutex& one_at_a_time() {
  static std::mutex turns;
  return turns;
}

}  // namespace piper
