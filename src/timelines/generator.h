// What a file of this folder provides: one timeline, its row in the table, its legal sizes and its order.
#pragma once

#include "timelines/library.h"

namespace piper::timelines {

/// Sizes are at least 1, stages_per_rank is filled in, and options that the timeline does not take are absent.
struct Generator {
  TimelineInfo info;
  /// Refuses sizes that are illegal for this timeline (E314, help names the nearest legal ones).
  Checked (*check)(const TimelineRequest& request, const SourceRange& where);
  /// The order for legal sizes; cannot fail.
  Timeline (*generate)(const TimelineRequest& request);
};

Generator gpipe();
Generator one_f_one_b();
Generator interleaved_1f1b();
Generator looped_bfs();
Generator zb_h1();
Generator interleaved_zb();
Generator zb_h2();
Generator zb_1p();
Generator zb_2p();
Generator zb_v();
Generator dualpipe();
Generator dualpipev();
Generator one_f_one_b_v();
Generator v_half();
Generator v_min();
Generator list();

/// All of them, in the order of the table.
const std::vector<Generator>& generators();

/// The check of timelines that have no illegal sizes.
Checked any_size(const TimelineRequest& request, const SourceRange& where);

}  // namespace piper::timelines
