#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>
#include <span>

#include "base/read_file.h"
#include "base/suggest.h"
#include "base/text/json_reader.h"
#include "trace/chrome.h"
#include "trace/trace_index.h"

namespace piper {
namespace {

constexpr size_t largest_file = 1u << 30;
constexpr int64_t most = std::numeric_limits<int>::max() - 1;
constexpr int64_t most_bytes = int64_t{1} << 60;
constexpr double longest = 1e9;  // seconds
constexpr size_t most_categories = 32;
const std::string write_again = "write the trace again instead of changing it by hand";

using Names = std::span<const std::string_view>;

constexpr std::string_view header_names[] = {"source",   "model",   "cluster",        "plan",    "seconds",
                                             "lanes",    "streams", "categories",     "origins", "tokens",
                                             "capacity", "steps",   "seconds_at_peak"};
constexpr std::string_view event_names[] = {"pid", "ts", "args", "name", "tid", "cat"};
constexpr std::string_view metadata_names[] = {"pid", "args", "name"};
constexpr std::string_view counter_names[] = {"pid", "ts", "args", "name", "op"};
constexpr std::string_view argument_names[] = {"op",     "end",  "pass",  "slice", "bytes",
                                               "origin", "step", "waits", "cause"};

/// The members of an object: those we know stand once, the first `required` of them must be there.
class Members {
 public:
  Members(JsonReader& in, std::string_view what, Names known, size_t required)
      : in_(in), what_(what), known_(known), required_(required), begin_(in.next()) {
    in_.open_object(what);
  }

  bool next(std::string_view& key) {
    if (!in_.member(key)) {
      check_all();
      return false;
    }
    const auto at = static_cast<size_t>(std::find(known_.begin(), known_.end(), key) - known_.begin());
    if (at < known_.size() && (seen_ >> at & 1)) in_.refuse_last(fmt::format("\"{}\" stands twice", key));
    seen_ |= uint64_t{1} << at;
    return !in_.failed();
  }

 private:
  void check_all() {
    for (size_t i = 0; i < required_; ++i)
      if (!(seen_ >> i & 1))
        in_.refuse(ErrorCode::E503, begin_, fmt::format("{} has no \"{}\"", what_, known_[i]), write_again);
  }

  JsonReader& in_;
  std::string_view what_;
  Names known_;
  size_t required_, begin_;
  uint64_t seen_ = 0;
};

class TraceReader {
 public:
  explicit TraceReader(const SourceFilePtr& file) : in_(file) {}

  Result<Trace> read();

 private:
  void check_format();
  void header();
  void check_header(size_t begin);
  void events();
  void event();
  void event_arguments(TraceEvent& event);
  void counter();
  void counter_arguments(TraceMemory& memory);
  void metadata();
  void buffer(int lane);
  void check_operations();
  void check_samples();
  void check_buffers();
  bool has_event(int lane, int op) const;

  double time(std::string_view what, int shift = 0);
  int index(std::string_view what, size_t count) {
    return static_cast<int>(in_.integer(what, 0, static_cast<int64_t>(count) - 1));
  }
  int number_of(std::string_view what, size_t count) {  // from 1
    return static_cast<int>(in_.integer(what, 1, static_cast<int64_t>(count))) - 1;
  }
  template <class Each>
  void list(std::string_view what, Each each) {
    in_.open_array(what);
    while (in_.element()) each();
  }
  /// Exactly the parts, in this order: [lane, op]
  template <class... Part>
  void parts(std::string_view what, Part... part);

  JsonReader in_;
  Trace trace_;
  std::vector<size_t> places_, memory_places_, buffer_places_;  // of events, samples and buffers
  std::vector<std::pair<int, int>> operations_;                 // lane and number, sorted
};

double TraceReader::time(std::string_view what, int shift) {
  const double value = in_.number(what, shift);
  if (value < 0) in_.refuse_last(fmt::format("{} is negative: {} seconds", what, value));
  if (value > longest) in_.refuse_last(fmt::format("{} is more than {} seconds", what, longest));
  return value;
}

template <class... Part>
void TraceReader::parts(std::string_view what, Part... part) {
  const size_t begin = in_.next();
  in_.open_array(what);
  const auto wrong = [&] {
    in_.refuse(ErrorCode::E503, begin, fmt::format("{} must have {} parts", what, sizeof...(part)), write_again);
  };
  const auto one = [&](auto& read) {
    if (in_.element())
      read();
    else
      wrong();
  };
  (one(part), ...);
  if (in_.element()) wrong();
}

/// Before anything else is believed. Another version may differ in everything but these two.
void TraceReader::check_format() {
  const size_t begin = in_.next();
  bool ours = false;
  std::string version = "none";
  size_t version_at = begin;
  in_.open_object("otherData");
  for (std::string_view key; in_.member(key);) {
    const size_t at = in_.next();
    if (key == "format") {
      ours = in_.text("format") == "piper-trace";
    } else {
      const bool is_version = key == "version";
      in_.skip();
      if (is_version) version = in_.since(version_at = at);
    }
  }
  if (!ours)
    in_.refuse(ErrorCode::E501, begin, "this is not a trace of Piper: \"format\" is not \"piper-trace\"",
               "piper simulate --trace OUT writes one; traces of other tools name no plan operations");
  else if (version != "1")
    in_.refuse(ErrorCode::E502, version_at,
               fmt::format("the version of the trace is {}; this program reads version 1", version.substr(0, 20)),
               "use the piper that wrote it, or write the trace again");
  in_.jump(begin);
}

void TraceReader::header() {
  check_format();
  const size_t begin = in_.next();
  Trace& t = trace_;
  Members members(in_, "otherData", header_names, 9);
  const auto add_text = [&](std::string_view what, std::vector<std::string>& to) {
    list(what, [&] { to.emplace_back(in_.text(what)); });
  };
  for (std::string_view key; members.next(key);) {
    if (key == "source") {
      t.source = in_.text("source");
    } else if (key == "model") {
      t.model = in_.text("model");
    } else if (key == "cluster") {
      t.cluster = in_.text("cluster");
    } else if (key == "plan") {
      t.plan = in_.text("plan");
    } else if (key == "seconds") {
      t.seconds = time("seconds");
    } else if (key == "tokens") {
      t.tokens = in_.integer("tokens", 0, most_bytes);
    } else if (key == "seconds_at_peak") {
      t.seconds_at_peak = time("seconds_at_peak");
    } else if (key == "streams") {
      add_text("streams", t.streams);
    } else if (key == "categories") {
      add_text("categories", t.categories);
    } else if (key == "capacity") {
      list("capacity", [&] { t.capacity.push_back(in_.integer("capacity", 0, most_bytes)); });
    } else if (key == "lanes") {
      list("lanes", [&] {
        std::vector<int>& devices = t.lanes.emplace_back();
        list("devices of a lane", [&] { devices.push_back(static_cast<int>(in_.integer("device", 0, most))); });
        if (devices.empty()) in_.refuse_last("a lane has no devices");
      });
    } else if (key == "steps") {
      list("steps", [&] {
        TraceStep& step = t.steps.emplace_back();
        parts(
            "a step", [&] { step.number = in_.integer("number of a step", 0, most_bytes); },
            [&] { step.start = time("start of a step"); }, [&] { step.end = time("end of a step"); });
        if (step.end < step.start) in_.refuse_last("a step ends before it starts");
      });
    } else if (key == "origins") {
      list("origins", [&] {
        TraceOrigin& origin = t.origins.emplace_back();
        parts(
            "an origin", [&] { origin.place = in_.text("place of an origin"); },
            [&] { origin.text = in_.text("text of an origin"); });
      });
    } else {
      in_.skip();
    }
  }
  check_header(begin);
}

void TraceReader::check_header(size_t begin) {
  const auto refuse = [&](std::string message) { in_.refuse(ErrorCode::E503, begin, std::move(message), write_again); };
  std::set<int> devices;
  for (const auto& lane : trace_.lanes)
    for (const int device : lane)
      if (!devices.insert(device).second) return refuse(fmt::format("device {} stands in two lanes", device));
  if (!trace_.capacity.empty() && trace_.capacity.size() != trace_.lanes.size())
    refuse(fmt::format("capacity has {} numbers for {} lanes", trace_.capacity.size(), trace_.lanes.size()));
  const std::set<std::string_view> categories(trace_.categories.begin(), trace_.categories.end());
  if (categories.size() != trace_.categories.size()) refuse("a category stands twice");
  if (categories.size() > most_categories) refuse(fmt::format("there are more than {} categories", most_categories));
}

void TraceReader::event_arguments(TraceEvent& event) {
  Members members(in_, "args", argument_names, 2);
  for (std::string_view key; members.next(key);) {
    if (key == "op") {
      event.op = static_cast<int>(in_.integer("op", 0, most));
    } else if (key == "end") {
      event.end = time("end");
    } else if (key == "pass") {
      event.pass = in_.text("pass");
    } else if (key == "slice") {
      event.slice = static_cast<int>(in_.integer("slice", 0, most));
    } else if (key == "bytes") {
      event.bytes = in_.integer("bytes", 0, most_bytes);
    } else if (key == "origin") {
      event.origin = index("origin", trace_.origins.size());
    } else if (key == "step") {
      event.step = index("step", std::max<size_t>(1, trace_.steps.size()));
    } else if (key == "waits") {
      list("waits", [&] { event.waits.push_back(static_cast<int>(in_.integer("an operation of waits", 0, most))); });
    } else if (key == "cause") {
      parts(
          "cause", [&] { event.cause.lane = index("lane of the cause", trace_.lanes.size()); },
          [&] { event.cause.op = static_cast<int>(in_.integer("operation of the cause", 0, most)); });
    } else {
      in_.skip();
    }
  }
}

void TraceReader::event() {
  const size_t begin = in_.next();
  TraceEvent event;
  Members members(in_, "the event", event_names, 6);
  for (std::string_view key; members.next(key);) {
    if (key == "pid") {
      event.lane = number_of("pid (the lane)", trace_.lanes.size());
    } else if (key == "tid") {
      event.stream = number_of("tid (the stream)", trace_.streams.size());
    } else if (key == "name") {
      event.name = in_.text("name");
    } else if (key == "cat") {
      event.kind = in_.text("cat");
    } else if (key == "ts") {
      event.start = time("ts", -6);
    } else if (key == "args") {
      event_arguments(event);
    } else {
      in_.skip();
    }
  }
  constexpr double rounding = 1e-12;  // of tools that read and write ts as a double
  if (event.end < event.start && event.end >= event.start * (1 - rounding)) event.start = event.end;
  if (event.end < event.start)
    in_.refuse(ErrorCode::E503, begin,
               fmt::format("the event starts at {} s and ends before that, at {} s", event.start, event.end),
               write_again);
  places_.push_back(begin);
  trace_.events.push_back(std::move(event));
}

void TraceReader::counter_arguments(TraceMemory& memory) {
  const std::vector<std::string_view> categories(trace_.categories.begin(), trace_.categories.end());
  Members members(in_, "args", categories, categories.size());
  memory.bytes.resize(categories.size());
  for (std::string_view key; members.next(key);) {
    const auto at = std::find(categories.begin(), categories.end(), key);
    if (at == categories.end())
      in_.refuse_last(fmt::format("\"{}\" is not one of the categories", key), did_you_mean(key, trace_.categories));
    else
      memory.bytes[static_cast<size_t>(at - categories.begin())] = in_.integer("bytes of a category", 0, most_bytes);
  }
}

/// Counters other than memory are somebody else's.
void TraceReader::counter() {
  TraceMemory memory;
  bool ours = false;
  const size_t begin = in_.next();
  size_t arguments = 0, op = 0;
  Members members(in_, "the counter", counter_names, 4);
  for (std::string_view key; members.next(key);) {
    if (key == "pid") {
      memory.lane = number_of("pid (the lane)", trace_.lanes.size());
    } else if (key == "ts") {
      memory.time = time("ts", -6);
    } else if (key == "name") {
      ours = in_.text("name") == "memory";
    } else {
      if (key == "args") arguments = in_.next();
      if (key == "op") op = in_.next();
      in_.skip();
    }
  }
  if (!ours) return;
  const size_t behind = in_.next();
  in_.jump(arguments);
  counter_arguments(memory);
  if (op > 0 && !in_.failed()) {
    in_.jump(op);
    memory.op = static_cast<int>(in_.integer("op", 0, most));
  }
  if (!in_.failed()) in_.jump(behind);
  trace_.memory.push_back(std::move(memory));
  memory_places_.push_back(begin);
}

/// `[category, bytes, name, taken, returned]`, without the last two if it outlives the step.
void TraceReader::buffer(int lane) {
  const size_t begin = in_.next();
  TraceBuffer buffer;
  buffer.lane = lane;
  int count = 0;
  bool more = true;
  const auto part = [&] {
    more = more && in_.element();
    count += more;
    return more;
  };
  in_.open_array("a buffer");
  if (part()) buffer.category = index("category of a buffer", trace_.categories.size());
  if (part()) buffer.bytes = in_.integer("bytes of a buffer", 0, most_bytes);
  if (part()) buffer.name = in_.text("name of a buffer");
  if (part()) buffer.taken = static_cast<int>(in_.integer("operation that takes a buffer", 0, most));
  if (part()) buffer.returned = static_cast<int>(in_.integer("operation that returns a buffer", 0, most));
  while (part()) in_.skip();
  if (count != 3 && count != 5)
    in_.refuse(ErrorCode::E503, begin, fmt::format("a buffer has 3 or 5 parts, not {}", count), write_again);
  trace_.buffers.push_back(std::move(buffer));
  buffer_places_.push_back(begin);
}

/// Names of lanes and streams are for viewers; buffers are ours.
void TraceReader::metadata() {
  const size_t begin = in_.next();
  size_t lane = 0, arguments = 0;  // where they stand
  bool ours = false;
  Members members(in_, "the metadata", metadata_names, 0);
  for (std::string_view key; members.next(key);) {
    if (key == "pid") lane = in_.next();
    if (key == "args") arguments = in_.next();
    if (key == "name" && in_.looking_at("\"piper_buffers\"")) ours = true;
    in_.skip();
  }
  if (!ours || in_.failed()) return;
  if (lane == 0 || arguments == 0)
    return in_.refuse(ErrorCode::E503, begin, "the buffers have no \"pid\" or no \"args\"", write_again);
  const size_t behind = in_.next();
  in_.jump(lane);
  const int of = number_of("pid (the lane)", trace_.lanes.size());
  in_.jump(arguments);
  in_.open_object("args");
  for (std::string_view key; in_.member(key);) {
    if (key == "buffers")
      list("buffers", [&] { buffer(of); });
    else
      in_.skip();
  }
  if (!in_.failed()) in_.jump(behind);
}

/// Members come in any order, so the kind of an event is looked up first.
void TraceReader::events() {
  list("traceEvents", [&] {
    const size_t begin = in_.next();
    std::string phase = in_.looking_at("{\"ph\": \"X\",")   ? "X"
                        : in_.looking_at("{\"ph\": \"M\",") ? "M"
                                                            : "";  // as we write them
    if (phase.empty()) {
      in_.open_object("an event");
      for (std::string_view key; in_.member(key);) {
        if (key == "ph")
          phase = in_.text("ph");
        else
          in_.skip();
      }
      if (phase.empty()) in_.refuse(ErrorCode::E503, begin, "the event has no \"ph\"", write_again);
    }
    if (in_.failed() || (phase != "X" && phase != "C" && phase != "M")) return;  // what other tools add
    in_.jump(begin);
    phase == "X" ? event() : phase == "C" ? counter() : metadata();
  });
}

/// Every operation that is waited for has an event, and no operation has two.
void TraceReader::check_operations() {
  if (in_.failed()) return;
  const TraceIndex index(trace_.events);
  if (const auto [first, second] = index.twice(); first >= 0)
    return in_.refuse(
        ErrorCode::E503, places_[static_cast<size_t>(second)],
        fmt::format("operation {} of lane {} stands twice in one step", trace_.events[static_cast<size_t>(first)].op,
                    trace_.events[static_cast<size_t>(first)].lane),
        write_again);
  for (size_t i = 0; i < trace_.events.size(); ++i) {
    const TraceEvent& event = trace_.events[i];
    const auto need = [&](int lane, int op) {
      if (index.find(event.step, lane, op) < 0)
        in_.refuse(
            ErrorCode::E503, places_[i],
            fmt::format("operation {} waits for operation {} of lane {}, which has no event", event.op, op, lane),
            write_again);
    };
    for (const int op : event.waits) need(event.lane, op);
    if (event.cause.lane >= 0) need(event.cause.lane, event.cause.op);
  }
  for (const TraceEvent& event : trace_.events) operations_.emplace_back(event.lane, event.op);
  if (!std::is_sorted(operations_.begin(), operations_.end())) std::sort(operations_.begin(), operations_.end());
  check_samples();
  check_buffers();
}

/// In some step: memory is taken and returned alike in all of them.
bool TraceReader::has_event(int lane, int op) const {
  return std::binary_search(operations_.begin(), operations_.end(), std::pair(lane, op));
}

void TraceReader::check_samples() {
  for (size_t i = 0; i < trace_.memory.size() && !in_.failed(); ++i)
    if (const TraceMemory& memory = trace_.memory[i]; memory.op >= 0 && !has_event(memory.lane, memory.op))
      in_.refuse(ErrorCode::E503, memory_places_[i],
                 fmt::format("operation {} of lane {} takes memory but has no event", memory.op, memory.lane),
                 write_again);
}

void TraceReader::check_buffers() {
  for (size_t i = 0; i < trace_.buffers.size() && !in_.failed(); ++i) {
    const TraceBuffer& buffer = trace_.buffers[i];
    const auto wrong = [&](std::string message) {
      in_.refuse(ErrorCode::E503, buffer_places_[i], std::move(message), write_again);
    };
    for (const int op : {buffer.taken, buffer.returned})
      if (op >= 0 && !has_event(buffer.lane, op))
        wrong(fmt::format("a buffer belongs to operation {} of lane {}, which has no event", op, buffer.lane));
    if (buffer.returned < buffer.taken)
      wrong(fmt::format("a buffer is taken by operation {} and returned before that, after operation {}", buffer.taken,
                        buffer.returned));
  }
}

Result<Trace> TraceReader::read() {
  constexpr size_t nowhere = std::string::npos;
  size_t header_at = nowhere, events_at = nowhere;
  const size_t begin = in_.next();
  if (!in_.looking_at("{"))
    in_.refuse(ErrorCode::E501, begin, in_.at_end() ? "the file is empty" : "this is not a trace of Piper",
               "piper simulate --trace OUT writes one");
  in_.open_object("the trace");
  for (std::string_view key; in_.member(key);) {
    size_t* at = key == "otherData" ? &header_at : key == "traceEvents" ? &events_at : nullptr;
    if (at && *at != nowhere) in_.refuse_last("the member stands twice");
    if (at) *at = in_.next();
    if (at == &header_at)
      header();
    else if (at == &events_at && header_at != nowhere)
      events();
    else
      in_.skip();
  }
  in_.end();
  if (header_at == nowhere)
    in_.refuse(ErrorCode::E501, begin, "this is not a trace of Piper: it has no \"otherData\"",
               "piper simulate --trace OUT writes one; traces of other tools name no plan operations");
  if (events_at == nowhere) in_.refuse(ErrorCode::E503, begin, "the trace has no \"traceEvents\"", write_again);
  if (!in_.failed() && events_at < header_at) {  // nothing could be checked before the header was there
    in_.jump(events_at);
    events();
  }
  check_operations();
  if (in_.failed()) return in_.take_problem();
  return std::move(trace_);
}

}  // namespace

Result<Trace> parse_chrome(const SourceFilePtr& file) {
  if (file->text.size() > largest_file)
    return error(ErrorCode::E113, {file, 0, 1},
                 fmt::format("the trace has {} bytes; the limit is {}", file->text.size(), largest_file))
        .help("trace fewer steps or devices");
  return TraceReader(file).read();
}

Result<Trace> load_trace(const std::string& path) {
  PIPER_TRY(const SourceFilePtr file, read_file(path, "trace", largest_file));
  return parse_chrome(file);
}

}  // namespace piper
