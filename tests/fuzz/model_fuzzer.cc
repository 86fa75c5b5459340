// libFuzzer target: models in text form are read, verified, printed and read again.
#include <cstdint>
#include <string>

#include "base/invariant.h"
#include "model/model_text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace piper;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto model = parse_model(make_source("fuzz", text));
  if (!model) return 0;
  const auto again = parse_model(make_source("printed", print(*model)));
  invariant(again && *again == *model, "a model reads back equal");
  return 0;
}
