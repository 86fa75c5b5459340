// libFuzzer target: cost tables are read, printed and read again.
#include <cstdint>
#include <string>

#include "base/invariant.h"
#include "cost/cost_table.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace piper;
  const auto table = parse_cost_table(make_source("fuzz", std::string(reinterpret_cast<const char*>(data), size)));
  if (!table) return 0;
  const auto again = parse_cost_table(make_source("printed", print(*table)));
  invariant(again && *again == *table, "a cost table reads back equal");
  return 0;
}
