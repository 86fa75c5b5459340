#include "tools/view_command.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/write_file.h"
#include "page/page.h"
#include "tools/card_svg.h"
#include "tools/commands.h"
#include "tools/schedule_svg.h"
#include "tools/svg_to_png.h"
#include "trace/chrome.h"
#include "trace/compare.h"
#include "trace/summary.h"

namespace piper {
namespace {

using nlohmann::ordered_json;

/// How a trace differs from the first, for the page's table; if they are not of one plan, only the steps.
std::string comparison(const Trace& first, const Trace& other) {
  CompareOptions options;
  options.most = 40;
  if (auto compared = compare(first, other, options)) {
    ordered_json all = ordered_json::parse(print_json(*compared));
    return ordered_json{{"operations", all["operations"]},
                        {"step", all["step"]},
                        {"kinds", all["kinds"]},
                        {"passes", all["passes"]},
                        {"largest", all["largest_absolute"]},
                        {"divergence", all["first_divergence"]}}
        .dump();
  } else {
    const Compared step{"step", summarize(first)[0].seconds, summarize(other)[0].seconds};
    ordered_json out = {{"operations", nullptr},
                        {"why", "Operations are not compared: " + compared.error().message + "."}};
    out["step"] = {{"predicted", step.predicted}, {"measured", step.measured}, {"difference", step.difference()}};
    out["step"]["relative"] = step.relative() ? ordered_json(*step.relative()) : ordered_json();
    return out.dump();
  }
}

Result<std::string> make_output(const ViewCommand& command) {
  std::vector<PageTrace> traces;
  for (const std::string& path : command.traces) {
    PIPER_TRY(Trace trace, load_trace(path));
    if (trace.lanes.empty())
      return error(ErrorCode::E503, {}, fmt::format("the trace \"{}\" has no lanes", path))
          .help("write a trace of a step that runs on at least one device");
    traces.push_back({std::filesystem::path(path).stem().string(), std::move(trace)});
  }
  if (command.card) {
    std::vector<Trace> steps;
    for (PageTrace& trace : traces) steps.push_back(std::move(trace.trace));
    const std::string card = card_svg(steps, command.width.value_or(1200));
    if (command.output.ends_with(".png")) return svg_to_png(card);
    return card;
  }
  if (command.output.ends_with(".svg")) return schedule_svg(traces[0].trace, {command.width, PictureTime::Seconds});
  for (size_t i = 1; i < traces.size(); ++i) traces[i].comparison = comparison(traces[0].trace, traces[i].trace);
  return make_page(traces);
}

}  // namespace

int run(const ViewCommand& command) {
  auto text = make_output(command);
  if (!text) return report_text(text.error(), command.color);
  if (command.output == "-") {
    put(*text);
    return fine;
  }
  if (auto written = write_file(command.output, *text); !written) {
    report_text(written.error(), command.color);
    return run_failed;
  }
  fmt::print("{}: {}\n", command.output, human_bytes(static_cast<int64_t>(text->size())));
  return fine;
}

}  // namespace piper
