#include "calibrate/observation.h"

#include <fmt/format.h>

namespace piper {

Observation kernel_observation(const MeasuredStep& step) {
  const MeasuredKernel& kernel = *step.kernel;
  PlanWork work;
  work.dtype = kernel.dtype;
  work.does.bytes = kernel.bytes;
  DeviceOperators& operators = work.does.operators.emplace();
  operators.streamed = kernel.bytes;
  operators.kernels = 1;
  std::string shape = fmt::format("{} bytes", kernel.bytes);
  if (kernel.product) {
    const MatrixProduct& p = *kernel.product;
    operators.products = {p};
    work.does.flops = 2 * p.count * p.rows * p.columns * p.depth;
    shape = fmt::format("{}x{}x{}x{}", p.count, p.rows, p.columns, p.depth);
  }
  return {step.set, fmt::format("{} {}", name(kernel.dtype), shape), nullptr,
          std::make_shared<const PlanWork>(std::move(work)), step.seconds};
}

}  // namespace piper
