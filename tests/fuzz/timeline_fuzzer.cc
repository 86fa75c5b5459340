// libFuzzer target: timelines of any form are read, checked, lowered and checked again.
#include <cstdint>
#include <string>

#include "base/invariant.h"
#include "timelines/load_timeline.h"
#include "timelines/validate_actions.h"
#include "timelines/with_communication.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace piper;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto parsed = parse_timeline(make_source("fuzz", text));
  if (!parsed) return 0;
  invariant(bool(validate(ParsedTimeline{with_transfers(strip(parsed->actions)), {}})), "what was lowered is sound");
  return 0;
}
