// V-Min: two chunks per rank on a V in the pattern that keeps the least activations, a third of 1F1B.
//   rank 0 of 1, 1 microbatch:  0F0 1F0 1I0 0I0 1W0 0W0
// V, any size. Unit costs: idle 4p-7 if p % 3 = 0, else 4p-5 (p >= 2); keeps 2(floor((p+1)/3)+1) activations until W.
#include "timelines/generator.h"
#include "timelines/v_pattern.h"

namespace piper::timelines {
namespace {

Timeline generate_v_min(const TimelineRequest& request) {
  const int p = request.ranks;
  const int gap = p % 3 == 0 ? 2 : 0;  // without it, passes of two microbatches would meet in one slot
  VPattern pattern;
  for (int r = 0; r < p; ++r) pattern.push_back({r, 2 * p - 1 - r, 2 * p + gap + r, 4 * p + gap - 1 - r});
  return squeeze_v_pattern(pattern, request.microbatches);
}

}  // namespace

Generator v_min() {
  return {{.name = "v-min",
           .title = "V-Min",
           .paper = "Qi et al. 2024, arXiv:2405.15362",
           .placement = StagePlacement::V,
           .default_stages_per_rank = 2,
           .sizes = "any",
           .bubble = "4p-7 for p % 3 = 0, else 4p-5, at f = i = w = 1",
           .memory = "2(floor((p+1)/3)+1)"},
          any_size,
          generate_v_min};
}

}  // namespace piper::timelines
