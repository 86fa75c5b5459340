// JSON as a tree in which every value knows its place in the text, for errors that point there.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace piper {

struct JsonValue {
  enum class Kind { Null, Boolean, Integer, Real, String, Array, Object };
  Kind kind = Kind::Null;
  bool boolean = false;
  int64_t integer = 0;
  double real = 0;               // also of an integer
  std::string text;              // of a string
  std::vector<JsonValue> items;  // elements of an array, members of an object
  std::string key;               // of a member
  int begin = 0, end = 0;        // bytes of the text, half-open
  int key_begin = 0;             // of a member; otherwise `begin`

  const JsonValue* find(std::string_view member) const;
};

/// The tree of a file. E106: not JSON, or nested too deeply; E107: a key twice in one object; E113: too large.
Result<JsonValue> parse_json(const SourceFilePtr& file);

}  // namespace piper
