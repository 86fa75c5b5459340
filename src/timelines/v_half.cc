// V-Half: two chunks per rank on a V in a pattern that keeps half of the activations of 1F1B.
//   rank 0 of 1, 1 microbatch:  0F0 1F0 1I0 1W0 0I0 0W0
// V, any size. Unit costs: idle 3p-7 (p even, >= 4) or 3p-4 (p odd, >= 3); keeps 2(floor(p/2)+1) activations until W.
#include "timelines/generator.h"
#include "timelines/v_pattern.h"

namespace piper::timelines {
namespace {

Timeline generate_v_half(const TimelineRequest& request) {
  const int p = request.ranks;
  const int gap = p % 2 == 0 ? 3 : 0;  // without it, passes of two microbatches would meet in one slot
  VPattern pattern;
  for (int r = 0; r < p; ++r) pattern.push_back({2 * r, 3 * p - 2 - r, 3 * p + gap - 1 + 2 * r, 6 * p + gap - 2 - r});
  return squeeze_v_pattern(pattern, request.microbatches);
}

}  // namespace

Generator v_half() {
  return {{.name = "v-half",
           .title = "V-Half",
           .paper = "Qi et al. 2024, arXiv:2405.15362",
           .placement = StagePlacement::V,
           .default_stages_per_rank = 2,
           .sizes = "any",
           .bubble = "3p-7 for even p >= 4, 3p-4 for odd p >= 3, at f = i = w = 1",
           .memory = "2(floor(p/2)+1)"},
          any_size,
          generate_v_half};
}

}  // namespace piper::timelines
