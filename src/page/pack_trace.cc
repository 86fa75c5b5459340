#include "page/pack_trace.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>
#include <unordered_map>

#include "base/invariant.h"
#include "trace/summary.h"
#include "trace/trace_index.h"

namespace piper {
namespace {

using nlohmann::ordered_json;

/// Every text once, by number.
class Strings {
 public:
  int number(const std::string& text) {
    const auto [at, added] = numbers_.emplace(text, static_cast<int>(all_.size()));
    if (added) all_.push_back(text);
    return at->second;
  }
  const std::vector<std::string>& all() const { return all_; }

 private:
  std::unordered_map<std::string, int> numbers_;
  std::vector<std::string> all_;
};

/// Names in two parts, cut at the first blank (`layer.3.attention`, `F mb=2`): few parts make up a great many names.
class Names {
 public:
  struct Parts {
    int stem, rest;
  };
  Parts parts(const std::string& name) {
    const size_t blank = std::min(name.find(' '), name.size());
    return {stems_.number(name.substr(0, blank)), rests_.number(name.substr(blank))};
  }
  void put(ordered_json& header) const {
    header["stems"] = stems_.all();
    header["rests"] = rests_.all();
  }

 private:
  Strings stems_, rests_;
};

/// Columns one after the other. The bytes of a column are sorted by significance: equal ones come together and deflate
/// well.
class Columns {
 public:
  void integers(const std::string& name, const std::vector<int>& values) {
    std::vector<int> differences(values);
    for (size_t i = values.size(); i-- > 1;)
      differences[i] = static_cast<int>(static_cast<uint32_t>(values[i]) - static_cast<uint32_t>(values[i - 1]));
    const auto [least, most] = std::minmax_element(differences.begin(), differences.end());
    const bool none = values.empty();
    const size_t width = none || (*least >= -128 && *most < 128) ? 1 : *least >= -32768 && *most < 32768 ? 2 : 4;
    add(name, "integer", differences, width);
  }
  void reals(const std::string& name, const std::vector<double>& values) { add(name, "real", values, sizeof(double)); }

  const std::string& bytes() const { return bytes_; }
  const ordered_json& names() const { return names_; }

 private:
  /// The lowest `width` bytes of every number.
  template <class Number>
  void add(const std::string& name, const char* type, const std::vector<Number>& values, size_t width) {
    names_.push_back({name, type, values.size(), width});
    const size_t count = values.size(), begin = bytes_.size();
    bytes_.resize(begin + count * width);
    for (size_t i = 0; i < count; ++i) {
      char of_one[sizeof(Number)];
      std::memcpy(of_one, &values[i], sizeof(Number));
      for (size_t plane = 0; plane < width; ++plane) bytes_[begin + plane * count + i] = of_one[plane];
    }
  }

  std::string bytes_;
  ordered_json names_ = ordered_json::array();
};

/// Numbers of the events, sorted by row and start.
std::vector<int> page_order(const Trace& trace) {
  std::vector<int> order(trace.events.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  std::sort(order.begin(), order.end(), [&](int a, int b) {
    const TraceEvent &x = trace.events[static_cast<size_t>(a)], &y = trace.events[static_cast<size_t>(b)];
    return std::tie(x.lane, x.stream, x.start, x.end, a) < std::tie(y.lane, y.stream, y.start, y.end, b);
  });
  return order;
}

/// `[lane, stream, first, last]` of every row.
ordered_json rows_of(const Trace& trace, const std::vector<int>& order) {
  ordered_json rows = ordered_json::array();
  for (size_t i = 0; i < order.size(); ++i) {
    const TraceEvent& event = trace.events[static_cast<size_t>(order[i])];
    if (rows.empty() || rows.back()[0] != event.lane || rows.back()[1] != event.stream)
      rows.push_back({event.lane, event.stream, i, i});
    rows.back()[3] = i + 1;
  }
  return rows;
}

/// How far before the operation at `from` the one at `to` stands; never 0.
struct Places {
  std::vector<int> at;  // by event
  int distance(int from, int to) const { return at[static_cast<size_t>(from)] - at[static_cast<size_t>(to)]; }
};

void add_events(const Trace& trace, const std::vector<int>& order, Columns& columns, ordered_json& header) {
  Strings texts, kinds, passes;
  Names names;
  std::vector<int> stems, rests;  // by name
  const auto name_of = [&](const TraceEvent& event) {
    const int number = texts.number(event.name);
    if (static_cast<size_t>(number) == stems.size()) {
      const auto [stem, rest] = names.parts(event.name);
      stems.push_back(stem);
      rests.push_back(rest);
    }
    return number;
  };
  Places places{std::vector<int>(order.size())};
  for (size_t i = 0; i < order.size(); ++i) places.at[static_cast<size_t>(order[i])] = static_cast<int>(i);
  const TraceIndex index(trace.events);
  std::vector<double> start, end, bytes;
  std::map<std::string, std::vector<int>> of;
  std::vector<int> waits;
  for (const int number : order) {
    const TraceEvent& event = trace.events[static_cast<size_t>(number)];
    start.push_back(event.start);
    end.push_back(event.end);
    bytes.push_back(static_cast<double>(event.bytes));
    of["op"].push_back(event.op);
    of["name"].push_back(name_of(event));
    of["kind"].push_back(kinds.number(event.kind));
    of["pass"].push_back(passes.number(event.pass));
    of["slice"].push_back(event.slice);
    of["origin"].push_back(event.origin);
    of["step"].push_back(event.step);
    const int cause = event.cause.lane < 0 ? -1 : index.find(event.step, event.cause.lane, event.cause.op);
    of["cause"].push_back(cause < 0 ? 0 : places.distance(number, cause));
    of["waitCount"].push_back(static_cast<int>(event.waits.size()));
    for (const int op : event.waits) waits.push_back(places.distance(number, index.find(event.step, event.lane, op)));
  }
  columns.reals("start", start);
  columns.reals("end", end);
  columns.reals("bytes", bytes);
  for (const char* name : {"op", "name", "kind", "pass", "slice", "origin", "step", "cause", "waitCount"})
    columns.integers(name, of[name]);
  columns.integers("waitList", waits);
  columns.integers("nameStem", stems);
  columns.integers("nameRest", rests);
  names.put(header);
  header["kinds"] = kinds.all();
  header["passes"] = passes.all();
}

void add_memory(const Trace& trace, Columns& columns) {
  std::vector<const TraceMemory*> order;
  for (const TraceMemory& memory : trace.memory) order.push_back(&memory);
  std::stable_sort(order.begin(), order.end(), [](const TraceMemory* a, const TraceMemory* b) {
    return std::tie(a->lane, a->time) < std::tie(b->lane, b->time);
  });
  std::vector<int> lanes, ops;
  std::vector<double> times;
  std::vector<std::vector<double>> bytes(trace.categories.size());
  for (const TraceMemory* memory : order) {
    lanes.push_back(memory->lane);
    times.push_back(memory->time);
    ops.push_back(memory->op);
    for (size_t c = 0; c < bytes.size(); ++c) bytes[c].push_back(static_cast<double>(memory->bytes[c]));
  }
  columns.integers("memoryLane", lanes);
  columns.integers("memoryOp", ops);
  columns.reals("memoryTime", times);
  for (size_t c = 0; c < bytes.size(); ++c) columns.reals(fmt::format("memory{}", c), bytes[c]);
}

ordered_json numbers_of(const Trace& trace) {
  ordered_json out = ordered_json::array();
  for (const TraceSummary& s : summarize(trace)) {
    ordered_json lanes = ordered_json::array();
    for (const LaneSummary& lane : s.lanes)
      lanes.push_back({{"compute", lane.use.compute},
                       {"exposed", lane.use.exposed},
                       {"idle", lane.use.idle},
                       {"peak_bytes", lane.peak_bytes},
                       {"peak_time", lane.peak_time}});
    out.push_back({{"seconds", s.seconds},
                   {"tokens_per_second", s.tokens_per_second},
                   {"mfu", s.mfu},
                   {"bubble", s.bubble},
                   {"exposed", s.exposed},
                   {"peak_bytes", s.peak_bytes},
                   {"lanes", std::move(lanes)}});
  }
  return out;
}

std::string deflated(const std::string& bytes) {
  uLongf size = compressBound(bytes.size());
  std::string out(size, '\0');
  const int result = compress2(reinterpret_cast<Bytef*>(out.data()), &size,
                               reinterpret_cast<const Bytef*>(bytes.data()), bytes.size(), 6);
  invariant(result == Z_OK, "zlib deflates whatever fits in memory");
  out.resize(size);
  return out;
}

std::string packed(ordered_json header, const Columns& columns) {
  header["columns"] = columns.names();
  const std::string text = header.dump();
  const auto length = static_cast<uint32_t>(text.size());
  std::string bytes(4, '\0');
  for (size_t i = 0; i < 4; ++i) bytes[i] = static_cast<char>(length >> (8 * i) & 0xFF);
  return base64(deflated(bytes + text + columns.bytes()));
}

}  // namespace

std::string base64(std::string_view bytes) {
  constexpr std::string_view letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t word = 0;
    for (size_t k = 0; k < 3; ++k)
      word = word << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0);
    for (size_t k = 0; k < 4; ++k) out += i + k > bytes.size() ? '=' : letters[word >> (18 - 6 * k) & 63];
  }
  return out;
}

std::string pack_buffers(const Trace& trace) {
  std::vector<const TraceBuffer*> order;
  for (const TraceBuffer& buffer : trace.buffers) order.push_back(&buffer);
  std::stable_sort(order.begin(), order.end(), [](const TraceBuffer* a, const TraceBuffer* b) {
    return std::tie(a->lane, a->taken) < std::tie(b->lane, b->taken);
  });
  Names names;
  std::map<std::string, std::vector<int>> of;
  std::vector<double> bytes;
  for (const TraceBuffer* buffer : order) {
    of["lane"].push_back(buffer->lane);
    of["category"].push_back(buffer->category);
    const auto [stem, rest] = names.parts(buffer->name);
    of["stem"].push_back(stem);
    of["rest"].push_back(rest);
    of["taken"].push_back(buffer->taken);
    of["returned"].push_back(buffer->returned);
    bytes.push_back(static_cast<double>(buffer->bytes));
  }
  Columns columns;
  for (const char* name : {"lane", "category", "stem", "rest", "taken", "returned"}) columns.integers(name, of[name]);
  columns.reals("bytes", bytes);
  ordered_json header;
  names.put(header);
  return packed(std::move(header), columns);
}

std::string pack(const PageTrace& page) {
  const Trace& trace = page.trace;
  const std::vector<int> order = page_order(trace);
  Columns columns;
  ordered_json header;
  header["label"] = page.label;
  header["source"] = trace.source;
  header["model"] = trace.model;
  header["cluster"] = trace.cluster;
  header["plan"] = trace.plan;
  header["seconds"] = trace.seconds;
  header["lanes"] = trace.lanes;
  header["capacity"] = trace.capacity;
  header["streams"] = trace.streams;
  header["categories"] = trace.categories;
  header["origins"] = ordered_json::array();
  for (const TraceOrigin& origin : trace.origins) header["origins"].push_back({origin.place, origin.text});
  header["steps"] = ordered_json::array();
  for (const TraceStep& step : steps_of(trace)) header["steps"].push_back({step.number, step.start, step.end});
  header["rows"] = rows_of(trace, order);
  header["summary"] = numbers_of(trace);
  header["comparison"] = ordered_json::parse(page.comparison);
  add_events(trace, order, columns, header);
  add_memory(trace, columns);
  return packed(std::move(header), columns);
}

}  // namespace piper
