// Timelines as torch.distributed.pipelining exchanges them: one line per rank, cells in order, commas between them:
// `0F0,(1F3;0B1)OVERLAP_F_B,2W3`, with communication `0F0,0SEND_F0,0RECV_B0,0B0`.
#pragma once

#include <string>

#include "base/result.h"
#include "timelines/timeline_source.h"

namespace piper {

/// One line per rank, no header, no empty cells; ends with a newline.
std::string print_csv(const Timeline& timeline);
std::string print_csv(const ActionTimeline& timeline);

/// Empty cells are idle steps and are skipped. E101 at a cell that cannot be read.
Result<ParsedTimeline> parse_csv_actions(const SourceFilePtr& file);
/// The passes only: communication is read and left out.
Result<Timeline> parse_csv(const SourceFilePtr& file);

}  // namespace piper
