// libFuzzer target: schedules in JSON are read, written and read again.
#include <cstdint>
#include <string>

#include "base/invariant.h"
#include "schedule/json_schedule.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace piper;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto schedule = parse_json_schedule(make_source("fuzz", text));
  if (!schedule) return 0;
  const auto printed = print_json_schedule(*schedule);
  if (!printed) return 0;
  const auto again = parse_json_schedule(make_source("printed", *printed));
  invariant(again && *again == *schedule, "a JSON schedule reads back equal");
  return 0;
}
