// Interleaved zero bubble: interleaved 1F1B with a shorter warm-up, and W postponed by as many I as the rank's number.
//   rank 1 of 2, 2 microbatches, 1 stage per rank:  1F0 1I0 1F1 1I1 1W0 1W1
// Loop, v >= 1. Any m without --group; with groups of g: m <= g or g >= p.
// m % p == 0 and w <= min(f, i): (p-1)(f+i-w) from a rank's first to its last pass; keeps v p activations until W.
#include "timelines/generator.h"
#include "timelines/interleave.h"

namespace piper::timelines {
namespace {

bool is_legal_group_interleaved_zb(const TimelineRequest& request) {
  return request.microbatches <= *request.group || *request.group >= request.ranks;
}

Checked check_interleaved_zb(const TimelineRequest& request, const SourceRange& where) {
  return check_group("interleaved-zb", request, where, is_legal_group_interleaved_zb);
}

}  // namespace

Generator interleaved_zb() {
  return {{.name = "interleaved-zb",
           .title = "Interleaved zero bubble",
           .paper = "Qi et al. 2023, arXiv:2401.10241, as in torch.distributed.pipelining",
           .placement = StagePlacement::Loop,
           .default_stages_per_rank = 2,
           .sizes = "any; with --group g: m <= g or g >= p",
           .bubble = "(p-1)(f+i-w) for m % p = 0, w <= min(f, i)",
           .memory = "v p for m % p = 0",
           .takes_stages_per_rank = true,
           .takes_group = true},
          check_interleaved_zb,
          [](const TimelineRequest& request) { return interleaved(request, Backward::Split); }};
}

}  // namespace piper::timelines
