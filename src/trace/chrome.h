// The file form of a trace: Chrome's trace events, which Perfetto and chrome://tracing open too. docs/trace.md has the
// fields.
#pragma once

#include <cstdio>
#include <string>

#include "base/result.h"
#include "trace/trace.h"

namespace piper {

/// Every number and every text exactly: parse_chrome gives back an equal trace. Text that is no UTF-8 is mended first.
std::string print_chrome(const Trace& trace);

/// The same, a piece at a time. False: the file does not take it (errno).
bool write_chrome(const Trace& trace, std::FILE* file);

/// E106: no JSON; E501: JSON, but no trace of Piper's; E502: of another version; E503: something in it cannot be; E113:
/// too large.
Result<Trace> parse_chrome(const SourceFilePtr& file);

/// Reads a file that a user named; E108 if it cannot be read.
Result<Trace> load_trace(const std::string& path);

}  // namespace piper
