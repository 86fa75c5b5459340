#include "train/compare_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <set>

#include "base/text/toml_tree.h"
#include "train/fixed_settings.h"

namespace piper {
namespace {

std::string print(const TomlValue& value) {
  switch (value.kind) {
    case TomlValue::Kind::Text:
      return fmt::format("\"{}\"", value.text);
    case TomlValue::Kind::List: {
      std::vector<std::string> items;
      for (const TomlValue& item : value.items) items.push_back(print(item));
      return fmt::format("[{}]", fmt::join(items, ", "));
    }
    case TomlValue::Kind::Integer:
      return fmt::format("{}", value.integer);
    case TomlValue::Kind::Number:
      return fmt::format("{}", value.number);
    case TomlValue::Kind::Switch:
      return value.on ? "true" : "false";
    case TomlValue::Kind::Table: {
      std::vector<std::string> items;
      for (const TomlValue& item : value.items) items.push_back(fmt::format("{} = {}", item.key, print(item)));
      return fmt::format("{{{}}}", fmt::join(items, ", "));
    }
    case TomlValue::Kind::Time:
      return value.text;
  }
  return {};
}

/// As they are written, by section and key.
using Settings = std::map<std::pair<std::string, std::string>, std::string>;
Settings settings_of(const TomlValue& root) {
  Settings out;
  for (const TomlValue& section : root.items)
    for (const TomlValue& value : section.items) out[{section.key, value.key}] = print(value);
  return out;
}

SourceRange place_of(const TomlValue& root, const FixedSetting& setting) {
  const TomlValue* section = root.find(setting.section);
  if (!section) return {};
  if (const TomlValue* value = section->find(setting.key)) return value->place;
  for (const std::string& key : setting.written)
    if (const TomlValue* value = section->find(key)) return value->place;
  return {};
}

Result<std::vector<FixedSetting>> fixed_of(const SourceFilePtr& file) {
  PIPER_TRY(const ConfigFile model, parse_config(file, training_sections));
  PIPER_TRY(const TrainConfig train, parse_train_config(file));
  return fixed_settings(model, train);
}

Checked check_fixed(const SourceFilePtr& now, const TomlValue& root, const SourceFilePtr& saved) {
  PIPER_TRY(const std::vector<FixedSetting> here, fixed_of(now));
  PIPER_TRY(const std::vector<FixedSetting> before, fixed_of(saved));
  for (size_t i = 0; i < here.size(); ++i) {
    invariant(here[i].key == before[i].key, "settings that agree so far have the next one in common");
    if (here[i].value == before[i].value) continue;
    return error(ErrorCode::E905, place_of(root, here[i]),
                 fmt::format("[{}] {} is {}, and was {} when the checkpoint was made", here[i].section,
                             here[i].key == "sources" ? "share of each source" : here[i].key, here[i].value,
                             before[i].value))
        .help("resume with the value of the checkpoint")
        .help("or begin a new run with its weights: init in [model] names the folder");
  }
  return Ok{};
}

}  // namespace

Result<std::vector<std::string>> compare_config(const SourceFilePtr& now, const SourceFilePtr& saved) {
  PIPER_TRY(const TomlValue root_now, parse_toml(now));
  PIPER_TRY(const TomlValue root_saved, parse_toml(saved));
  PIPER_CHECK(check_fixed(now, root_now, saved));
  const Settings here = settings_of(root_now), before = settings_of(root_saved);
  std::set<std::pair<std::string, std::string>> keys;
  for (const auto& [key, setting] : here) keys.insert(key);
  for (const auto& [key, setting] : before) keys.insert(key);
  std::vector<std::string> out;
  for (const auto& key : keys) {
    const auto mine = here.find(key), theirs = before.find(key);
    const std::string is = mine == here.end() ? "not given" : mine->second;
    const std::string was = theirs == before.end() ? "not given" : theirs->second;
    if (is == was || is_fixed(key.first, key.second)) continue;
    out.push_back(fmt::format("[{}] {}: {}, was {}", key.first, key.second, is, was));
  }
  return out;
}

}  // namespace piper
