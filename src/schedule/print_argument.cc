#include "schedule/print_argument.h"

#include <fmt/ranges.h>

#include "base/bytes.h"
#include "base/text/scanner.h"
#include "schedule/schedule_text.h"

namespace piper {
namespace {

std::string join(const std::vector<std::string>& items) {
  return fmt::format("{}", fmt::join(items, ", "));
}

/// One as it is, several in a bracket.
std::string one_or_bracket(const std::vector<std::string>& items) {
  return items.size() == 1 ? items[0] : fmt::format("[{}]", join(items));
}

}  // namespace

std::string print(const kind::Integer&, int value) {
  return fmt::format("{}", value);
}

std::string print(const kind::Integer&, const std::optional<int>& value) {
  return value ? fmt::format("{}", *value) : "";
}

std::string print(const kind::IntegerOr& kind, const std::optional<int>& value) {
  return value ? fmt::format("{}", *value) : std::string(kind.word);
}

std::string print(const kind::Name&, const std::string& value) {
  return as_name(value);
}

std::string print(const kind::Bytes&, int64_t value) {
  return print_bytes(value);
}

std::string print(const kind::Load&, int64_t value) {
  return value > 0 ? print_load(value) : "";
}

std::string print(const kind::Integers&, const std::vector<int>& value) {
  return fmt::format("[{}]", fmt::join(value, ", "));
}

std::string print(const kind::Flag&, bool value) {
  return value ? "on" : "off";
}

std::string print(const kind::Seeds&, const std::vector<ShardSeed>& value) {
  std::vector<std::string> seeds;
  for (const ShardSeed& seed : value) seeds.push_back(fmt::format("{}: {}", seed.pattern, seed.dim));
  return as_name(join(seeds));
}

std::string print(const kind::Selected&, const Filter& value) {
  return print(value);
}

std::string print(const kind::Where&, const DeviceChoice& value) {
  std::vector<std::string> ways;
  if (value.mesh) ways.push_back("mesh=" + print(*value.mesh));
  if (!value.lists.empty()) {
    std::vector<std::string> lists;
    for (const DeviceList& list : value.lists) lists.push_back(print_devices(list));
    ways.push_back(fmt::format("devices={}", fmt::join(lists, " | ")));
  }
  if (!value.along.empty()) {
    std::vector<std::string> names;
    for (const std::string& axis : value.along) names.push_back(as_name(axis));
    ways.push_back("along=" + one_or_bracket(names));
  }
  return join(ways);
}

std::string print(const kind::Count&, int value) {
  return fmt::format("{}", value);
}

std::string print(const kind::File&, const std::string& value) {
  return value.empty() ? "" : as_name(value);
}

std::string print(const kind::Axes&, const std::vector<MeshAxis>& value) {
  std::vector<std::string> axes;
  for (const MeshAxis& axis : value) axes.push_back(fmt::format("{}={}", as_name(axis.name), axis.size));
  return join(axes);
}

std::string print(const kind::Elements&, const std::vector<OrderElement>& value) {
  std::vector<std::string> elements;
  for (const OrderElement& element : value) {
    std::vector<std::string> parts;
    for (const Filter& filter : element.parts) parts.push_back(print(filter));
    elements.push_back(one_or_bracket(parts));
  }
  return join(elements);
}

}  // namespace piper
