#include "runtime/executors/update_scale.h"

#include <cmath>

namespace piper {

std::optional<GradientScale> UpdateScale::of(Frame& frame) const {
  if (!frame.scalars_known) {
    frame.scalars = local_.sum(frame);
    frame.scalars_known = true;
  }
  const StepSettings& settings = frame.settings();
  if (!settings.accumulation.last()) return std::nullopt;
  const double losses = losses_ * settings.accumulation.divisor();
  const double norm = std::sqrt(frame.scalars.squares) / losses;
  if (!std::isfinite(frame.scalars.loss) || !std::isfinite(norm)) return std::nullopt;  // on all devices
  return gradient_scale(settings, norm, losses);
}

}  // namespace piper
