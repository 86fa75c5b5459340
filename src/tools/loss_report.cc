#include "tools/loss_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/text/scanner.h"
#include "base/text_table.h"
#include "base/time_text.h"
#include "schedule/schedule_text.h"

namespace piper {
namespace {

using nlohmann::ordered_json;

double difference(const Evaluated& before, const Evaluated& without) {
  return without.report.seconds / before.report.seconds - 1;
}

std::string memory_text(const Evaluated& evaluated) {
  const std::string used = human_bytes(evaluated.memory.total);
  return evaluated.capacity ? fmt::format("{} of {}", used, human_bytes(*evaluated.capacity)) : used;
}

/// The lines that the schedule before did not have.
std::vector<std::string> new_lines(const Evaluated& before, const Evaluated& without) {
  std::vector<std::string> out;
  for (const Directive& directive : without.schedule.directives)
    if (std::ranges::none_of(before.schedule.directives, [&](const Directive& d) { return d.body == directive.body; }))
      out.push_back(print(directive.body));
  return out;
}

ordered_json as_json(const Evaluated& evaluated) {
  ordered_json out;
  out["seconds"] = evaluated.report.seconds;
  out["peak_bytes"] = evaluated.memory.total;
  if (evaluated.capacity) out["capacity_bytes"] = *evaluated.capacity;
  return out;
}

}  // namespace

Result<DeviceList> parse_lost(const std::string& text) {
  DeviceList out;
  if (text == "each") return out;
  for (std::string_view rest = text;;) {
    const size_t comma = rest.find(',');
    const auto device = parse_integer(rest.substr(0, comma));
    if (!device || *device < 0 || *device >= most_parts)
      return error(ErrorCode::E105, {}, fmt::format("--fail: \"{}\" is no list of devices", text))
          .help("write --fail 6, --fail 6,7 or --fail each");
    out.push_back(static_cast<int>(*device));
    if (comma == rest.npos) return out;
    rest.remove_prefix(comma + 1);
  }
}

std::string print_loss(const Evaluated& before, const DeviceList& lost, const Evaluated& without) {
  TextTable table({"", "step", "", "peak memory"});
  table.add({"with all devices", human_seconds(before.report.seconds), "", memory_text(before)});
  table.add({lost.size() == 1 ? fmt::format("without device {}", lost[0])
                              : fmt::format("without devices {}", print_devices(lost)),
             human_seconds(without.report.seconds), fmt::format("{:+.1f} %", 100 * difference(before, without)),
             memory_text(without)});
  return table.print() + "\n" + print(without.schedule);
}

std::string print_losses(const Evaluated& before, const std::vector<SingleLoss>& losses) {
  TextTable table({"lost", "step", "difference", "peak memory", "schedule"});
  for (const SingleLoss& loss : losses) {
    const size_t others = loss.devices.size() - 1;
    const std::string who = others == 0
                                ? fmt::format("{}", loss.devices[0])
                                : fmt::format("{}, like {} other{}", loss.devices[0], others, others == 1 ? "" : "s");
    if (loss.without)
      table.add({who, human_seconds(loss.without->report.seconds),
                 fmt::format("{:+.1f} %", 100 * difference(before, *loss.without)), memory_text(*loss.without),
                 fmt::format("{}", fmt::join(new_lines(before, *loss.without), "; "))});
    else
      table.add(
          {who, "", "", "", fmt::format("{}: {}", name(loss.without.error().code), loss.without.error().message)});
  }
  return fmt::format("{} per step with all devices, {}\n", human_seconds(before.report.seconds), memory_text(before)) +
         table.print();
}

std::string losses_json(const std::string& model, const Cluster& cluster, const Evaluated& before,
                        const std::vector<SingleLoss>& losses) {
  ordered_json out;
  out["version"] = 1;
  out["model"] = model;
  out["cluster"] = cluster.name;
  out.update(as_json(before));
  for (const SingleLoss& loss : losses) {
    ordered_json entry;
    entry["devices"] = loss.devices;
    if (loss.without) {
      entry.update(as_json(*loss.without));
      entry["difference"] = difference(before, *loss.without);
      entry["schedule"] = print(loss.without->schedule);
    } else {
      entry["refused"] = ordered_json::parse(render_json(loss.without.error()));
    }
    out["losses"].push_back(std::move(entry));
  }
  return out.dump(2) + "\n";
}

}  // namespace piper
