#include "tools/trace_command.h"

#include "tools/commands.h"
#include "trace/chrome.h"
#include "trace/compare.h"

namespace piper {
namespace {

Result<std::string> difference(const TraceDiffCommand& command) {
  PIPER_TRY(const Trace predicted, load_trace(command.predicted));
  PIPER_TRY(const Trace measured, load_trace(command.measured));
  PIPER_TRY(const TraceComparison comparison, compare(predicted, measured));
  return command.format == "json" ? print_json(comparison) : print(comparison);
}

}  // namespace

int run(const TraceDiffCommand& command) {
  auto text = difference(command);
  if (!text) return report(command.format, command.color, text.error());
  put(*text);
  return fine;
}

}  // namespace piper
