#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text_table.h"
#include "compile/timeline_of.h"
#include "schedule/schedule_text.h"

namespace piper {
namespace {

/// Background colours by pass; odd stages of a device in a darker shade.
int background(Pass pass, int shade) {
  constexpr int light[] = {111, 150, 116, 222, 183}, dark[] = {68, 107, 73, 179, 140};
  return (shade % 2 == 0 ? light : dark)[static_cast<int>(pass)];
}

char letter(Pass pass) {
  return pass == Pass::BI ? 'I' : pass == Pass::BW ? 'W' : name(pass)[0];
}

enum class Label { Shown, Hidden };  // hidden: the cell began on the page before

std::string block(const TimelineOp& op, size_t width, int shade, Label label, GridColor color) {
  std::string text = label == Label::Shown ? fmt::format("{}{}", letter(op.pass), op.microbatch) : "";
  if (text.size() > width) text = text.substr(text.size() - width);
  text.resize(width, color == GridColor::Ansi ? ' ' : '-');
  if (color == GridColor::None || width == 0) return text;
  return fmt::format("\x1b[30;48;5;{}m{}\x1b[0m", background(op.pass, shade), text);
}

/// One row of the picture between two columns of the time axis.
std::string draw(const TimedRow& row, double seconds_per_column, int from, int to, GridColor color) {
  int lowest = std::numeric_limits<int>::max();
  for (const TimedCell& cell : row.cells) lowest = std::min(lowest, cell.cell.first.stage);
  std::string out;
  int at = from;
  for (const TimedCell& cell : row.cells) {
    const int begin = std::max(at, static_cast<int>(std::lround(cell.start / seconds_per_column)));
    const int end = std::min(to, static_cast<int>(std::lround(cell.end / seconds_per_column)));
    if (end <= begin || begin >= to) continue;
    out.append(static_cast<size_t>(begin - at), '.');
    const auto width = static_cast<size_t>(end - begin);
    const Label label = std::lround(cell.start / seconds_per_column) < from ? Label::Hidden : Label::Shown;
    const auto shade = [&](const TimelineOp& op) { return op.stage == lowest ? 0 : 1; };
    if (cell.cell.second && width > 1) {
      out += block(cell.cell.first, width / 2, shade(cell.cell.first), label, color) +
             block(*cell.cell.second, width - width / 2, shade(*cell.cell.second), label, color);
    } else {
      out += block(cell.cell.first, width, shade(cell.cell.first), label, color);
    }
    at = end;
  }
  out.append(static_cast<size_t>(to - at), '.');
  return out;
}

/// Wide enough that a typical cell shows its number.
double column_seconds(const std::vector<TimedRow>& rows) {
  std::vector<double> durations;
  for (const TimedRow& row : rows)
    for (const TimedCell& cell : row.cells) durations.push_back((cell.end - cell.start) / (cell.cell.second ? 2 : 1));
  std::nth_element(durations.begin(), durations.begin() + static_cast<long>(durations.size() / 4), durations.end());
  return std::max(durations[durations.size() / 4] / 3, 1e-12);
}

}  // namespace

std::string print_grid(const std::vector<TimedRow>& rows, int columns, GridColor color) {
  size_t label_width = 0;
  double end = 0;
  for (const TimedRow& row : rows) {
    label_width = std::max(label_width, print_devices(row.devices).size());
    if (!row.cells.empty()) end = std::max(end, row.cells.back().end);
  }
  if (end <= 0) return "";
  const double per_column = std::max(column_seconds(rows), end / 100'000);
  const int total = static_cast<int>(std::ceil(end / per_column));
  const int page = std::max(20, columns - static_cast<int>(label_width) - 2);
  std::string out;
  for (int from = 0; from < total; from += page) {
    for (const TimedRow& row : rows) {
      const std::string label = print_devices(row.devices);
      out += label + std::string(label_width - label.size() + 2, ' ') +
             draw(row, per_column, from, std::min(total, from + page), color) + "\n";
    }
    if (from + page < total) out += "\n";
  }
  double busy = 0;
  for (const TimedRow& row : rows)
    for (const TimedCell& cell : row.cells) busy += cell.end - cell.start;
  out += fmt::format(
      "F forward, B backward, I and W its two parts; the number is the microbatch; . is idle ({:.0f} % of the time "
      "shown)\n",
      100 * (1 - busy / (end * static_cast<double>(rows.size()))));
  return out;
}

}  // namespace piper
