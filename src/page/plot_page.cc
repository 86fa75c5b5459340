#include "page/plot_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "page/plain_page.h"

namespace piper {
namespace {

constexpr double width = 560, height = 240, left = 64, right = 12, top = 10, bottom = 26;
constexpr size_t most_points = 1000;  // of a curve: more are put together
constexpr std::array colors = {"#0b62a8", "#d1601d", "#2c8a4b", "#8e44ad", "#b8860b", "#c0392b", "#16807a", "#6b7280"};

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  void take(double x) {
    low = std::min(low, x);
    high = std::max(high, x);
  }
};

/// Means of neighbours, so that a long run is a short file.
std::vector<std::pair<double, double>> thinned_out(const std::vector<std::pair<double, double>>& points) {
  const size_t together = (points.size() + most_points - 1) / most_points;
  if (together <= 1) return points;
  std::vector<std::pair<double, double>> out;
  for (size_t first = 0; first < points.size(); first += together) {
    const size_t past = std::min(first + together, points.size());
    double sum = 0;
    for (size_t i = first; i < past; ++i) sum += points[i].second;
    out.emplace_back(points[past - 1].first, sum / static_cast<double>(past - first));
  }
  return out;
}

/// 1, 2 or 5 times a power of ten, about four of them in the range.
std::vector<double> round_numbers(const Range& range) {
  const double rough = (range.high - range.low) / 4, power = std::pow(10, std::floor(std::log10(rough)));
  const double unit = rough / power < 1.5   ? power
                      : rough / power < 3.5 ? 2 * power
                      : rough / power < 7.5 ? 5 * power
                                            : 10 * power;
  std::vector<double> out;
  for (double tick = std::ceil(range.low / unit) * unit; tick <= range.high + unit * 1e-9 && out.size() < 12;
       tick += unit)
    out.push_back(std::abs(tick) < unit * 1e-9 ? 0 : tick);
  return out;
}

std::string chart(const std::vector<PlotRun>& runs, const std::string& name) {
  std::vector<std::pair<size_t, std::vector<std::pair<double, double>>>> curves;  // by run
  Range steps, values;
  for (size_t r = 0; r < runs.size(); ++r)
    for (const PlotCurve& curve : runs[r].curves)
      if (curve.name == name && !curve.points.empty()) curves.emplace_back(r, thinned_out(curve.points));
  for (const auto& [run, points] : curves)
    for (const auto& [step, value] : points) steps.take(step), values.take(value);
  if (curves.empty()) return "";
  for (Range* range : {&steps, &values})
    if (range->high - range->low < 1e-12 * std::max(1.0, std::abs(range->high))) range->low -= 0.5, range->high += 0.5;
  const auto x = [&](double step) {
    return left + (step - steps.low) / (steps.high - steps.low) * (width - left - right);
  };
  const auto y = [&](double value) {
    return height - bottom - (value - values.low) / (values.high - values.low) * (height - top - bottom);
  };
  std::string out =
      fmt::format("<figure><figcaption>{}</figcaption><svg viewBox=\"0 0 {} {}\" width=\"{}\" height=\"{}\">\n",
                  escaped_text(name), width, height, width, height);
  for (const double tick : round_numbers(values))
    out += fmt::format(
        "<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/><text x=\"{}\" y=\"{:.1f}\" "
        "text-anchor=\"end\">{:.4g}</text>\n",
        left, width - right, y(tick), y(tick), left - 6, y(tick) + 4, tick);
  for (const double tick : round_numbers(steps))
    out += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{:g}</text>\n", x(tick), height - 8, tick);
  for (const auto& [run, points] : curves) {
    std::string path;
    for (const auto& [step, value] : points)
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", x(step), y(value));
    out += fmt::format("<path stroke=\"{}\" d=\"{}\"><title>{}</title></path>\n", colors[run % colors.size()], path,
                       escaped_text(runs[run].label));
  }
  return out + "</svg></figure>\n";
}

}  // namespace

std::string plot_page(const std::vector<PlotRun>& runs) {
  std::vector<std::string> names;
  for (const PlotRun& run : runs)
    for (const PlotCurve& curve : run.curves)
      if (std::find(names.begin(), names.end(), curve.name) == names.end()) names.push_back(curve.name);
  std::string out = "<h1>Training runs, by step</h1>\n<div class=\"runs\">\n";
  for (size_t r = 0; r < runs.size(); ++r)
    out += fmt::format("<i style=\"background: {}\"></i><b>{}</b><span>{}</span>\n", colors[r % colors.size()],
                       escaped_text(runs[r].label), escaped_text(runs[r].about));
  out += "</div>\n<div class=\"charts\">\n";
  for (const std::string& name : names) out += chart(runs, name);
  return plain_page(fmt::format("Piper: {} run{}", runs.size(), runs.size() == 1 ? "" : "s"), out + "</div>\n");
}

}  // namespace piper
