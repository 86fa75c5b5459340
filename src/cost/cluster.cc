#include "cost/cluster.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cmath>

#include "base/bytes.h"
#include "base/suggest.h"

namespace piper {
namespace {

SourceRange place_of(const SourceFilePtr& file, const toml::source_region& region) {
  const std::string& text = file->text;
  size_t at = 0;
  for (uint32_t line = 1; line < region.begin.line && at < text.size(); ++line) {
    const size_t next = text.find('\n', at);
    at = next == std::string::npos ? text.size() : next + 1;
  }
  const int begin =
      static_cast<int>(std::min(at + (region.begin.column > 0 ? region.begin.column - 1 : 0), text.size()));
  const bool one_line = region.end.line == region.begin.line && region.end.column > region.begin.column;
  return {file, begin, begin + (one_line ? static_cast<int>(region.end.column - region.begin.column) : 1)};
}

/// One key of a table: where its value goes.
struct Field {
  std::string section, key;
  double* number = nullptr;
  std::optional<int64_t>* bytes = nullptr;
  std::string* text = nullptr;
};

Checked read(const SourceFilePtr& file, const Field& field, const toml::node& node) {
  const SourceRange where = place_of(file, node.source());
  if (field.text) {
    if (const auto text = node.value_exact<std::string>()) {
      *field.text = *text;
      return Ok{};
    }
    return error(ErrorCode::E111, where, fmt::format("{} must be a text", field.key));
  }
  if (field.bytes) {
    const auto text = node.value_exact<std::string>();
    const auto bytes = text ? parse_bytes(*text) : node.value_exact<int64_t>();
    if (bytes && *bytes > 0) {
      *field.bytes = *bytes;
      return Ok{};
    }
    return error(ErrorCode::E111, where, fmt::format("{} must be a size such as \"80GB\"", field.key))
        .help("units are B, KB, MB, GB, TB and KiB, MiB, GiB, TiB, without a blank before them");
  }
  const auto number = node.value<double>();
  if (number && std::isfinite(*number) && *number > 0) {
    *field.number = *number;
    return Ok{};
  }
  return error(ErrorCode::E111, where, fmt::format("{} must be a number above 0", field.key));
}

Checked read_section(const SourceFilePtr& file, const std::vector<Field>& fields, const std::string& section,
                     const toml::table& table) {
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    const auto field = std::find_if(fields.begin(), fields.end(),
                                    [&](const Field& f) { return f.section == section && f.key == name; });
    if (field == fields.end()) {
      std::vector<std::string> known;
      for (const Field& f : fields)
        if (f.section == section) known.push_back(f.key);
      return error(ErrorCode::E111, place_of(file, key.source()),
                   fmt::format("unknown key \"{}\" in [{}]", name, section))
          .help(did_you_mean(name, known));
    }
    PIPER_CHECK(read(file, *field, node));
  }
  return Ok{};
}

}  // namespace

Result<Cluster> parse_cluster(const SourceFilePtr& file) {
  Cluster cluster;
  const std::vector<Field> fields = {
      {"cluster", "name", nullptr, nullptr, &cluster.name},
      {"device", "memory", nullptr, &cluster.memory, nullptr},
      {"device", "flops", &cluster.flops, nullptr, nullptr},
      {"device", "bandwidth", &cluster.memory_bandwidth, nullptr, nullptr},
      {"device", "launch", &cluster.launch, nullptr, nullptr},
      {"link", "bandwidth", &cluster.link_bandwidth, nullptr, nullptr},
      {"link", "latency", &cluster.link_latency, nullptr, nullptr},
  };
  try {
    const toml::table root = toml::parse(file->text);
    for (const auto& [key, node] : root) {
      const std::string section(key.str());
      if (section != "cluster" && section != "device" && section != "link")
        return error(ErrorCode::E111, place_of(file, key.source()), fmt::format("unknown section [{}]", section))
            .help(did_you_mean(section, {"cluster", "device", "link"}));
      if (!node.is_table())
        return error(ErrorCode::E111, place_of(file, key.source()), fmt::format("[{}] must be a section", section));
      PIPER_CHECK(read_section(file, fields, section, *node.as_table()));
    }
  } catch (const toml::parse_error& problem) {
    return error(ErrorCode::E111, place_of(file, problem.source()), fmt::format("not TOML: {}", problem.description()))
        .help("texts stand in double quotes, numbers do not");
  }
  return cluster;
}

double compute_seconds(const Cluster& cluster, const PassWork& work, int64_t samples) {
  const double flops = static_cast<double>(work.flops.at(samples)) / cluster.flops;
  const double bytes = static_cast<double>(work.bytes_moved.at(samples)) / cluster.memory_bandwidth;
  return std::max(flops, bytes) + cluster.launch;
}

double transfer_seconds(const Cluster& cluster, int64_t bytes) {
  return cluster.link_latency + static_cast<double>(bytes) / cluster.link_bandwidth;
}

double collective_seconds(const Cluster& cluster, int64_t bytes, int members) {
  if (members < 2) return cluster.launch;
  return cluster.link_latency * std::ceil(std::log2(members)) + static_cast<double>(bytes) / cluster.link_bandwidth;
}

}  // namespace piper
