#include "train/compare_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/text/toml_tree.h"

namespace piper {
namespace {

struct Setting {
  std::string text;
  SourceRange where;
};

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

/// By section and key.
using Settings = std::map<std::pair<std::string, std::string>, Setting>;
Settings settings_of(const TomlValue& root) {
  Settings out;
  for (const TomlValue& section : root.items)
    for (const TomlValue& value : section.items) out[{section.key, value.key}] = {print(value), value.place};
  return out;
}

/// What the weights and the optimiser's state are made of, and what the position in the data means.
bool is_fixed(const std::string& section, const std::string& key) {
  static const std::set<std::string> in_step = {"weights", "gradients", "master", "master_gradients", "optimizer"};
  static const std::set<std::string> free_in_model = {"name", "init"};
  if (section == "model") return !free_in_model.contains(key);
  if (section == "step") return in_step.contains(key);
  return section == "data" && key == "kind";
}

}  // namespace

Result<std::vector<std::string>> compare_config(const SourceFilePtr& now, const SourceFilePtr& saved) {
  PIPER_TRY(const TomlValue root_now, parse_toml(now));
  PIPER_TRY(const TomlValue root_saved, parse_toml(saved));
  const Settings here = settings_of(root_now), before = settings_of(root_saved);
  std::set<std::pair<std::string, std::string>> keys;
  for (const auto& [key, setting] : here) keys.insert(key);
  for (const auto& [key, setting] : before) keys.insert(key);
  std::vector<std::string> out;
  for (const auto& key : keys) {
    const auto mine = here.find(key), theirs = before.find(key);
    const std::string is = mine == here.end() ? "not given" : mine->second.text;
    const std::string was = theirs == before.end() ? "not given" : theirs->second.text;
    if (is == was) continue;
    if (is_fixed(key.first, key.second))
      return error(
                 ErrorCode::E905, mine == here.end() ? SourceRange{} : mine->second.where,
                 fmt::format("[{}] {} is {}, and was {} when the checkpoint was made", key.first, key.second, is, was))
          .help("go on with the value that it was made with")
          .help("or begin a new run with its weights: init in [model] names the folder");
    out.push_back(fmt::format("[{}] {}: {}, was {}", key.first, key.second, is, was));
  }
  return out;
}

}  // namespace piper
