// The rows of schedule/fields.h as plain data: for Python, for the original's JSON, and for the documentation.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace piper {

struct ArgumentRow {
  std::string_view name;
  std::string_view kind;  // kind::Integer::name, …
  bool named = true;      // written as NAME=VALUE
  bool required = false;
  std::string usual;  // the default in Markdown; empty if it is required
  std::string_view meaning;
  std::vector<std::string> json;  // its keys in the original's JSON
};

/// The arguments of the directive with this verb; none if there is no such directive.
std::vector<ArgumentRow> arguments_of(std::string_view verb);

}  // namespace piper
