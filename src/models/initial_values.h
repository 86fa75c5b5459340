// First values of tensors: functions of a name, a seed and the place in the tensor alone, so that they are the same
// however a model is cut and on whichever machine a part of it is filled.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

namespace piper {

/// Nearly normal with mean zero: the sum of four uniform numbers, never farther than 3.5 deviations from zero. Only
/// whole numbers and one product in float32: equal bit by bit everywhere.
void fill_normal(at::Tensor& whole, uint64_t seed, std::string_view name, double deviation);

/// Angles of rotary positions, [positions, width / 2]: element (p, i) is cos or sin of p * theta^(-2i / width). A theta
/// of 0 was not given: 10000.
enum class RotationPart { Cos, Sin };
void fill_rotation(at::Tensor& whole, double theta, RotationPart part);

/// The weights of the reference decoder: uniform in [-0.04, 0.04), no seed.
void fill_reference(at::Tensor& whole, std::string_view name);

}  // namespace piper
