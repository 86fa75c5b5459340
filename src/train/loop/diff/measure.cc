#include "train/loop/diff/measure.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

namespace piper {

double Measure::relative() const {
  if (difference == 0) return 0;
  return norm > 0 ? difference / norm : std::numeric_limits<double>::infinity();
}

Measure measure(const at::Tensor& a, const at::Tensor& b) {
  Measure out;
  if (b.numel() == 0) return out;
  const at::Tensor ours = a.to(at::kDouble).reshape({-1}), theirs = b.to(at::kDouble).reshape({-1});
  const at::Tensor same = ours.eq(theirs).logical_or_(ours.isnan().logical_and_(theirs.isnan()));
  const at::Tensor apart = (ours - theirs).masked_fill_(same, 0);
  const auto norm_of = [](const at::Tensor& tensor) {
    const double norm = tensor.norm().item<double>();
    return std::isfinite(norm) ? norm : std::numeric_limits<double>::infinity();
  };
  out.largest = apart.abs().max().item<double>();
  if (std::isnan(out.largest)) out.largest = std::numeric_limits<double>::infinity();
  out.difference = norm_of(apart);
  out.norm = norm_of(theirs);
  const double root = std::sqrt(static_cast<double>(b.numel()));
  out.rms_a = norm_of(ours) / root;
  out.rms_b = out.norm / root;
  return out;
}

double tolerance_of(c10::ScalarType type, std::optional<double> given) {
  if (!c10::isFloatingType(type)) return 0;
  if (given) return *given;
  switch (type) {
    case c10::kDouble:
      return 1e-12;
    case c10::kFloat:
      return 1e-5;
    case c10::kHalf:
      return 2e-3;
    default:
      return 2e-2;
  }
}

double rounding_of(c10::ScalarType type) {
  switch (type) {
    case c10::kDouble:
      return 0x1p-53;
    case c10::kFloat:
      return 0x1p-24;
    case c10::kHalf:
      return 0x1p-11;
    default:
      return 0x1p-8;
  }
}

bool all_finite(const at::Tensor& tensor) {
  return !tensor.is_floating_point() || at::isfinite(tensor).all().item<bool>();
}

}  // namespace piper
