// TOML as a tree in which every value knows its place in the text, for errors that point there.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace piper {

struct TomlValue {
  enum class Kind { Text, Integer, Number, Switch, Time, List, Table };
  Kind kind = Kind::Table;
  std::string text;
  int64_t integer = 0;
  double number = 0;  // also of an integer
  bool on = false;
  std::vector<TomlValue> items;  // elements of a list; members of a table, in the order of the file
  std::string key;               // of a member
  SourceRange key_place;         // of a member
  SourceRange place;

  const TomlValue* find(std::string_view member) const;
};

/// The table of the whole file. E111: not TOML, or nested too deeply; E113: too large.
Result<TomlValue> parse_toml(const SourceFilePtr& file);

}  // namespace piper
