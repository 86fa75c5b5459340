// Curves of training runs: one HTML file that needs nothing else.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace piper {

/// Numbers of a run under one name, by step; those that are not known are left out.
struct PlotCurve {
  std::string name;
  std::vector<std::pair<double, double>> points;
};

struct PlotRun {
  std::string label;  // where it comes from
  std::string about;  // model, plan, devices
  std::vector<PlotCurve> curves;
};

/// A chart for every name of a curve, in the order of the first run, with the curves of all runs in it. Text of a run
/// is always escaped.
std::string plot_page(const std::vector<PlotRun>& runs);

}  // namespace piper
