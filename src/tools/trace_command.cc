#include "tools/trace_command.h"

#include <algorithm>

#include "base/read_file.h"
#include "base/write_file.h"
#include "tools/commands.h"
#include "trace/chrome.h"
#include "trace/compare.h"
#include "trace/flight_file.h"

namespace piper {
namespace {

Result<std::string> difference(const TraceDiffCommand& command) {
  PIPER_TRY(const Trace predicted, load_trace(command.predicted));
  PIPER_TRY(const Trace measured, load_trace(command.measured));
  PIPER_TRY(const TraceComparison comparison, compare(predicted, measured));
  return command.format == "json" ? print_json(comparison) : print(comparison);
}

Result<std::vector<FlightFile>> read_flights(const std::vector<std::string>& names) {
  std::vector<FlightFile> out;
  for (const std::string& name : names) {
    PIPER_TRY(const SourceFilePtr file, read_file(name, "the record of a run"));
    PIPER_TRY(FlightFile flight, parse_flight_file(file));
    out.push_back(std::move(flight));
  }
  std::sort(out.begin(), out.end(), [](const FlightFile& a, const FlightFile& b) { return a.rank < b.rank; });
  return out;
}

}  // namespace

int run(const TraceFlightCommand& command) {
  auto flights = read_flights(command.files);
  if (!flights) return report_text(flights.error(), command.color);
  auto trace = as_trace(*flights);
  if (!trace) return report_text(trace.error(), command.color);
  if (!command.output.empty())
    if (auto written = write_file(command.output, print_chrome(*trace)); !written)
      return report_text(written.error(), command.color);
  put(describe(*flights, command.operations));
  return fine;
}

int run(const TraceDiffCommand& command) {
  auto text = difference(command);
  if (!text) return report(command.format, command.color, text.error());
  put(*text);
  return fine;
}

}  // namespace piper
