#include "tools/read_routing.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/read_file.h"

namespace piper {
namespace {

using nlohmann::json;

constexpr size_t largest_trace = size_t{4} << 30;

/// Positive numbers, or nothing.
std::vector<double> loads_of(const json& layer) {
  const auto is_share = [](const json& share) { return share.is_number() && share.get<double>() >= 0; };
  if (!layer.is_array() || !std::ranges::all_of(layer, is_share)) return {};
  auto out = layer.get<std::vector<double>>();
  return std::ranges::any_of(out, [](double share) { return share > 0; }) ? out : std::vector<double>();
}

}  // namespace

Result<Routing> read_routing(const std::string& text) {
  constexpr std::string_view trace = "trace:";
  if (!text.starts_with(trace)) return parse_routing(text);
  const std::string path = text.substr(trace.size());
  PIPER_TRY(const SourceFilePtr file, read_file(path, "metrics", largest_trace));
  const std::string_view lines = file->text;
  Routing out;
  for (size_t begin = 0; begin < lines.size();) {
    const size_t end = std::min(lines.find('\n', begin), lines.size());
    const json line = json::parse(lines.substr(begin, end - begin), nullptr, false);
    begin = end + 1;
    if (!line.is_object() || !line.contains("expert_load")) continue;
    for (const json& layer : line["expert_load"])
      if (std::vector<double> loads = loads_of(layer); !loads.empty()) out.traced.push_back(std::move(loads));
  }
  if (!out.traced.empty()) return out;
  return error(ErrorCode::E111, {}, fmt::format("{} has no loads of experts", path))
      .help("train with expert_load = true in [model], and --metrics FILE");
}

}  // namespace piper
