// Products of linear layers in float8 (docs/precision.md): what they take of a device, for whoever plans.
#pragma once

#include <string>

#include "base/result.h"
#include "model/model_graph.h"

namespace piper {

/// GPUs multiply matrices of float8 whose columns and depth are multiples of this.
constexpr int64_t float8_multiple = 16;
/// E320: not those of this product, in a pass of a chunk. `where`: what asks for float8.
Checked check_fits_float8(const MatrixProduct& product, const std::string& chunk, Pass pass, const SourceRange& where);

/// How many such products a GPU does in the time of one of bfloat16. Where values are something else products take as
/// long as ever: of numbers that were rounded to float8.
int64_t float8_speed(DType values);

enum class LinearProducts { AsStored, Float8 };
/// What a device does where linear products are computed so. Float8: both operands of each are read, and written in
/// float8, by a kernel of its own.
DeviceWork with_linear_products(DeviceWork work, LinearProducts how, DType values);

/// Bytes that the largest linear product of them takes besides: its operands in float8.
int64_t float8_temporaries(const DeviceOperators& operators);

}  // namespace piper
