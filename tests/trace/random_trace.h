// Random traces that hold what every trace must hold.
#pragma once

#include <rapidcheck.h>

#include <string>

#include "trace/trace.h"

namespace piper::testing {

inline std::string random_text() {
  static const std::vector<std::string> pieces = {"layer", ".3",   " F mb=2", "\"", "\\",   "</script>", "<b>",
                                                  "é",     "日本", "\n",      "\t", "\x7f", "😀",         "x"};
  std::string out;
  const int count = *rc::gen::inRange(0, 5);
  for (int i = 0; i < count; ++i) out += *rc::gen::elementOf(pieces);
  return out;
}

/// Any double a clock could give: whole microseconds, and the ugly ones between.
inline double random_time(double from = 0) {
  const double parts[] = {1e-6, 1.0 / 3, 1e-9, 0.1, 1e3, 1e-300};
  return from + *rc::gen::inRange<int64_t>(0, 1'000'000'000) * parts[*rc::gen::inRange(0, 6)] * 1e-6;
}

inline Trace random_trace() {
  Trace trace;
  trace.source = *rc::gen::element<std::string>("simulated", "measured");
  trace.model = random_text();
  trace.cluster = random_text();
  trace.plan = random_text();
  trace.seconds = random_time();
  trace.tokens = *rc::gen::inRange<int64_t>(0, 1LL << 40);
  trace.seconds_at_peak = random_time();
  const int lanes = *rc::gen::inRange(1, 4);
  for (int lane = 0; lane < lanes; ++lane) trace.lanes.push_back({2 * lane, 2 * lane + 1});
  if (*rc::gen::arbitrary<bool>()) trace.capacity.assign(trace.lanes.size(), 80'000'000'000);
  for (int i = *rc::gen::inRange(1, 4); i > 0; --i) trace.streams.push_back(random_text());
  for (int i = *rc::gen::inRange(0, 4); i > 0; --i) trace.categories.push_back(std::to_string(i) + random_text());
  for (int i = *rc::gen::inRange(0, 3); i > 0; --i) trace.origins.push_back({random_text(), random_text()});
  for (int i = *rc::gen::inRange(0, 3); i > 0; --i) {
    const double start = random_time();
    trace.steps.push_back({i, start, random_time(start)});
  }
  const int steps = std::max(1, static_cast<int>(trace.steps.size()));
  const int ops = *rc::gen::inRange(0, 4);
  for (int step = 0; step < steps; ++step)
    for (int lane = 0; lane < lanes; ++lane)
      for (int op = 0; op < ops; ++op) {
        TraceEvent event;
        event.step = step;
        event.lane = lane;
        event.op = op;
        event.stream = *rc::gen::inRange(0, static_cast<int>(trace.streams.size()));
        event.name = random_text();
        event.kind = random_text();
        event.pass = *rc::gen::element<std::string>("", "F", "BI");
        event.slice = *rc::gen::inRange(-1, 3);
        event.start = random_time();
        event.end = random_time(event.start);
        event.bytes = *rc::gen::inRange<int64_t>(0, 1LL << 50);
        event.origin = *rc::gen::inRange(-1, static_cast<int>(trace.origins.size()));
        for (int other = 0; other < op; ++other)
          if (*rc::gen::arbitrary<bool>()) event.waits.push_back(other);
        if (*rc::gen::arbitrary<bool>()) event.cause = {*rc::gen::inRange(0, lanes), *rc::gen::inRange(0, ops)};
        trace.events.push_back(std::move(event));
      }
  for (int i = *rc::gen::inRange(0, 4); i > 0; --i) {
    TraceMemory memory{*rc::gen::inRange(0, lanes), random_time(), {}};
    for (size_t c = 0; c < trace.categories.size(); ++c)
      memory.bytes.push_back(*rc::gen::inRange<int64_t>(0, 1LL << 50));
    memory.op = *rc::gen::inRange(-1, ops);
    trace.memory.push_back(std::move(memory));
  }
  for (int i = trace.categories.empty() ? 0 : *rc::gen::inRange(0, 4); i > 0; --i) {
    TraceBuffer buffer{*rc::gen::inRange(0, lanes), random_text(), 0, *rc::gen::inRange<int64_t>(0, 1LL << 50)};
    buffer.category = *rc::gen::inRange(0, static_cast<int>(trace.categories.size()));
    if (ops > 0 && *rc::gen::arbitrary<bool>()) {
      buffer.taken = *rc::gen::inRange(0, ops);
      buffer.returned = *rc::gen::inRange(buffer.taken, ops);
    }
    trace.buffers.push_back(std::move(buffer));
  }
  return trace;
}

}  // namespace piper::testing
