// libFuzzer target: schedules in text form are read, printed and read again.
#include <cstdint>
#include <string>

#include "base/invariant.h"
#include "schedule/schedule_text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace piper;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto schedule = parse_schedule(make_source("fuzz", text));
  if (!schedule) return 0;
  const auto again = parse_schedule(make_source("printed", print(*schedule)));
  invariant(again && *again == *schedule, "a schedule reads back equal");
  return 0;
}
