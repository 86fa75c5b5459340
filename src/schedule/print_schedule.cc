#include <fmt/format.h>
#include <fmt/ranges.h>

#include "schedule/print_argument.h"
#include "schedule/schedule_text.h"

namespace piper {
namespace {

std::string print(const IndexRange& range) {
  return range.low == range.high ? fmt::format("{}", range.low) : fmt::format("{}..{}", range.low, range.high);
}

std::string print(const TagCondition& condition) {
  std::vector<std::string> values;
  for (const IndexRange& range : condition.indices) values.push_back(print(range));
  for (const std::string& word : condition.words) values.push_back(as_name(word));
  const std::string value = condition.any        ? "*"
                            : values.size() == 1 ? values[0]
                                                 : fmt::format("[{}]", fmt::join(values, ", "));
  return fmt::format("{}={}", as_name(condition.tag), value);
}

/// `use dualpipev`: what stands before the bracket.
std::string head(const DirectiveBody& body) {
  const auto* use = std::get_if<Use>(&body);
  return use ? "use " + as_name(use->timeline) : std::string(verb(body));
}

/// All arguments but those that have their defaults.
template <class Body>
std::vector<std::string> print_arguments(const Body& body) {
  const Body usual;
  std::vector<std::string> out;
  if (!opening_word<Body>.empty()) out.emplace_back(opening_word<Body>);
  for_each_field<Body>([&](const auto& row) {
    const bool written = row.always || !kind::is_named<decltype(row.kind)> || !(body.*row.member == usual.*row.member);
    const std::string text = written ? print_argument(row, body) : "";
    if (!text.empty()) out.push_back(text);
  });
  return out;
}

}  // namespace

std::string print(const Filter& filter) {
  std::vector<std::string> conditions;
  for (const TagCondition& condition : filter.conditions) conditions.push_back(print(condition));
  return fmt::format("{{{}}}", fmt::join(conditions, ", "));
}

std::string print(const DirectiveBody& body) {
  const auto arguments = std::visit([](const auto& directive) { return print_arguments(directive); }, body);
  return fmt::format("{}({})", head(body), fmt::join(arguments, ", "));
}

std::string print(const Schedule& schedule) {
  std::string out;
  for (const Directive& directive : schedule.directives) out += print(directive.body) + "\n";
  return out;
}

}  // namespace piper
