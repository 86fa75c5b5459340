// libFuzzer target: traces are read, written and read again, and compared with themselves.
#include <cstdint>
#include <string>

#include "base/invariant.h"
#include "trace/chrome.h"
#include "trace/compare.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace piper;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto trace = parse_chrome(make_source("fuzz", text));
  if (!trace) return 0;
  const auto again = parse_chrome(make_source("printed", print_chrome(*trace)));
  invariant(again && *again == *trace, "a trace reads back equal");
  if (const auto comparison = compare(*trace, *trace)) print_json(*comparison);
  return 0;
}
