#include "tools/card_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "base/bytes.h"
#include "base/time_text.h"
#include "tools/schedule_svg.h"
#include "trace/summary.h"

namespace piper {
namespace {

constexpr double margin = 32, line_height = 18, most_lines = 12;

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
  return out;
}

/// The directives that operations come from, in the order of their file.
struct ScheduleText {
  std::string name;
  std::vector<std::string> lines;
};
ScheduleText schedule_of(const Trace& trace) {
  struct Line {
    std::string file;
    int number = 0;
    std::string text;
  };
  std::vector<Line> lines;
  for (const TraceOrigin& origin : trace.origins) {
    const size_t colon = std::min(origin.place.rfind(':'), origin.place.size());
    Line line{origin.place.substr(0, colon), 0, origin.text};
    if (colon < origin.place.size())
      std::from_chars(origin.place.data() + colon + 1, origin.place.data() + origin.place.size(), line.number);
    lines.push_back(std::move(line));
  }
  std::stable_sort(lines.begin(), lines.end(), [](const Line& a, const Line& b) {
    return a.file != b.file ? a.file < b.file : a.number < b.number;
  });
  ScheduleText out;
  if (!lines.empty()) out.name = std::filesystem::path(lines[0].file).stem().string();
  for (Line& line : lines) out.lines.push_back(std::move(line.text));
  return out;
}

std::string text(double x, double y, double size, std::string_view style, std::string_view what) {
  return fmt::format("<text x=\"{:.0f}\" y=\"{:.0f}\" font-size=\"{}\" {}>{}</text>\n", x, y, size, style,
                     escaped(what));
}

std::string change(double before, double after) {
  return before > 0 ? fmt::format("{:+.1f} %", 100 * (after / before - 1)) : "";
}

/// `change`: against the first trace; empty on the first. `over`: more than there is.
struct Number {
  std::string value, name, change;
  bool over = false;
};
std::string memory_name(int64_t peak, int64_t capacity) {
  if (capacity <= 0) return "peak memory";
  return (peak > capacity ? "does not fit in " : "peak memory of ") + human_bytes(capacity);
}
std::vector<Number> numbers_of(const TraceSummary& s, int64_t capacity, const TraceSummary* first) {
  const auto percent = [](double share) { return fmt::format("{:.1f} %", 100 * share); };
  const auto changed = [&](double TraceSummary::*field) { return first ? change(first->*field, s.*field) : ""; };
  std::vector<Number> out = {{human_seconds(s.seconds), "step", changed(&TraceSummary::seconds)}};
  if (s.mfu > 0) out.push_back({percent(s.mfu), "MFU", changed(&TraceSummary::mfu)});
  out.push_back({percent(s.bubble), "bubble", changed(&TraceSummary::bubble)});
  if (s.peak_bytes > 0)
    out.push_back({human_bytes(s.peak_bytes), memory_name(s.peak_bytes, capacity),
                   first ? change(static_cast<double>(first->peak_bytes), static_cast<double>(s.peak_bytes)) : "",
                   capacity > 0 && s.peak_bytes > capacity});
  return out;
}

std::string cut(const std::string& line, double width) {
  const auto most = static_cast<size_t>(std::max(8.0, width / 7.9));
  return line.size() <= most ? line : line.substr(0, most - 1) + "…";
}

SvgPart section(const Trace& trace, const TraceSummary* first, double width, double seconds, bool named) {
  const ScheduleText schedule = schedule_of(trace);
  const TraceSummary summary = summarize(trace)[0];
  const int64_t capacity = trace.capacity.empty() ? 0 : *std::min_element(trace.capacity.begin(), trace.capacity.end());
  SvgPart out;
  double y = 0;
  if (named) {
    out.text +=
        text(margin, 22, 18, "font-weight=\"700\" fill=\"#222\"", schedule.name.empty() ? trace.source : schedule.name);
    y = 34;
  }
  const double half = (width - 2 * margin) * 0.52;
  const size_t lines = std::min<size_t>(schedule.lines.size(), most_lines);
  for (size_t i = 0; i < lines; ++i)
    out.text +=
        text(margin, y + line_height * static_cast<double>(i + 1), 13, "font-family=\"monospace\" fill=\"#444\"",
             i + 1 == most_lines && schedule.lines.size() > lines
                 ? fmt::format("… and {} more", schedule.lines.size() - lines + 1)
                 : cut(schedule.lines[i], half));
  const std::vector<Number> numbers = numbers_of(summary, capacity, first);
  const double room = (width - 2 * margin - half - 24) / 2;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const double x = margin + half + 24 + room * static_cast<double>(i % 2),
                 at = y + 34 + 66 * static_cast<double>(i / 2);
    out.text +=
        text(x, at, 32, numbers[i].over ? "font-weight=\"700\" fill=\"#d00030\"" : "font-weight=\"700\" fill=\"#111\"",
             numbers[i].value);
    out.text += text(x, at + 19, 13, "fill=\"#666\"",
                     numbers[i].name + (numbers[i].change.empty() ? "" : "  " + numbers[i].change));
  }
  y += std::max(line_height * static_cast<double>(lines), 66.0 * static_cast<double>((numbers.size() + 1) / 2)) + 12;
  const SvgPart grid = schedule_part(trace, width - 2 * margin + 16, seconds, PictureTime::Seconds);
  out.text += fmt::format("<g transform=\"translate({} {:.0f})\">\n{}</g>\n", margin, y, grid.text);
  out.height = y + grid.height;
  return out;
}

}  // namespace

std::string card_svg(const std::vector<Trace>& traces, int width) {
  double seconds = 1e-12;
  size_t devices = 0;
  for (const Trace& trace : traces) seconds = std::max(seconds, summarize(trace)[0].seconds);
  for (const std::vector<int>& lane : traces[0].lanes) devices += lane.size();
  SvgPart card;
  card.text =
      text(margin, 48, 28, "font-weight=\"700\" fill=\"#111\"", traces[0].model.empty() ? "Piper" : traces[0].model);
  card.text += text(width - margin, 48, 15, "text-anchor=\"end\" fill=\"#666\"",
                    fmt::format("{}{} devices{}", traces[0].source.empty() ? "" : traces[0].source + ", ", devices,
                                traces[0].cluster.empty() ? "" : " of " + traces[0].cluster));
  card.height = 72;
  const TraceSummary first = summarize(traces[0])[0];
  for (size_t i = 0; i < traces.size(); ++i) {
    const SvgPart part = section(traces[i], i == 0 ? nullptr : &first, width, seconds, traces.size() > 1);
    card.text += fmt::format("<g transform=\"translate(0 {:.0f})\">\n{}</g>\n", card.height, part.text);
    card.height += part.height + 12;
  }
  return whole_svg(card, width);
}

}  // namespace piper
