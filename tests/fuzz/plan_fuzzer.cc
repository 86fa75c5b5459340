// libFuzzer target: plans are read, verified, printed and read again.
#include <cstdint>
#include <string>

#include "base/invariant.h"
#include "plan/memory_report.h"
#include "plan/plan_text.h"
#include "plan/verify_plan.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace piper;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto plan = parse_plan(make_source("fuzz", text));
  if (!plan) return 0;
  const auto again = parse_plan(make_source("printed", print(*plan)));
  invariant(again && *again == *plan, "a plan reads back equal");
  if (verify(*plan)) memory_table(*plan);
  return 0;
}
