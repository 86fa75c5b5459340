#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "schedule/json_schedule.h"
#include "schedule/schedule_text.h"

namespace piper {
namespace {

/// One filter of an order that names half of a backward.
struct Half {
  size_t directive = 0;
  std::pair<size_t, size_t> position;  // element, part
  SourceRange where;
};

struct Halves {
  std::string tags;  // `{PP=0, MB=1}`, as first written
  std::vector<Half> input, weight;
};

/// The filter without its pass; `key` does not depend on the order of the conditions.
struct Rest {
  std::string tags, key;
};

Rest without_pass(const Filter& filter) {
  Filter rest;
  std::vector<std::string> parts;
  for (const TagCondition& condition : filter.conditions) {
    if (condition.tag == "pass") continue;
    rest.conditions.push_back(condition);
    parts.push_back(print(Filter{{condition}, {}}));
  }
  std::sort(parts.begin(), parts.end());
  return {print(rest), fmt::format("{}", fmt::join(parts, ""))};
}

void collect(const Order& order, size_t directive, std::map<std::string, Halves>& all) {
  for (size_t e = 0; e < order.elements.size(); ++e) {
    for (size_t p = 0; p < order.elements[e].parts.size(); ++p) {
      const Filter& filter = order.elements[e].parts[p];
      const TagCondition* pass = filter.find("pass");
      if (!pass || filter.find("comm")) continue;
      const bool input = pass->words == std::vector<std::string>{"BI"};
      if (!input && pass->words != std::vector<std::string>{"BW"}) continue;
      Rest rest = without_pass(filter);
      Halves& halves = all.try_emplace(std::move(rest.key), Halves{std::move(rest.tags), {}, {}}).first->second;
      (input ? halves.input : halves.weight).push_back({directive, {e, p}, filter.where});
    }
  }
}

Diagnostic refuse(const Halves& halves, const Half& at, std::string_view what, std::string_view help) {
  return error(ErrorCode::E107, at.where, fmt::format("order: {} of {}", what, halves.tags)).help(std::string(help));
}

Diagnostic refuse(const Halves& halves, const Half& at, std::string_view what, const Half& other,
                  std::string_view help) {
  Diagnostic problem = refuse(halves, at, what, help);
  problem.notes.push_back({other.where, "the other is here"});
  return problem;
}

Checked check(const Halves& halves) {
  const auto &input = halves.input, &weight = halves.weight;
  if (weight.empty())
    return refuse(halves, input[0], "BI without BW", "add the BW behind it in the same order, or use B");
  if (input.empty())
    return refuse(halves, weight[0], "BW without BI", "add the BI before it in the same order, or use B");
  if (input.size() > 1) return refuse(halves, input[1], "a second BI", input[0], "keep one of them");
  if (weight.size() > 1) return refuse(halves, weight[1], "a second BW", weight[0], "keep one of them");
  if (input[0].directive != weight[0].directive)
    return refuse(halves, weight[0], "BW in another order than BI", input[0], "put both into one order");
  if (weight[0].position < input[0].position)
    return refuse(halves, weight[0], "BW before BI", input[0], "BW needs what BI leaves; let BI come first");
  return Ok{};
}

}  // namespace

Checked check_backward_halves(const Schedule& schedule) {
  std::map<std::string, Halves> all;
  for (size_t d = 0; d < schedule.directives.size(); ++d)
    if (const auto* order = std::get_if<Order>(&schedule.directives[d].body)) collect(*order, d, all);
  for (const auto& [key, halves] : all) PIPER_CHECK(check(halves));
  return Ok{};
}

}  // namespace piper
