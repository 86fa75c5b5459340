// A trace as the timeline page carries it: small, and quick to unpack.
#pragma once

#include <string>

#include "trace/trace.h"

namespace piper {

/// A trace of a page. `comparison`: JSON, how it differs from the page's first.
struct PageTrace {
  std::string label;
  Trace trace;
  std::string comparison = "null";
};

/// Base64 of deflated bytes: the length of a header, the header (JSON: names, lanes, rows, numbers of every step), and
/// columns of numbers. Operations are sorted by lane, stream and start, and refer to each other by distance.
/// web/decode.js reads it.
std::string pack(const PageTrace& page);

/// What memory consists of, in the same form. It stands alone, because the page unpacks it only when somebody asks.
std::string pack_buffers(const Trace& trace);

std::string base64(std::string_view bytes);

}  // namespace piper
