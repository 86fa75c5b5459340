#include "tools/plot_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/bytes.h"
#include "base/read_file.h"
#include "base/write_file.h"
#include "page/plot_page.h"
#include "tools/commands.h"
#include "tools/on_choice.h"

namespace piper {
namespace {

using nlohmann::ordered_json;

constexpr size_t largest_metrics = size_t{4} << 30;

Diagnostic bad_line(const SourceFilePtr& file, size_t begin, size_t end, const std::string& what) {
  return error(ErrorCode::E106, {file, static_cast<int>(begin), static_cast<int>(end)}, what)
      .help("piper plot reads what --metrics of piper train and piper.callbacks.MetricsFile write");
}

std::string about(const ordered_json& head) {
  const auto text = [&](const char* key) {
    const auto found = head.find(key);
    return found == head.end() || found->is_null() ? std::string()
           : found->is_string()                    ? found->get<std::string>()
                                                   : found->dump();
  };
  std::string out = text("model");
  if (!text("parameters").empty()) out += fmt::format(", {} parameters", text("parameters"));
  if (!text("devices").empty()) out += fmt::format(", {} device{}", text("devices"), text("devices") == "1" ? "" : "s");
  if (!text("schedule").empty()) out += fmt::format(", {}", text("schedule"));
  if (!text("plan_hash").empty()) out += fmt::format(", plan {}", text("plan_hash"));
  return out;
}

void add_point(const std::string& name, double step, const ordered_json& value, PlotRun& run) {
  if (!value.is_number()) return;
  auto curve = std::ranges::find(run.curves, name, &PlotCurve::name);
  if (curve == run.curves.end()) curve = run.curves.insert(curve, {name, {}});
  curve->points.emplace_back(step, value.get<double>());
}

/// Whether the line is a step.
bool add_step(const ordered_json& line, PlotRun& run) {
  if (!line.is_object() || !line.contains("step") || !line["step"].is_number()) return false;
  const double step = line["step"].get<double>();
  for (const auto& [key, value] : line.items())
    if (key != "step" && key != "tokens") add_point(key, step, value, run);
  return true;
}

/// Whether the line is an evaluation. Its numbers have curves of their own, beside those of steps.
bool add_evaluation(const ordered_json& line, PlotRun& run) {
  if (!line.is_object() || !line.contains("evaluation")) return false;
  const ordered_json& found = line["evaluation"];
  if (!found.is_object() || !found.contains("steps") || !found["steps"].is_number()) return false;
  const double steps = found["steps"].get<double>();
  for (const auto& [key, value] : found.items())
    if (key == "loss" || key == "perplexity" || key.starts_with("metric."))
      add_point("evaluation." + key, steps, value, run);
  return true;
}

/// A file has the runs that were appended to it, one after the other.
Checked add_runs(const std::string& path, std::vector<PlotRun>& runs) {
  PIPER_TRY(const SourceFilePtr file, read_file(path, "metrics", largest_metrics));
  const std::string_view text = file->text;
  int here = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const ordered_json line = ordered_json::parse(text.substr(begin, end - begin), nullptr, false);
    const bool last = end == text.size();  // without its end: a run is writing it
    if (line.is_object() && line.value("format", "") == "piper-metrics") {
      ++here;
      runs.push_back({here == 1 ? path : fmt::format("{}, run {}", path, here), about(line), {}});
    } else if (here == 0) {
      return bad_line(file, begin, end, "this is no file of metrics");
    } else if (!add_step(line, runs.back()) && !add_evaluation(line, runs.back()) && !last && end > begin) {
      return bad_line(file, begin, end, "this line is neither a step nor an evaluation of a run");
    }
    begin = end + 1;
  }
  if (here == 0) return bad_line(file, 0, 0, "this is no file of metrics");
  return Ok{};
}

}  // namespace

int run(const PlotCommand& command) {
  std::vector<PlotRun> runs;
  for (const std::string& path : command.metrics)
    if (auto added = add_runs(path, runs); !added) return report_text(added.error(), command.color);
  const std::string page = plot_page(runs);
  if (command.output == "-") {
    put(page);
    return fine;
  }
  if (auto written = write_file(command.output, page); !written) {
    report_text(written.error(), command.color);
    return run_failed;
  }
  fmt::print("{}: {}\n", command.output, human_bytes(static_cast<int64_t>(page.size())));
  return fine;
}

void add_plot(CLI::App& program, std::function<int()>& chosen, bool color) {
  CLI::App* plot = program.add_subcommand("plot", "Make a page with the curves of training runs: loss, speed, memory");
  const auto command = on_choice(*plot, chosen, PlotCommand{{}, "", color});
  plot->add_option("METRICS", command->metrics, "Files that --metrics wrote; curves of all their runs are in one page")
      ->required();
  plot->add_option("-o,--output", command->output, "File to write; - is the standard output")->required();
  plot->add_flag("--color,!--no-color", command->color, "Colours (default: only on a terminal)");
  plot->footer("Example:\n  piper plot metrics.jsonl other.jsonl -o page.html");
}

}  // namespace piper
