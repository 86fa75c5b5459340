#include "tools/schedule_svg.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "trace/summary.h"

namespace piper {
namespace {

constexpr double narrowest = 1000, widest = 8000, digit = 7, left = 96, right = 16, row_height = 24, row_gap = 4,
                 top = 12, below = 58, font = 12;

struct Look {
  std::string pass, fill, name;
  bool dark_text;
};
/// The colours of the page (Okabe and Ito), safe for colour-blind readers.
const std::vector<Look> looks = {
    {"F", "#56b4e9", "forward", true},
    {"B", "#e69f00", "backward", true},
    {"BI", "#d55e00", "backward, inputs", false},
    {"BW", "#009e73", "backward, weights", false},
    {"R", "#f0e442", "recompute", true},
    {"", "#5a68a0", "update", false},
};

const Look& look_of(const std::string& pass) {
  const auto found = std::find_if(looks.begin(), looks.end(), [&](const Look& look) { return look.pass == pass; });
  return found == looks.end() ? looks.back() : *found;
}

/// Of a pair that runs interleaved, both are drawn, one above the other.
enum class Half { Whole, Upper, Lower };

struct Block {
  int lane = 0;
  std::string pass;
  int slice = -1;
  double start = 0, end = 0;
  Half half = Half::Whole;
};

double length(const Block& block) {
  return block.end - block.start;
}

/// Whether an event is a part of the pass that a block shows, which may have waited so long.
bool continues(const Block& block, const TraceEvent& event, double waited, double longest) {
  return block.lane == event.lane && block.pass == event.pass && block.slice == event.slice && waited <= longest;
}

/// A forward and a backward whose computations take turns.
bool interleaved(const Block& a, const Block& b) {
  return a.lane == b.lane && (a.pass == "F") != (b.pass == "F") && a.slice >= 0 && b.slice >= 0;
}

void halve(Block& a, Block& b) {
  a.half = a.pass == "F" ? Half::Upper : Half::Lower;
  b.half = b.pass == "F" ? Half::Upper : Half::Lower;
}

std::vector<Block> blocks_of(const Trace& trace, const TraceStep& step) {
  std::vector<const TraceEvent*> computations;
  for (const TraceEvent& event : trace.events)
    if (event.step == 0 && !is_communication(event)) computations.push_back(&event);
  std::stable_sort(computations.begin(), computations.end(), [](const TraceEvent* a, const TraceEvent* b) {
    return a->lane != b->lane ? a->lane < b->lane : a->start < b->start;
  });
  std::vector<Block> blocks;
  for (const TraceEvent* event : computations) {
    const double start = event->start - step.start, end = event->end - step.start;
    Block* last = blocks.empty() ? nullptr : &blocks.back();
    Block* before = blocks.size() < 2 ? nullptr : &blocks[blocks.size() - 2];
    if (last && continues(*last, *event, start - last->end, length(*last))) {
      last->end = std::max(last->end, end);
    } else if (before && interleaved(*before, *last) &&
               continues(*before, *event, start - before->end, length(*before) + length(*last))) {
      before->end = std::max(before->end, end);
      halve(*before, *last);
      std::swap(*before, *last);  // the one that goes on is the last
    } else {
      blocks.push_back({event->lane, event->pass, event->slice, start, end});
      if (blocks.size() < 2) continue;
      Block &first = blocks[blocks.size() - 2], &second = blocks.back();
      if (interleaved(first, second) && first.end - start > (end - start) / 2) halve(first, second);
    }
  }
  return blocks;
}

/// Wide enough that the numbers fit on nearly all blocks.
double width_for(const std::vector<Block>& blocks, double seconds) {
  std::vector<double> wanted;
  for (const Block& block : blocks)
    if (block.slice >= 0 && block.end > block.start)
      wanted.push_back((static_cast<double>(fmt::formatted_size("{}", block.slice)) * digit + 3) * seconds /
                       (block.end - block.start));
  std::sort(wanted.begin(), wanted.end());
  const double room = wanted.empty() ? 0 : wanted[static_cast<size_t>(0.95 * static_cast<double>(wanted.size() - 1))];
  return std::clamp(std::ceil(left + room + right), narrowest, widest);
}

/// At most two decimals, without trailing zeros.
std::string number(double value) {
  std::string out = fmt::format("{:.2f}", value);
  out.erase(out.find_last_not_of('0') + 1);
  if (out.ends_with('.')) out.pop_back();
  return out == "-0" ? "0" : out;
}

std::string lane_name(const std::vector<int>& devices) {
  if (devices.size() == 1) return fmt::format("device {}", devices[0]);
  if (devices.size() <= 3) return fmt::format("devices {}", fmt::join(devices, ", "));
  return fmt::format("devices {}, … ({})", devices[0], devices.size());
}

/// 1, 2 or 5 times a power of ten, about eight of them in the step.
double tick_of(double seconds) {
  const double rough = std::max(seconds, 1e-12) / 8, power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1, 2, 5})
    if (factor * power >= rough) return factor * power;
  return 10 * power;
}

std::string time_text(double seconds, double tick, PictureTime time) {
  if (time == PictureTime::Units) return number(seconds);
  const auto [scale, unit] = tick >= 0.1    ? std::pair(1.0, "s")
                             : tick >= 1e-4 ? std::pair(1e3, "ms")
                             : tick >= 1e-7 ? std::pair(1e6, "µs")
                                            : std::pair(1e9, "ns");
  return fmt::format("{} {}", number(seconds * scale), unit);
}

class Picture {
 public:
  /// `seconds`: the time that all of the width stands for.
  Picture(const Trace& trace, std::vector<Block> blocks, double seconds, double width, PictureTime time)
      : trace_(trace), blocks_(std::move(blocks)), seconds_(seconds), width_(width), time_(time) {}

  double bottom() const { return top + static_cast<double>(trace_.lanes.size()) * (row_height + row_gap); }
  std::string draw() const { return lanes() + blocks() + axis(bottom()) + legend(bottom() + 44); }

 private:
  double x(double time) const { return left + time / seconds_ * (width_ - left - right); }
  static double y(int lane) { return top + lane * (row_height + row_gap); }

  /// Names, and what is idle where nothing covers it.
  std::string lanes() const {
    std::string out = "<g fill=\"#222\" text-anchor=\"end\">\n", tracks = "<path fill=\"#eee\" d=\"";
    for (int lane = 0; static_cast<size_t>(lane) < trace_.lanes.size(); ++lane) {
      out += fmt::format("<text x=\"{}\" y=\"{}\">{}</text>\n", left - 8, number(y(lane) + row_height / 2 + 4),
                         lane_name(trace_.lanes[static_cast<size_t>(lane)]));
      tracks += fmt::format("M{} {}H{}v{}H{}z", left, number(y(lane)), number(width_ - right), row_height, left);
    }
    return tracks + "\"/>\n" + out + "</g>\n";
  }

  /// One path for each colour, one group of numbers for each colour of text.
  std::string blocks() const {
    std::map<std::string, std::string> paths;
    std::string texts[2];
    for (const Block& block : blocks_) {
      const Look& look = look_of(block.pass);
      const double from = x(block.start), length = std::max(0.3, x(block.end) - from - 0.5);
      const double height = block.half == Half::Whole ? row_height : row_height / 2;
      const double at = y(block.lane) + (block.half == Half::Lower ? height : 0);
      paths[look.fill] +=
          fmt::format("M{} {}h{}v{}h-{}z", number(from), number(at), number(length), number(height), number(length));
      const double size = std::min(
          {font, height - 2, font * length / (static_cast<double>(fmt::formatted_size("{}", block.slice)) * digit)});
      if (block.slice < 0 || size < 6) continue;
      const std::string smaller = size < font ? fmt::format(" font-size=\"{}\"", number(size)) : "";
      texts[look.dark_text] += fmt::format("<text x=\"{}\" y=\"{}\"{}>{}</text>\n", number(from + length / 2),
                                           number(at + height / 2 + size * 0.36), smaller, block.slice);
    }
    std::string out;
    for (const auto& [fill, path] : paths) out += fmt::format("<path fill=\"{}\" d=\"{}\"/>\n", fill, path);
    out += "<g fill=\"#fff\" text-anchor=\"middle\">\n" + texts[0] + "</g>\n";
    return out + "<g fill=\"#111\" text-anchor=\"middle\">\n" + texts[1] + "</g>\n";
  }

  std::string axis(double at) const {
    const double tick = tick_of(seconds_);
    std::string marks = fmt::format("M{} {}H{}", left, number(at), number(width_ - right)), texts;
    for (int n = 0; n * tick <= seconds_ * 1.0001; ++n) {
      marks += fmt::format("M{} {}v5", number(x(n * tick)), number(at));
      texts += fmt::format("<text x=\"{}\" y=\"{}\">{}</text>\n", number(x(n * tick)), number(at + 18),
                           n == 0 ? "0" : time_text(n * tick, tick, time_));
    }
    return "<path fill=\"none\" stroke=\"#888\" d=\"" + marks + "\"/>\n<g fill=\"#555\" text-anchor=\"middle\">\n" +
           texts + "</g>\n";
  }

  std::string legend(double at) const {
    std::string out;
    double from = left;
    for (const Look& look : looks) {
      const bool used = std::any_of(blocks_.begin(), blocks_.end(),
                                    [&](const Block& block) { return &look_of(block.pass) == &look; });
      if (!used) continue;
      const std::string name = look.pass.empty() ? look.name : look.pass + " " + look.name;
      out += fmt::format(
          "<rect x=\"{}\" y=\"{}\" width=\"12\" height=\"12\" fill=\"{}\"/><text x=\"{}\" y=\"{}\" "
          "fill=\"#222\">{}</text>\n",
          number(from), number(at - 10), look.fill, number(from + 17), number(at), name);
      from += 40 + 7 * static_cast<double>(name.size());
    }
    return out;
  }

  const Trace& trace_;
  const std::vector<Block> blocks_;
  const double seconds_, width_;
  const PictureTime time_;
};

double length(const TraceStep& step) {
  return std::max(step.end - step.start, 1e-12);
}

}  // namespace

SvgPart schedule_part(const Trace& trace, double width, double seconds, PictureTime time) {
  const Picture picture(trace, blocks_of(trace, steps_of(trace)[0]), seconds, width, time);
  return {picture.draw(), picture.bottom() + below};
}

std::string whole_svg(const SvgPart& part, double width) {
  return fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0} {1}" width="{0}" height="{1}" font-family="Helvetica,Arial,'DejaVu Sans',sans-serif" font-size="{2}">)"
      "\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{3}</svg>\n",
      number(width), number(part.height), font, part.text);
}

std::string schedule_svg(const Trace& trace, const PictureOptions& options) {
  const TraceStep step = steps_of(trace)[0];
  const double width = options.width ? *options.width : width_for(blocks_of(trace, step), length(step));
  return whole_svg(schedule_part(trace, width, length(step), options.time), width);
}

}  // namespace piper
