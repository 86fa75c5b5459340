#include "train/planted_fault.h"

#include <charconv>
#include <utility>

namespace piper {
namespace {

constexpr std::pair<std::string_view, PlantedFault::Kind> kinds[] = {
    {"kill", PlantedFault::Kind::Kill},     {"stop", PlantedFault::Kind::Stop}, {"throw", PlantedFault::Kind::Throw},
    {"memory", PlantedFault::Kind::Memory}, {"hang", PlantedFault::Kind::Hang}, {"plan", PlantedFault::Kind::Plan}};

constexpr std::pair<std::string_view, PlantedFault::When> points_in_time[] = {
    {"joining", PlantedFault::When::Joining},
    {"forming", PlantedFault::When::Forming},
    {"restoring", PlantedFault::When::Restoring}};

/// The number in front of the next colon, which goes too.
template <class T>
bool take_number(std::string_view& text, T& number) {
  const size_t end = std::min(text.find(':'), text.size());
  const auto [stop, problem] = std::from_chars(text.data(), text.data() + end, number);
  if (problem != std::errc() || stop != text.data() + end || number < 0) return false;
  text.remove_prefix(std::min(end + 1, text.size()));
  return true;
}

}  // namespace

std::optional<PlantedFault> parse_planted_fault(std::string_view text) {
  PlantedFault out;
  for (const auto& [name, kind] : kinds) {
    if (!text.starts_with(name) || text.substr(name.size(), 1) != ":") continue;
    out.kind = kind;
    text.remove_prefix(name.size() + 1);
    if (!take_number(text, out.rank)) return {};
    for (const auto& [when, value] : points_in_time)
      if (text == when) {
        out.when = value;
        return out;
      }
    if (!text.empty() && !take_number(text, out.operation)) return {};
    if (!text.empty()) return {};
    return out;
  }
  return {};
}

}  // namespace piper
