#include "runtime/draw/draw_operator.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include "base/invariant.h"
#include "runtime/frame.h"

namespace piper {
namespace {

void draw_on_host(const at::Tensor& into, int64_t kind, double a, double b, int64_t start, c10::IntArrayRef steps,
                  const at::Tensor& words) {
  DrawPlace place = place_in(into, start, steps);
  const auto* const given = words.const_data_ptr<int64_t>();
  place.samples = {given + 1, static_cast<size_t>(words.numel()) - 1};
  draw({static_cast<Distribution>(kind), a, b}, *dtype_of(into.scalar_type()), into.mutable_data_ptr(), place,
       static_cast<uint64_t>(given[0]));
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(piper, m) {
  m.def("draw_(Tensor(a!) into, int kind, float a, float b, int start, int[] steps, Tensor words) -> ()");
}
TORCH_LIBRARY_IMPL(piper, CPU, m) {
  m.impl("draw_", draw_on_host);
}

void draw_into(const at::Tensor& into, const Drawing& drawing, int64_t start, c10::IntArrayRef steps,
               const at::Tensor& words) {
  static const auto op =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("piper::draw_", "")
          .typed<void(const at::Tensor&, int64_t, double, double, int64_t, c10::IntArrayRef, const at::Tensor&)>();
  op.call(into, static_cast<int64_t>(drawing.kind), drawing.a, drawing.b, start, steps, words);
}

DrawPlace place_in(const at::Tensor& into, int64_t start, c10::IntArrayRef steps) {
  invariant(static_cast<int64_t>(steps.size()) == 3 * into.dim(), "every dimension has three steps");
  DrawPlace place{start, {}, {}};
  for (int64_t d = 0; d < into.dim(); ++d) {
    const auto at = static_cast<size_t>(3 * d);
    place.dims.push_back({into.size(d), into.stride(d), steps[at], steps[at + 1], steps[at + 2]});
  }
  return place;
}

}  // namespace piper
