#include "runtime/random/draw_place.h"

namespace piper {

std::vector<DrawDim> joined(const std::vector<DrawDim>& dims) {
  std::vector<DrawDim> out;
  for (const DrawDim& dim : dims) {
    if (dim.size == 1) continue;
    const auto continues = [&](int64_t DrawDim::*stride) { return out.back().*stride == dim.size * (dim.*stride); };
    if (!out.empty() && continues(&DrawDim::memory) && continues(&DrawDim::element) && continues(&DrawDim::sample) &&
        continues(&DrawDim::slice))
      out.back() = {out.back().size * dim.size, dim.memory, dim.element, dim.sample, dim.slice};
    else
      out.push_back(dim);
  }
  if (out.empty() || out.back().element != 1) out.push_back({1, 1, 1, 0, 0});
  return out;
}

}  // namespace piper
