// front_svg: time against memory, one point for each schedule that was simulated.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/bytes.h"
#include "base/time_text.h"
#include "search/answer.h"

namespace piper {
namespace {

constexpr double width = 640, height = 400, left = 80, right = 20, top = 20, bottom = 50;

/// From a range of values to places in the picture.
struct Scale {
  double low, high, first, last;
  double operator()(double value) const { return first + (value - low) / (high - low) * (last - first); }
};

/// With some room on both sides, and never empty.
Scale scale_of(double low, double high, double first, double last) {
  const double room = std::max(0.05 * (high - low), 1e-3 * high + 1e-9);
  return {std::max(0.0, low - room), high + room, first, last};
}

std::string text(double x, double y, std::string_view anchor, const std::string& words) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor, words);
}

/// What the reader sees who points at it.
std::string in_one_line(const Evaluated& made) {
  return fmt::format("{}, {}: {}", human_seconds(made.report.seconds), human_bytes(made.memory.total), in_short(made));
}

/// Names of files may have any characters.
std::string markup(const std::string& words) {
  std::string out;
  for (const char c : words) out += c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c);
  return out;
}

}  // namespace

std::string front_svg(const Problem& problem, const SearchResult& result) {
  const std::vector<const Evaluated*> front = pareto_front(result);
  double fastest = INFINITY, slowest = 0, least = INFINITY, most = 0;
  for (const Evaluated& made : result.evaluated) {
    fastest = std::min(fastest, made.report.seconds), slowest = std::max(slowest, made.report.seconds);
    least = std::min(least, static_cast<double>(made.memory.total));
    most = std::max(most, static_cast<double>(made.memory.total));
  }
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
      width, height);
  if (!result.evaluated.empty()) {
    const Scale x = scale_of(least, most, left, width - right), y = scale_of(fastest, slowest, height - bottom, top);
    out += fmt::format("<path d=\"M{0} {1}V{2}H{3}\" fill=\"none\" stroke=\"#555\"/>\n", left, top, height - bottom,
                       width - right);
    for (const Evaluated& made : result.evaluated)
      out += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"><title>{}</title></circle>\n",
                         x(static_cast<double>(made.memory.total)), y(made.report.seconds),
                         made.fits ? "#56b4e9" : "#bbb", markup(in_one_line(made)));
    std::string path;
    for (const Evaluated* made : front)
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", x(static_cast<double>(made->memory.total)),
                          y(made->report.seconds));
    out += fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"#d55e00\" stroke-width=\"2\"/>\n", path);
    if (const auto& memory = problem.cluster.kinds[0].memory;
        memory && static_cast<double>(*memory) > x.low && static_cast<double>(*memory) < x.high)
      out += fmt::format("<path d=\"M{0:.1f} {1}V{2}\" stroke=\"#777\" stroke-dasharray=\"4\"/>\n",
                         x(static_cast<double>(*memory)), top, height - bottom);
    out += text(left, height - bottom + 18, "start", human_bytes(static_cast<int64_t>(x.low)));
    out += text(width - right, height - bottom + 18, "end", human_bytes(static_cast<int64_t>(x.high)));
    out += text((left + width - right) / 2, height - 12, "middle", "peak memory of a device");
    out += text(left - 6, top + 10, "end", human_seconds(y.high));
    out += text(left - 6, height - bottom, "end", human_seconds(y.low));
    out += text(left - 6, (top + height - bottom) / 2, "end", "step");
  }
  return out + "</svg>\n";
}

}  // namespace piper
