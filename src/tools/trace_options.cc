#include "tools/trace_options.h"

#include <CLI/CLI.hpp>

#include "tools/number_option.h"
#include "tools/on_choice.h"
#include "tools/trace_command.h"
#include "tools/view_command.h"

namespace piper {
void add_trace(CLI::App& program, std::function<int()>& chosen, bool color) {
  CLI::App* trace = program.add_subcommand("trace", "Compare traces, and show the last operations of a failed run");
  trace->require_subcommand(1);
  trace->footer("Example:\n  piper trace diff predicted.json measured.json");
  CLI::App* diff = trace->add_subcommand("diff", "Show where a prediction and a run of the same plan differ");
  const auto command = on_choice(*diff, chosen, TraceDiffCommand{"", "", "text", color});
  diff->add_option("PREDICTED", command->predicted, "Trace that the simulator wrote")->required();
  diff->add_option("MEASURED", command->measured, "Trace that the runtime wrote")->required();
  diff->add_option("--format", command->format, "Output format: text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  diff->add_flag("--color,!--no-color", command->color, "Colours (default: only on a terminal)");
  diff->footer("Example:\n  piper trace diff predicted.json measured.json --format json");

  CLI::App* flight = trace->add_subcommand("flight", "Show the last operations of every process of a failed job");
  const auto flights = on_choice(*flight, chosen, TraceFlightCommand{{}, "", 8, color});
  flight->add_option("FILE", flights->files, "Records of one run: METRICS.rank0.flight, METRICS.rank1.flight, ...")
      ->required();
  flight->add_option("-n,--operations", flights->operations, "Operations to show for every device")
      ->check(whole_number(1, 1'000'000))
      ->capture_default_str();
  flight->add_option("-o,--output", flights->output, "Write all of them as one trace, for `piper view` and Perfetto");
  flight->add_flag("--color,!--no-color", flights->color, "Colours (default: only on a terminal)");
  flight->footer("Example:\n  piper trace flight metrics.jsonl.rank*.flight -o last.json");
}

void add_view(CLI::App& program, std::function<int()>& chosen, bool color) {
  CLI::App* view = program.add_subcommand("view", "Make a page that shows traces: timeline, memory, differences");
  const auto command = on_choice(*view, chosen, ViewCommand{{}, "", false, {}, color});
  view->add_option("TRACE", command->traces, "Traces; several are stacked and compared with the first")->required();
  view->add_option(
          "-o,--output", command->output,
          "File to write: .html is the page, .svg a picture of the schedule (one trace), .png a card; - is the "
          "standard output, for a page or a card")
      ->required();
  view->add_flag("--card", command->card,
                 "A picture for slides (.svg, .png): schedule, numbers, pipeline; of one trace or two");
  view->add_option("--width", command->width,
                   "Width of a picture in pixels (default: a card 1200, others what their labels need)")
      ->check(whole_number(600, 20'000));
  view->add_flag("--color,!--no-color", command->color, "Colours (default: only on a terminal)");
  view->footer(
      "Examples:\n  piper view predicted.json measured.json -o page.html\n  piper view trace.json -o grid.svg\n"
      "  piper view before.json after.json --card -o card.svg");
  view->parse_complete_callback([command] {
    const std::string& output = command->output;
    const bool pixels = output.ends_with(".png"), page = output.ends_with(".html");
    const bool picture = output.ends_with(".svg") || pixels;
    if (!picture && !page && output != "-")
      throw CLI::ValidationError("--output", "the file must end in .html or .svg, that of a card in .svg or .png");
    if (pixels && !command->card)
      throw CLI::ValidationError("--output", "only a card can be a .png; `rsvg-convert` makes one of an .svg");
    if (command->card && page) throw CLI::ValidationError("--card", "is a picture: the file must end in .svg or .png");
    if (command->card && command->traces.size() > 2) throw CLI::ValidationError("--card", "takes one trace or two");
    if (picture && !command->card && command->traces.size() > 1)
      throw CLI::ValidationError("--output", "a picture shows one trace; --card shows two");
    if (command->width && !picture && !command->card) throw CLI::ValidationError("--width", "goes with a picture");
  });
}

}  // namespace piper
