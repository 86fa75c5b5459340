#include "compile/grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <set>

#include "schedule/schedule_text.h"

namespace piper {
namespace {

constexpr int screen = 42;        // lines of a picture with labels
constexpr int two_screens = 120;  // of one with letters

/// One character of the picture. Style 0 is plain, 1 bubble, others are a background.
struct Glyph {
  char character = '.';
  int style = 1;
};
constexpr int plain = 0, bubble = 1;

char letter(Pass pass) {
  return pass == Pass::BI ? 'I' : pass == Pass::BW ? 'W' : name(pass)[0];
}

/// Background by pass; the stages of a device in shades.
int background(Pass pass, size_t chunk) {
  constexpr std::array<std::array<int, 4>, 5> shades = {{
      {153, 111, 75, 69},    // F
      {157, 114, 78, 71},    // B
      {159, 116, 80, 73},    // BI
      {229, 222, 185, 179},  // BW
      {219, 183, 147, 140},  // R
  }};
  return shades[static_cast<size_t>(pass)][chunk % 4];
}

/// What a row's cells are called: F3; on two stages F3 and f3; on more 8F3.
class Labels {
 public:
  explicit Labels(const std::vector<TimedRow>& rows) {
    for (const TimedRow& row : rows) {
      std::set<int>& stages = stages_.emplace_back();
      for (const TimedCell& cell : row.cells) {
        stages.insert(cell.cell.first.stage);
        if (cell.cell.second) stages.insert(cell.cell.second->stage);
      }
      most = std::max(most, stages.size());
    }
  }
  size_t chunk(size_t row, int stage) const {
    return static_cast<size_t>(std::distance(stages_[row].begin(), stages_[row].find(stage)));
  }
  char letter_of(size_t row, const TimelineOp& op) const {
    const char upper = letter(op.pass);
    return most == 2 && chunk(row, op.stage) == 1 ? static_cast<char>(upper - 'A' + 'a') : upper;
  }
  std::string text(size_t row, const TimelineOp& op) const {
    return most > 2 ? print(op) : fmt::format("{}{}", letter_of(row, op), op.microbatch);
  }

  size_t most = 1;  // stages of a device

 private:
  std::vector<std::set<int>> stages_;  // by row
};

/// The columns of the picture that fit on the terminal at once. Columns count from the start of time.
struct Page {
  double per_column = 1;  // time
  int from = 0, to = 0;
  std::vector<std::vector<Glyph>> rows;

  int column(double time) const { return static_cast<int>(std::lround(time / per_column)); }
  void write(size_t row, int at, int until, std::string_view text, int style) {
    for (int i = std::max(at, from); i < std::min(until, to); ++i) {
      const auto offset = static_cast<size_t>(i - at);
      rows[row][static_cast<size_t>(i - from)] = {offset < text.size() ? text[offset] : '-', style};
    }
  }
  /// An operation: its label where there is room, else its letter. A label that the last page would have cut is here.
  void write_op(size_t row, int at, int until, const std::string& label, char letter, int style) {
    const int length = static_cast<int>(label.size());
    const auto fits = [&](int begin) { return length <= std::min(until, to) - begin; };
    const bool shown_before = at < from && length <= from - at;
    const int begin = at < from && !shown_before ? from : at;
    write(row, at, until, "", style);
    write(row, begin, until, fits(begin) || shown_before ? label : std::string(1, letter), style);
  }
};

/// Cells with labels and a gap after each; a pair is one block with a bar in its middle.
void draw_labels(const std::vector<TimedRow>& rows, const Labels& labels, Page& page) {
  for (size_t r = 0; r < rows.size(); ++r)
    for (const TimedCell& cell : rows[r].cells) {
      const int begin = page.column(cell.start), end = page.column(cell.end);
      if (end <= page.from || begin >= page.to) continue;
      const auto style = [&](const TimelineOp& op) { return background(op.pass, labels.chunk(r, op.stage)); };
      const auto draw = [&](const TimelineOp& op, int from, int to) {
        page.write_op(r, from, to, labels.text(r, op), labels.letter_of(r, op), style(op));
      };
      const TimelineCell& ops = cell.cell;
      const size_t needed =
          labels.text(r, ops.first).size() + (ops.second ? labels.text(r, *ops.second).size() + 1 : 0);
      const int last = end - begin > static_cast<int>(needed) ? end - 1 : end;  // a gap where there is room for one
      const int middle = begin + (last - begin) / 2;
      const bool both = ops.second && last - begin >= 3;
      draw(ops.first, begin, both ? middle : last);
      if (both) {
        page.write(r, middle, middle + 1, "|", style(ops.first));
        draw(*ops.second, middle + 1, last);
      }
      page.write(r, last, end, " ", plain);
    }
}

/// A letter where a cell starts, then dashes; a pair is two of them with a bar between.
void draw_letters(const std::vector<TimedRow>& rows, const Labels& labels, Page& page) {
  for (size_t r = 0; r < rows.size(); ++r)
    for (const TimedCell& cell : rows[r].cells) {
      const int begin = page.column(cell.start), end = page.column(cell.end);
      const auto draw = [&](const TimelineOp& op, int from, int to) {
        page.write(r, from, to, std::string(1, labels.letter_of(r, op)),
                   background(op.pass, labels.chunk(r, op.stage)));
      };
      draw(cell.cell.first, begin, end);
      if (!cell.cell.second || end - begin < 3) continue;
      const int middle = begin + (end - begin) / 2;
      page.write(r, middle, middle + 1, "|", background(cell.cell.first.pass, labels.chunk(r, cell.cell.first.stage)));
      draw(*cell.cell.second, middle + 1, end);
    }
}

/// Many cells per column: the letter of the pass that fills it, = where several do.
void draw_shares(const std::vector<TimedRow>& rows, Page& page) {
  for (size_t r = 0; r < rows.size(); ++r) {
    std::vector<std::array<double, 5>> busy(page.rows[r].size());
    const auto add = [&](const TimelineOp& op, double start, double end) {
      for (double from = start; from < end;) {
        const auto column = std::min(static_cast<size_t>(from / page.per_column + 1e-9), busy.size() - 1);
        const double until = std::min(end, static_cast<double>(column + 1) * page.per_column);
        if (!(until > from)) break;
        busy[column][static_cast<size_t>(op.pass)] += until - from;
        from = until;
      }
    };
    for (const TimedCell& cell : rows[r].cells) {
      const double middle = cell.cell.second ? (cell.start + cell.end) / 2 : cell.end;
      add(cell.cell.first, cell.start, middle);
      if (cell.cell.second) add(*cell.cell.second, middle, cell.end);
    }
    for (size_t c = 0; c < busy.size(); ++c) {
      double total = 0;
      for (const double share : busy[c]) total += share;
      if (total < page.per_column / 2) continue;
      const auto largest = std::ranges::max_element(busy[c]);
      const bool one = *largest > total * 0.75;
      const auto pass = static_cast<Pass>(largest - busy[c].begin());
      page.rows[r][c] = {one ? letter(pass) : '=', background(one ? pass : Pass::R, 0)};
    }
  }
}

std::string paint(const std::vector<Glyph>& row, GridColor color) {
  std::string out;
  int style = plain;
  for (const Glyph& glyph : row) {
    if (color == GridColor::Ansi && glyph.style != style) {
      if (style != plain) out += "\x1b[0m";
      if (glyph.style == bubble) out += "\x1b[90m";
      if (glyph.style > bubble) out += fmt::format("\x1b[30;48;5;{}m", glyph.style);
      style = glyph.style;
    }
    // dashes show how long a cell is; colours do so better
    out += color == GridColor::Ansi && glyph.style > bubble && glyph.character == '-' ? ' ' : glyph.character;
  }
  if (color == GridColor::Ansi && style != plain) out += "\x1b[0m";
  if (color == GridColor::None) out.erase(out.find_last_not_of(' ') + 1);
  return out;
}

/// The unit of the axis: a name, and how much time it is.
struct AxisUnit {
  std::string name;
  double time = 1;
};

AxisUnit axis_unit(GridTime time, double end) {
  if (time == GridTime::Units) return {"time", 1};
  if (end < 1e-3) return {"us", 1e-6};
  if (end < 1) return {"ms", 1e-3};
  return {"s", 1};
}

/// `|0        |10       |20`: a bar where each time is.
std::string axis(const Page& page, const AxisUnit& unit) {
  const double apart = 9 * page.per_column / unit.time;  // at least so much between two bars
  double step = std::pow(10, std::floor(std::log10(apart)));
  for (const double factor : {1.0, 2.0, 5.0, 10.0})
    if (step * factor >= apart) {
      step *= factor;
      break;
    }
  const int width = page.to - page.from;
  std::string out(static_cast<size_t>(width), ' ');
  const int first = static_cast<int>(std::ceil(page.from * page.per_column / (step * unit.time) - 1e-9));
  for (int tick = first;; ++tick) {
    const int column = page.column(tick * step * unit.time) - page.from;
    const std::string text = fmt::format("|{:g}", tick * step);
    if (column + static_cast<int>(text.size()) > width) break;
    if (column >= 0) out.replace(static_cast<size_t>(column), text.size(), text);
  }
  out.erase(out.find_last_not_of(' ') + 1);
  return out;
}

struct Layout {
  std::vector<std::string> names;
  size_t margin = 0;
  int page = 20;

  Layout(const std::vector<TimedRow>& rows, const std::string& unit, int columns) {
    margin = unit.size();
    for (const TimedRow& row : rows) margin = std::max(margin, names.emplace_back(print_devices(row.devices)).size());
    margin += 2;
    page = std::max(20, columns - static_cast<int>(margin));
  }
  int page_of(int step) const { return std::max(step, page / step * step); }
  double lines(double columns, int step) const {
    return std::ceil(columns / page_of(step)) * static_cast<double>(names.size() + 2);
  }
};

/// How time becomes columns.
struct Scale {
  double per_column = 1;
  int step = 1;  // pages are multiples of it
};

std::string print_pages(const Layout& layout, const Scale& scale, double end, const AxisUnit& unit, GridColor color,
                        const std::function<void(Page&)>& draw) {
  const auto margin = [&](const std::string& text) { return text + std::string(layout.margin - text.size(), ' '); };
  const int columns = std::max(1, static_cast<int>(std::ceil(end / scale.per_column - 1e-6)));
  const int width = layout.page_of(scale.step);
  std::string out;
  for (int from = 0; from < columns; from += width) {
    Page page{scale.per_column, from, std::min(columns, from + width), {}};
    page.rows.assign(layout.names.size(), std::vector<Glyph>(static_cast<size_t>(page.to - from)));
    draw(page);
    out += margin(unit.name) + axis(page, unit) + "\n";
    for (size_t r = 0; r < page.rows.size(); ++r) out += margin(layout.names[r]) + paint(page.rows[r], color) + "\n";
    if (page.to < columns) out += "\n";
  }
  return out;
}

/// Time of the shortest operation that is worth a label: not much shorter than the median.
double shortest_labelled(const std::vector<TimedRow>& rows) {
  std::vector<double> durations;
  for (const TimedRow& row : rows)
    for (const TimedCell& cell : row.cells) durations.push_back((cell.end - cell.start) / (cell.cell.second ? 2 : 1));
  std::ranges::sort(durations);
  const double median = durations[(durations.size() - 1) / 2];
  return *std::ranges::lower_bound(durations, 0.45 * median);
}

enum class Detail { Labels, Letters, Shares };

std::string legend(const std::vector<TimedRow>& rows, const Labels& labels, Detail detail, double end) {
  double busy = 0;
  std::set<Pass> passes;
  bool pairs = false;
  for (const TimedRow& row : rows)
    for (const TimedCell& cell : row.cells) {
      busy += cell.end - cell.start;
      passes.insert(cell.cell.first.pass);
      if (cell.cell.second) passes.insert(cell.cell.second->pass), pairs = true;
    }
  std::string out = "F forward";
  if (passes.contains(Pass::B)) out += ", B backward";
  if (passes.contains(Pass::BI)) out += passes.contains(Pass::B) ? ", I and W its two parts" : ", I and W backward";
  if (detail == Detail::Labels)
    out += labels.most > 2 ? "; stage before, microbatch behind" : "; the number is the microbatch";
  if (detail != Detail::Shares && labels.most == 2) out += "; small: the later stage";
  if (detail != Detail::Shares && pairs) out += "; F|B interleaved";
  if (detail == Detail::Shares) out += "; = several";
  return out + fmt::format("; . bubble ({:.0f} %)\n", 100 * (1 - busy / (end * static_cast<double>(rows.size()))));
}

}  // namespace

std::string print_grid(const std::vector<TimedRow>& rows, const GridOptions& options) {
  double end = 0;
  for (const TimedRow& row : rows)
    if (!row.cells.empty()) end = std::max(end, row.cells.back().end);
  if (end <= 0) return "";
  const AxisUnit unit = axis_unit(options.time, end);
  const Layout layout(rows, unit.name, options.columns);
  const Labels labels(rows);
  size_t widest = 1;
  for (size_t r = 0; r < rows.size(); ++r)
    for (const TimedCell& cell : rows[r].cells) {
      widest = std::max(widest, labels.text(r, cell.cell.first).size());
      if (cell.cell.second) widest = std::max(widest, labels.text(r, *cell.cell.second).size());
    }
  const double shortest = std::max(shortest_labelled(rows), end * 1e-6);
  const int width = static_cast<int>(widest) + 1;

  const auto print = [&](const Scale& scale, Detail detail, const std::function<void(Page&)>& draw) {
    return print_pages(layout, scale, end, unit, options.color, draw) + legend(rows, labels, detail, end);
  };
  if (layout.lines(end / shortest * width, width) <= screen)
    return print({shortest / width, width}, Detail::Labels, [&](Page& page) { draw_labels(rows, labels, page); });
  if (layout.lines(end / shortest, 1) <= two_screens)
    return print({shortest, 1}, Detail::Letters, [&](Page& page) { draw_letters(rows, labels, page); });
  return print({end / layout.page, 1}, Detail::Shares, [&](Page& page) { draw_shares(rows, page); });
}

}  // namespace piper
