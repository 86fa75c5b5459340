// libFuzzer target: a model, a line of dashes and a schedule are compiled to verified plans.
#include <cstdint>
#include <string>

#include <memory>

#include "compile/compile.h"
#include "model/model_text.h"
#include "schedule/schedule_text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace piper;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const size_t border = text.find("---\n");
  if (border == std::string::npos) return 0;
  auto model = parse_model(make_source("model", text.substr(0, border)));
  const auto schedule = parse_schedule(make_source("schedule", text.substr(border + 4)));
  if (!model || !schedule) return 0;
  const bool compiled = static_cast<bool>(compile(std::make_shared<const ModelGraph>(*std::move(model)), *schedule));
  static_cast<void>(compiled);
  return 0;
}
