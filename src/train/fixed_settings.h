// What a resumed run may not change: what the weights and the optimizer's state are made of, and what the position
// in the data means.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/analytic/config_file.h"
#include "train/config.h"

namespace piper {

struct FixedSetting {
  std::string section, key;
  std::string value;
  std::vector<std::string> written = {};  // keys that say it, too: `precision` of weights
};

/// With the values that hold, whether they are written out or not. Two configurations with the same values up to some
/// setting have the next one in common.
std::vector<FixedSetting> fixed_settings(const ConfigFile& model, const TrainConfig& train);

/// Whether the key says nothing but fixed settings.
bool is_fixed(std::string_view section, std::string_view key);

}  // namespace piper
