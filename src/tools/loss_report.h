// What it costs to go on without some devices, for people and for machines.
#pragma once

#include <string>
#include <vector>

#include "recover/shrink.h"

namespace piper {

/// `6`, `6,7`: devices; `each`: every single one (none here). E105: neither.
Result<DeviceList> parse_lost(const std::string& text);

/// `before`: with all devices. A schedule with its price.
std::string print_loss(const Evaluated& before, const DeviceList& lost, const Evaluated& without);
/// A line for each loss.
std::string print_losses(const Evaluated& before, const std::vector<SingleLoss>& losses);
/// The same, for one loss or several; fields are documented in docs/json.md.
std::string losses_json(const std::string& model, const Cluster& cluster, const Evaluated& before,
                        const std::vector<SingleLoss>& losses);

}  // namespace piper
