// Random numbers by their place in the batch, as an operator: `piper::draw_`, for every kind of device.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "runtime/draw/draw.h"

namespace piper {

/// Fills a tensor. `steps`: of each of its dimensions, how far one index leads among the numbers of a sample, among
/// samples, among slices. `words`: int64, the key and the first sample of every slice; here, or where the tensor is.
void draw_into(const at::Tensor& into, const Drawing& drawing, int64_t start, c10::IntArrayRef steps,
               const at::Tensor& words);

/// What the operator's arguments say, without samples.
DrawPlace place_in(const at::Tensor& into, int64_t start, c10::IntArrayRef steps);

}  // namespace piper
