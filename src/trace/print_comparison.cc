#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "base/text_table.h"
#include "trace/compare.h"

namespace piper {
namespace {

std::string milliseconds(double seconds) {
  return fmt::format("{:.3f}", seconds * 1e3);
}

std::string percent(std::optional<double> part) {
  return part ? fmt::format("{:+.1f} %", *part * 100) : "-";
}

std::string devices_text(const std::vector<int>& devices) {
  constexpr size_t most = 4;
  if (devices.size() <= most) return fmt::format("{}", fmt::join(devices, ","));
  return fmt::format("{} and {} more", devices[0], devices.size() - 1);
}

std::vector<std::string> numbers(const Compared& c) {
  return {milliseconds(c.predicted), milliseconds(c.measured), fmt::format("{:+.3f}", c.difference() * 1e3),
          percent(c.relative())};
}

std::string totals_table(const std::string& what, const std::vector<Compared>& rows) {
  TextTable table({what, "predicted ms", "measured ms", "difference ms", "relative"});
  for (const Compared& row : rows) {
    std::vector<std::string> cells = numbers(row);
    cells.insert(cells.begin(), row.name);
    table.add(std::move(cells));
  }
  return table.print();
}

std::string operations_table(const std::string& what, const std::vector<ComparedOperation>& rows) {
  TextTable table({what, "kind", "device", "op", "stream", "predicted ms", "measured ms", "difference ms", "relative"});
  for (const ComparedOperation& row : rows) {
    std::vector<std::string> cells = {row.duration.name, row.kind, devices_text(row.devices), fmt::format("{}", row.op),
                                      row.stream};
    for (std::string& cell : numbers(row.duration)) cells.push_back(std::move(cell));
    table.add(std::move(cells));
  }
  return table.print();
}

using nlohmann::ordered_json;

ordered_json as_json(const Compared& c) {
  ordered_json out = {
      {"name", c.name}, {"predicted", c.predicted}, {"measured", c.measured}, {"difference", c.difference()}};
  out["relative"] = c.relative() ? ordered_json(*c.relative()) : ordered_json();
  return out;
}

ordered_json as_json(const ComparedOperation& o) {
  ordered_json out = {{"name", o.duration.name}, {"kind", o.kind},           {"devices", o.devices}, {"op", o.op},
                      {"stream", o.stream},      {"start", as_json(o.start)}};
  out["duration"] = as_json(o.duration);
  out["start"].erase("name");
  out["duration"].erase("name");
  return out;
}

template <class Item>
ordered_json as_json(const std::vector<Item>& items) {
  ordered_json out = ordered_json::array();
  for (const Item& item : items) out.push_back(as_json(item));
  return out;
}

}  // namespace

std::string print(const TraceComparison& c) {
  const auto steps = [](int count) { return count == 1 ? "" : fmt::format(" (mean of {} steps)", count); };
  std::string out =
      fmt::format("model {}, plan {}, {} device{}\n", c.model, c.plan, c.devices, c.devices == 1 ? "" : "s");
  out += fmt::format("step: predicted {} ms{}, measured {} ms{}, difference {:+.3f} ms ({})\n",
                     milliseconds(c.step.predicted), steps(c.predicted_steps), milliseconds(c.step.measured),
                     steps(c.measured_steps), c.step.difference() * 1e3, percent(c.step.relative()));
  out += fmt::format("{} operations in both", c.matched);
  if (c.only_predicted) out += fmt::format(", {} only predicted", c.only_predicted);
  if (c.only_measured) out += fmt::format(", {} only measured", c.only_measured);
  out += "\n\nbusy time of a device\n";
  out +=
      totals_table("kind", c.kinds) + "\n" + totals_table("pass", c.passes) + "\n" + totals_table("stream", c.streams);
  if (!c.absolute.empty()) out += "\n" + operations_table("largest differences", c.absolute);
  if (!c.relative.empty()) out += "\n" + operations_table("largest, relative", c.relative);
  if (!c.divergence) return out + "\nno operation ends much earlier or later than predicted\n";
  const ComparedOperation& d = *c.divergence;
  return out + fmt::format(
                   "\nfirst divergence: {} {} (op {} of device {} on {}) starts at {} ms instead of {} ms and takes "
                   "{} ms instead of {} ms\n",
                   d.kind, d.duration.name, d.op, devices_text(d.devices), d.stream, milliseconds(d.start.measured),
                   milliseconds(d.start.predicted), milliseconds(d.duration.measured),
                   milliseconds(d.duration.predicted));
}

std::string print_json(const TraceComparison& c) {
  ordered_json out = {{"version", 1}, {"model", c.model}, {"plan", c.plan}, {"devices", c.devices}};
  out["steps"] = {{"predicted", c.predicted_steps}, {"measured", c.measured_steps}};
  out["step"] = as_json(c.step);
  out["operations"] = {
      {"matched", c.matched}, {"only_predicted", c.only_predicted}, {"only_measured", c.only_measured}};
  out["kinds"] = as_json(c.kinds);
  out["passes"] = as_json(c.passes);
  out["streams"] = as_json(c.streams);
  out["largest_absolute"] = as_json(c.absolute);
  out["largest_relative"] = as_json(c.relative);
  out["first_divergence"] = c.divergence ? as_json(*c.divergence) : ordered_json();
  return out.dump(2) + "\n";
}

}  // namespace piper
