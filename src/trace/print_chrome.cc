#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cmath>
#include <functional>
#include <span>
#include <utility>

#include "base/invariant.h"
#include "base/json_string.h"
#include "trace/chrome.h"

namespace piper {
namespace {

constexpr size_t piece = 1 << 20;

/// Appends to a text that is handed on whenever it is large.
class Writer {
 public:
  explicit Writer(std::function<bool(const std::string&)> take) : take_(std::move(take)) {}

  Writer& operator<<(std::string_view text) {
    out_ += text;
    return *this;
  }
  Writer& operator<<(int64_t number) {
    char digits[24];
    out_.append(digits, std::to_chars(digits, digits + sizeof digits, number).ptr);
    return *this;
  }
  Writer& operator<<(int number) { return *this << static_cast<int64_t>(number); }
  Writer& quote(std::string_view text) {
    append_json_string(out_, text);
    return *this;
  }
  /// The shortest decimal that reads back as the same number, times 10^shift. No exponent: viewers stop at the e.
  Writer& exact(double number, int shift = 0);

  template <class Items, class Each>
  Writer& list(const Items& items, Each each) {
    return enumerate(items, each, "", ", ");
  }
  /// The same, every item on a line of its own.
  template <class Items, class Each>
  Writer& lines(const Items& items, Each each) {
    return enumerate(items, each, "\n", ",\n");
  }

  /// Starts the next line of the list of events.
  Writer& line() {
    hand_on_if_large();
    out_ += first_ ? "\n" : ",\n";
    first_ = false;
    return *this;
  }
  void hand_on_if_large() {
    if (out_.size() >= piece) hand_on();
  }
  void hand_on() {
    fine_ = fine_ && take_(out_);
    out_.clear();
  }
  bool fine() const { return fine_; }

 private:
  template <class Items, class Each>
  Writer& enumerate(const Items& items, Each each, std::string_view before, std::string_view between) {
    out_ += '[';
    for (const auto& item : items) {
      hand_on_if_large();
      out_ += std::exchange(before, between);
      each(item);
    }
    out_ += ']';
    return *this;
  }

  std::function<bool(const std::string&)> take_;
  std::string out_;
  bool first_ = true, fine_ = true;
};

Writer& Writer::exact(double number, int shift) {
  invariant(std::isfinite(number), "times of a trace are finite");
  char text[40];  // d.ddde+xx
  char* const end = std::to_chars(text, text + sizeof text, std::fabs(number), std::chars_format::scientific).ptr;
  char* const e = std::find(text, end, 'e');
  int exponent = 0;
  std::from_chars(e + (e[1] == '+' ? 2 : 1), end, exponent);
  std::string digits(1, text[0]);
  if (e > text + 2) digits.append(text + 2, e);
  const int point = exponent + shift + 1, count = static_cast<int>(digits.size());  // digits before the point
  if (number < 0) out_ += '-';
  if (number == 0) {
    out_ += '0';
  } else if (point <= 0) {
    out_.append("0.").append(static_cast<size_t>(-point), '0').append(digits);
  } else if (point >= count) {
    out_.append(digits).append(static_cast<size_t>(point - count), '0');
  } else {
    out_.append(digits, 0, static_cast<size_t>(point)).append(".").append(digits, static_cast<size_t>(point));
  }
  return *this;
}

void put_header(Writer& out, const Trace& trace) {
  const auto quote = [&](const std::string& text) { out.quote(text); };
  out << "{\n\"displayTimeUnit\": \"ms\",\n\"otherData\": {\n\"format\": \"piper-trace\",\n\"version\": 1,\n";
  (out << "\"source\": ").quote(trace.source) << ",\n";
  (out << "\"model\": ").quote(trace.model) << ",\n";
  (out << "\"cluster\": ").quote(trace.cluster) << ",\n";
  (out << "\"plan\": ").quote(trace.plan) << ",\n";
  (out << "\"seconds\": ").exact(trace.seconds) << ",\n";
  out << "\"tokens\": " << trace.tokens << ",\n";
  if (trace.seconds_at_peak > 0) (out << "\"seconds_at_peak\": ").exact(trace.seconds_at_peak) << ",\n";
  (out << "\"lanes\": ").list(trace.lanes, [&](const auto& devices) {
    out.list(devices, [&](int device) { out << device; });
  });
  (out << ",\n\"capacity\": ").list(trace.capacity, [&](int64_t bytes) { out << bytes; });
  (out << ",\n\"streams\": ").list(trace.streams, quote);
  (out << ",\n\"categories\": ").list(trace.categories, quote);
  (out << ",\n\"steps\": ").list(trace.steps, [&](const TraceStep& step) {
    (((out << "[" << step.number << ", ").exact(step.start) << ", ").exact(step.end)) << "]";
  });
  const auto put_origin = [&](const TraceOrigin& origin) {
    ((out << "[").quote(origin.place) << ", ").quote(origin.text) << "]";
  };
  (out << ",\n\"origins\": ").lines(trace.origins, put_origin);
  out << "\n},\n\"traceEvents\": [";
}

/// `device 3`, `devices 0, 1, 2 and 5 more`
std::string lane_name(const std::vector<int>& devices) {
  constexpr size_t most = 8;
  if (devices.size() == 1) return fmt::format("device {}", devices[0]);
  if (devices.size() <= most) return fmt::format("devices {}", fmt::join(devices, ", "));
  return fmt::format("devices {} and {} more", fmt::join(devices.begin(), devices.begin() + most, ", "),
                     devices.size() - most);
}

/// Names of lanes and streams as viewers show them; only streams that a lane uses.
void put_names(Writer& out, const Trace& trace) {
  std::vector<bool> used(trace.lanes.size() * trace.streams.size());
  const auto slot = [&](int lane, int stream) {
    return static_cast<size_t>(lane) * trace.streams.size() + static_cast<size_t>(stream);
  };
  for (const TraceEvent& event : trace.events) used[slot(event.lane, event.stream)] = true;
  for (int lane = 0; static_cast<size_t>(lane) < trace.lanes.size(); ++lane) {
    out.line() << "{\"ph\": \"M\", \"pid\": " << lane + 1 << ", \"name\": \"process_name\", \"args\": {\"name\": ";
    out.quote(lane_name(trace.lanes[static_cast<size_t>(lane)])) << "}}";
    out.line() << "{\"ph\": \"M\", \"pid\": " << lane + 1
               << ", \"name\": \"process_sort_index\", \"args\": {\"sort_index\": " << lane << "}}";
    for (int stream = 0; static_cast<size_t>(stream) < trace.streams.size(); ++stream) {
      if (!used[slot(lane, stream)]) continue;
      out.line() << "{\"ph\": \"M\", \"pid\": " << lane + 1 << ", \"tid\": " << stream + 1
                 << ", \"name\": \"thread_name\", \"args\": {\"name\": ";
      out.quote(trace.streams[static_cast<size_t>(stream)]) << "}}";
      out.line() << "{\"ph\": \"M\", \"pid\": " << lane + 1 << ", \"tid\": " << stream + 1
                 << ", \"name\": \"thread_sort_index\", \"args\": {\"sort_index\": " << stream << "}}";
    }
  }
}

/// Many on a line, but not all: viewers read the file a piece at a time and start a line again that is cut.
void put_buffers(Writer& out, const std::vector<TraceBuffer>& buffers) {
  constexpr size_t most = 256;
  for (auto from = buffers.begin(); from != buffers.end();) {
    auto to = from;
    while (to != buffers.end() && to->lane == from->lane && static_cast<size_t>(to - from) < most) ++to;
    out.line() << "{\"ph\": \"M\", \"pid\": " << from->lane + 1
               << ", \"name\": \"piper_buffers\", \"args\": {\"buffers\": ";
    out.list(std::span(from, to), [&](const TraceBuffer& buffer) {
      (out << "[" << buffer.category << ", " << buffer.bytes << ", ").quote(buffer.name);
      if (buffer.taken >= 0) out << ", " << buffer.taken << ", " << buffer.returned;
      out << "]";
    });
    out << "}}";
    from = to;
  }
}

/// The nanoseconds at which viewers may put a moment: some round, others read microseconds as a double and cut off.
struct SeenAt {
  double first, last;
};
SeenAt seen_at(double seconds) {
  const double microseconds = seconds * 1e6;
  if (microseconds == std::floor(microseconds)) return {microseconds * 1e3, microseconds * 1e3};
  return {std::floor(std::nextafter(microseconds, 0) * 1e3), std::ceil(std::nextafter(microseconds, 1e300) * 1e3)};
}

/// Whole nanoseconds inside the event, however a viewer rounds: events of a stream that overlap by one are dropped.
int64_t inner_nanoseconds(const TraceEvent& event) {
  return static_cast<int64_t>(std::max(0.0, seen_at(event.end).first - seen_at(event.start).last));
}

void put_event(Writer& out, const TraceEvent& event) {
  out.line() << "{\"ph\": \"X\", \"pid\": " << event.lane + 1 << ", \"tid\": " << event.stream + 1 << ", \"name\": ";
  (out.quote(event.name) << ", \"cat\": ").quote(event.kind) << ", \"ts\": ";
  out.exact(event.start, 6) << ", \"dur\": ";
  const int64_t duration = inner_nanoseconds(event);
  out.exact(static_cast<double>(duration), -3) << ", \"args\": {\"op\": " << event.op << ", \"end\": ";
  out.exact(event.end);
  if (!event.pass.empty()) (out << ", \"pass\": ").quote(event.pass);
  if (event.slice >= 0) out << ", \"slice\": " << event.slice;
  if (event.bytes != 0) out << ", \"bytes\": " << event.bytes;
  if (event.origin >= 0) out << ", \"origin\": " << event.origin;
  if (event.step != 0) out << ", \"step\": " << event.step;
  if (!event.waits.empty()) (out << ", \"waits\": ").list(event.waits, [&](int op) { out << op; });
  if (event.cause.lane >= 0) out << ", \"cause\": [" << event.cause.lane << ", " << event.cause.op << "]";
  out << "}}";
}

void put_memory(Writer& out, const Trace& trace, const TraceMemory& memory) {
  invariant(memory.bytes.size() == trace.categories.size(), "memory of a trace has a number for every category");
  (out.line() << "{\"ph\": \"C\", \"pid\": " << memory.lane + 1 << ", \"name\": \"memory\", \"ts\": ")
      .exact(memory.time, 6);
  if (memory.op >= 0) out << ", \"op\": " << memory.op;  // not in args: viewers would draw it
  out << ", \"args\": {";
  for (size_t c = 0; c < memory.bytes.size(); ++c)
    (out << (c == 0 ? "" : ", ")).quote(trace.categories[c]) << ": " << memory.bytes[c];
  out << "}}";
}

bool put_all(const Trace& trace, std::function<bool(const std::string&)> take) {
  Writer out(std::move(take));
  put_header(out, trace);
  put_names(out, trace);
  put_buffers(out, trace.buffers);
  for (const TraceEvent& event : trace.events) put_event(out, event);
  for (const TraceMemory& memory : trace.memory) put_memory(out, trace, memory);
  out << "\n]\n}\n";
  out.hand_on();
  return out.fine();
}

}  // namespace

std::string print_chrome(const Trace& trace) {
  std::string out;
  put_all(trace, [&](const std::string& text) {
    out += text;
    return true;
  });
  return out;
}

bool write_chrome(const Trace& trace, std::FILE* file) {
  return put_all(
             trace,
             [&](const std::string& text) { return std::fwrite(text.data(), 1, text.size(), file) == text.size(); }) &&
         std::fflush(file) == 0;
}

}  // namespace piper
