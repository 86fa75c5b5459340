#include "models/model_module.h"

#include <ATen/ops/empty.h>

namespace piper {

at::Tensor TensorMaker::operator()(c10::IntArrayRef sizes) const {
  return at::empty(sizes, at::TensorOptions().dtype(dtype).device(device));
}

}  // namespace piper
