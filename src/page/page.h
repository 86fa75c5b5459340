// The timeline page: one HTML file that needs nothing else.
#pragma once

#include <string>
#include <vector>

#include "page/pack_trace.h"

namespace piper {

/// The modules of web/ as an import map of data: URLs (a page opened from a file may not import files), and the traces.
/// Text of a trace is only ever inside the packed data.
std::string make_page(const std::vector<PageTrace>& traces);

}  // namespace piper
