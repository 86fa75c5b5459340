// Cluster files: TOML, described in docs/cluster.md. Everything a file can get wrong is found here, once.
#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <cmath>

#include "base/bytes.h"
#include "base/suggest.h"
#include "base/text/toml_section.h"
#include "cost/cluster.h"
#include "cost/quantity.h"

namespace piper {
namespace {

constexpr int64_t most_devices = 1 << 24;
constexpr size_t most_entries = 1000;  // nodes, kinds, points of a curve

/// What a number without a unit may be: outside, a unit was forgotten (`bandwidth = 450`).
struct Range {
  Quantity quantity;
  double least, most;
};
constexpr Range rate = {Quantity::Rate, 1e6, 1e18};
constexpr Range seconds = {Quantity::Seconds, 0, 1};
constexpr Range compute = {Quantity::Compute, 1e6, 1e24};

Result<double> read_quantity(const TomlSection& section, const TomlValue& value, const Range& range) {
  const std::string& key = value.key;
  const bool is_text = value.kind == TomlValue::Kind::Text;
  if (!is_text && value.kind != TomlValue::Kind::Integer && value.kind != TomlValue::Kind::Number)
    return section.bad(key, fmt::format("{} must be a text such as {}", key, example(range.quantity)));
  const std::optional<double> number =
      is_text ? parse_quantity(range.quantity, value.text) : std::optional<double>(value.number);
  if (!number || !std::isfinite(*number))
    return section.bad(key, fmt::format("{} must be a text such as {}", key, example(range.quantity)))
        .help(fmt::format("units are {}, without a blank before them", units(range.quantity)));
  if (*number < 0 || (range.least > 0 && *number == 0))
    return section.bad(key, fmt::format("{} must {}", key, range.least > 0 ? "be above 0" : "not be negative"));
  if (*number < range.least || *number > range.most)
    return section.bad(key, fmt::format("{} = {} {} is out of range", key, *number, plain_unit(range.quantity)))
        .help(fmt::format("write it with a unit: {}", example(range.quantity)));
  return *number;
}

Checked read(const TomlSection& section, std::string_view key, const Range& range, double& into) {
  if (const TomlValue* value = section.table().find(key)) {
    PIPER_TRY(into, read_quantity(section, *value, range));
  }
  return Ok{};
}

/// A share of something: above 0 and at most 1.
Checked read_share(const TomlSection& section, std::string_view key, double& into) {
  PIPER_TRY(const auto share, section.number(key));
  if (share && (*share <= 0 || *share > 1))
    return section.bad(key, fmt::format("{} must be a share, above 0 and at most 1", key));
  into = share.value_or(into);
  return Ok{};
}

Checked read_count(const TomlSection& section, std::string_view key, int64_t least, int& into) {
  PIPER_TRY(const auto count, section.integer(key));
  if (count && (*count < least || *count > most_devices))
    return section.bad(key, fmt::format("{} must be from {} to {}", key, least, most_devices));
  if (count) into = static_cast<int>(*count);
  return Ok{};
}

Checked read_peak(const TomlSection& peak, DeviceKind& kind) {
  PIPER_CHECK(peak.only(dtype_names()));
  kind.peak.fill(0);
  for (const TomlValue& value : peak.table().items) {
    PIPER_TRY(kind.peak[static_cast<size_t>(*dtype_named(value.key))], read_quantity(peak, value, compute));
  }
  return Ok{};
}

/// `[[256, 128, 1.0], [128, 64, 0.75]]`: rows, columns and speed.
Checked read_tiles(const TomlSection& section, OperatorCosts& costs) {
  const TomlValue* value = section.table().find("tiles");
  if (!value) return Ok{};
  const auto wrong = [&](const SourceRange& where, std::string message) {
    return error(ErrorCode::E111, where, std::move(message))
        .help("tiles = [[256, 128, 1.0], [128, 64, 0.75]]: rows, columns, and the share of the speed they reach");
  };
  if (value->kind != TomlValue::Kind::List || value->items.empty() || value->items.size() > most_entries)
    return wrong(value->place, "tiles must be a list");
  for (const TomlValue& tile : value->items) {
    if (tile.kind != TomlValue::Kind::List || tile.items.size() != 3)
      return wrong(tile.place, "a tile must be rows, columns and a share");
    for (size_t i = 0; i < 2; ++i)
      if (tile.items[i].kind != TomlValue::Kind::Integer || tile.items[i].integer < 1 || tile.items[i].integer > 65536)
        return wrong(tile.items[i].place, "rows and columns of a tile must be from 1 to 65536");
    const TomlValue& speed = tile.items[2];
    const bool number = speed.kind == TomlValue::Kind::Integer || speed.kind == TomlValue::Kind::Number;
    if (!number || !(speed.number > 0) || speed.number > 1)
      return wrong(speed.place, "the share of the speed must be above 0 and at most 1");
    costs.tiles.push_back(
        {static_cast<int>(tile.items[0].integer), static_cast<int>(tile.items[1].integer), speed.number});
  }
  return Ok{};
}

Checked read_operators(const TomlSection& section, OperatorCosts& costs) {
  PIPER_CHECK(section.only({"issue", "sharpness", "multiprocessors", "tiles"}));
  PIPER_CHECK(read(section, "issue", seconds, costs.issue));
  PIPER_TRY(const auto sharpness, section.number("sharpness"));
  if (sharpness && !(*sharpness >= 1 && *sharpness <= 100))
    return section.bad("sharpness", "sharpness must be from 1, which adds host and device up, to 100");
  costs.sharpness = sharpness.value_or(costs.sharpness);
  PIPER_CHECK(read_count(section, "multiprocessors", 1, costs.multiprocessors));
  return read_tiles(section, costs);
}

Result<DeviceKind> read_kind(const TomlValue& table) {
  if (table.kind != TomlValue::Kind::Table)
    return error(ErrorCode::E111, table.key_place, "[device] must say which kind of device it describes")
        .help("write [device.NAME], with a name of your choice");
  const TomlSection device(fmt::format("[device.{}]", table.key), table);
  PIPER_CHECK(device.only(
      {"memory", "bandwidth", "launch", "issue", "compute_efficiency", "memory_efficiency", "peak", "operators"}));
  DeviceKind kind;
  kind.name = table.key;
  kind.where = table.key_place;
  PIPER_TRY(kind.memory, device.bytes("memory"));
  PIPER_CHECK(read(device, "bandwidth", rate, kind.memory_bandwidth));
  PIPER_CHECK(read(device, "launch", seconds, kind.launch));
  PIPER_CHECK(read(device, "issue", seconds, kind.issue));
  PIPER_CHECK(read_share(device, "compute_efficiency", kind.compute_efficiency));
  PIPER_CHECK(read_share(device, "memory_efficiency", kind.memory_efficiency));
  if (const TomlValue* peak = device.table().find("peak")) {
    if (peak->kind != TomlValue::Kind::Table)
      return device.bad("peak", "peak must say for which dtype")
          .help(fmt::format("write [device.{}.peak] and below it bfloat16 = \"989TFLOPS\"", kind.name));
    PIPER_CHECK(read_peak(TomlSection(fmt::format("[device.{}.peak]", kind.name), *peak), kind));
  }
  PIPER_TRY(const auto operators, device.section("operators"));
  if (operators) PIPER_CHECK(read_operators(*operators, kind.operators.emplace()));
  return kind;
}

Result<NodeRun> read_nodes(const TomlSection& section, const std::vector<DeviceKind>& kinds) {
  PIPER_CHECK(section.only({"count", "devices", "device", "processors", "together"}));
  NodeRun run;
  PIPER_CHECK(read_count(section, "count", 1, run.count));
  PIPER_CHECK(read_count(section, "devices", 1, run.devices));
  PIPER_CHECK(read_count(section, "processors", 1, run.processors));
  if (run.processors > 0 && run.devices % run.processors != 0)
    return section.bad("processors",
                       fmt::format("{} processors cannot be given evenly to {} devices", run.processors, run.devices));
  PIPER_TRY(const auto together, section.number("together"));
  if (together && (run.processors == 0 || run.processors == run.devices))
    return section.bad("together", "together means nothing where no devices share a processor");
  if (together && !(*together > 0 && *together <= run.devices))
    return section.bad("together", "together must be above 0, and at most as large as there are devices");
  run.together = together.value_or(run.together);
  PIPER_TRY(const auto named, section.text("device"));
  if (!named) {
    if (kinds.size() == 1) return run;
    return error(ErrorCode::E111, section.place(), "[[nodes]] does not say which device its nodes have")
        .help("add device = \"NAME\", a kind described by [device.NAME]");
  }
  std::vector<std::string> known;
  for (const DeviceKind& kind : kinds) known.push_back(kind.name);
  const auto found = std::find(known.begin(), known.end(), *named);
  if (found == known.end())
    return section.bad("device", fmt::format("there is no [device.{}]", *named)).help(did_you_mean(*named, known));
  run.kind = static_cast<int>(found - known.begin());
  return run;
}

/// `[["64KB", 0.3], ["16MB", 0.9]]`, with growing sizes; or one share for all.
Checked read_efficiency(const TomlSection& section, LinkLevel& level) {
  const TomlValue* value = section.table().find("efficiency");
  if (!value) return Ok{};
  const auto wrong = [&](const SourceRange& where, std::string message) {
    return error(ErrorCode::E111, where, std::move(message))
        .help(
            "efficiency = [[\"64KB\", 0.3], [\"16MB\", 0.9]]: sizes of messages, and the share of the bandwidth they "
            "reach");
  };
  if (value->kind == TomlValue::Kind::Integer || value->kind == TomlValue::Kind::Number) {
    level.efficiency = {{1, 1}};
    return read_share(section, "efficiency", level.efficiency[0].share);
  }
  if (value->kind != TomlValue::Kind::List || value->items.empty() || value->items.size() > most_entries)
    return wrong(value->place, "efficiency must be a list of sizes and shares");
  for (const TomlValue& point : value->items) {
    if (point.kind != TomlValue::Kind::List || point.items.size() != 2)
      return wrong(point.place, "a point of efficiency must be a size and a share");
    const TomlValue &size = point.items[0], &share = point.items[1];
    std::optional<int64_t> bytes;
    if (size.kind == TomlValue::Kind::Text) bytes = parse_bytes(size.text);
    if (size.kind == TomlValue::Kind::Integer) bytes = size.integer;
    if (!bytes || *bytes < 1)
      return wrong(size.place, "the size of a message must be bytes, or a text such as \"64KB\"");
    const bool number = share.kind == TomlValue::Kind::Integer || share.kind == TomlValue::Kind::Number;
    if (!number || !(share.number > 0) || share.number > 1)
      return wrong(share.place, "the share of the bandwidth must be above 0 and at most 1");
    if (!level.efficiency.empty() && static_cast<double>(*bytes) <= level.efficiency.back().bytes)
      return wrong(size.place, "the sizes must grow");
    level.efficiency.push_back({static_cast<double>(*bytes), share.number});
  }
  return Ok{};
}

Result<LinkLevel> read_level(const TomlSection& section) {
  PIPER_CHECK(
      section.only({"name", "joins", "ports", "bandwidth", "latency", "gap", "reduces", "reduce_share", "efficiency"}));
  LinkLevel level;
  level.where = section.place();
  PIPER_TRY(const auto named, section.text("name"));
  level.name = named.value_or(level.name);
  PIPER_CHECK(read_count(section, "joins", 2, level.joins));
  PIPER_CHECK(read_count(section, "ports", 1, level.ports));
  PIPER_CHECK(read(section, "bandwidth", rate, level.bandwidth));
  PIPER_CHECK(read(section, "latency", seconds, level.latency));
  if (section.has("gap")) PIPER_CHECK(read(section, "gap", seconds, level.gap.emplace()));
  PIPER_TRY(const auto reduces, section.flag("reduces"));
  level.reduces = reduces.value_or(false);
  if (section.has("reduce_share") && !level.reduces)
    return section.bad("reduce_share", "reduce_share means nothing without reduces = true");
  PIPER_CHECK(read_share(section, "reduce_share", level.reduce_share));
  PIPER_CHECK(read_efficiency(section, level));
  return level;
}

/// Every level joins whole units of the level below, and its ports are evenly given to their devices.
Checked check_levels(const std::vector<TomlSection>& sections, const std::vector<LinkLevel>& levels) {
  int below = 1;
  for (size_t l = 0; l < levels.size(); ++l) {
    const LinkLevel& level = levels[l];
    if (below == 0)
      return error(ErrorCode::E111, level.where,
                   fmt::format("\"{}\" has nothing to join: \"{}\" joins all devices", level.name, levels[l - 1].name))
          .help("links are listed from the inside out; say how many devices the inner ones join");
    if (level.joins > 0 && (level.joins % below != 0 || level.joins <= below))
      return sections[l]
          .bad("joins", fmt::format("\"{}\" joins {} devices, which is not several times the {} of \"{}\"", level.name,
                                    level.joins, below, levels[l - 1].name))
          .help("links are listed from the inside out, and every level joins whole units of the one before");
    if (level.ports % below != 0 && below % level.ports != 0)
      return sections[l]
          .bad("ports", fmt::format("{} ports cannot be given evenly to {} devices", level.ports, below))
          .help("the ports belong to the devices that the level before joins");
    below = level.joins;
  }
  return Ok{};
}

/// No unit of a level cuts a node in two, unless it is a part of the node.
Checked check_nodes(const std::vector<TomlSection>& sections, const Cluster& cluster) {
  int64_t first = 0;
  for (size_t r = 0; r < cluster.nodes.size(); ++r) {
    const NodeRun& run = cluster.nodes[r];
    if (run.count == 0 && r + 1 < cluster.nodes.size())
      return error(ErrorCode::E111, sections[r].place(), "only the last [[nodes]] may leave out count")
          .help("without count there are as many as wanted, so none can follow");
    for (const LinkLevel& level : cluster.levels) {
      const int inner = std::min(level.joins, run.devices), outer = std::max(level.joins, run.devices);
      if (level.joins > 0 && (outer % inner != 0 || first % inner != 0))
        return sections[r]
            .bad("devices", fmt::format("\"{}\" joins {} devices, which cuts nodes of {} apart", level.name,
                                        level.joins, run.devices))
            .note(level.where, "joined here")
            .help("a level joins whole nodes, or equal parts of every node");
    }
    first += int64_t{run.count} * run.devices;
    if (first > most_devices)
      return error(ErrorCode::E111, sections[r].place(), fmt::format("more than {} devices", most_devices));
  }
  return Ok{};
}

/// Every kind is somewhere, so that none is ignored.
Checked check_kinds(const Cluster& cluster) {
  for (size_t k = 0; k < cluster.kinds.size(); ++k) {
    bool used = cluster.nodes.empty() && cluster.kinds.size() == 1;
    for (const NodeRun& run : cluster.nodes) used = used || static_cast<size_t>(run.kind) == k;
    if (!used)
      return error(ErrorCode::E111, cluster.kinds[k].where,
                   fmt::format("no [[nodes]] have device = \"{}\"", cluster.kinds[k].name))
          .help("several kinds of device need [[nodes]] that say where each kind is");
  }
  return Ok{};
}

Checked read_cluster(const TomlSection& section, Cluster& cluster) {
  PIPER_CHECK(section.only({"name", "slowdown", "step"}));
  PIPER_TRY(const auto named, section.text("name"));
  cluster.name = named.value_or(cluster.name);
  PIPER_TRY(const auto slowdown, section.number("slowdown"));
  if (slowdown && (*slowdown < 0 || *slowdown >= 1))
    return section.bad("slowdown", "slowdown must be a share, at least 0 and below 1");
  cluster.slowdown = slowdown.value_or(cluster.slowdown);
  return read(section, "step", seconds, cluster.step);
}

}  // namespace

Result<Cluster> parse_cluster(const SourceFilePtr& file) {
  PIPER_TRY(const TomlValue root, parse_toml(file));
  const TomlSection whole("the file", root);
  PIPER_CHECK(whole.only({"cluster", "device", "nodes", "links"}));
  Cluster cluster;
  PIPER_TRY(const auto named, whole.section("cluster"));
  if (named) PIPER_CHECK(read_cluster(*named, cluster));
  PIPER_TRY(const auto devices, whole.section("device"));
  if (devices) {
    cluster.kinds.clear();
    for (const TomlValue& kind : devices->table().items) {
      PIPER_TRY(DeviceKind read, read_kind(kind));
      cluster.kinds.push_back(std::move(read));
    }
    if (cluster.kinds.empty())
      return error(ErrorCode::E111, devices->place(), "[device] describes no kind of device")
          .help("write [device.NAME]");
  }
  PIPER_TRY(const auto nodes, whole.sections("nodes"));
  for (const TomlSection& section : nodes) {
    PIPER_TRY(const NodeRun run, read_nodes(section, cluster.kinds));
    cluster.nodes.push_back(run);
  }
  PIPER_TRY(const auto links, whole.sections("links"));
  if (links.size() > max_link_levels)
    return error(ErrorCode::E111, links[max_link_levels].place(),
                 fmt::format("more than {} levels of links", max_link_levels));
  if (!links.empty()) cluster.levels.clear();
  for (const TomlSection& section : links) {
    PIPER_TRY(LinkLevel level, read_level(section));
    cluster.levels.push_back(std::move(level));
  }
  PIPER_CHECK(check_levels(links, cluster.levels));
  PIPER_CHECK(check_nodes(nodes, cluster));
  PIPER_CHECK(check_kinds(cluster));
  if (links.empty() && !nodes.empty() && device_limit(cluster) > 1)
    return error(ErrorCode::E111, nodes[0].place(), "no [[links]] join these devices")
        .help("add [[links]] with bandwidth and latency: one for devices of a node, one for nodes");
  if (const int limit = device_limit(cluster); limit != INT_MAX)
    PIPER_CHECK(check_devices(cluster, limit, nodes.back().place()));
  return cluster;
}

}  // namespace piper
