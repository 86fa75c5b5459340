// The arguments of one directive as written.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "base/text/scanner.h"
#include "schedule/schedule.h"

namespace piper {

/// One argument: a word or number (`text`), a filter, a list, a range of numbers, or lists separated by `|`.
struct ParsedArgument {
  enum class Kind { Text, Filter, List, Range, Alternatives };
  Kind kind = Kind::Text;
  std::string key;  // empty: positional
  std::string text;
  Filter filter;
  IndexRange range;
  std::vector<ParsedArgument> items;
  SourceRange where;
};

/// `verb(argument, key=argument, …)` from the opening bracket on.
Result<std::vector<ParsedArgument>> parse_arguments(Scanner& in);

/// Where they stand, for errors that are found later.
ArgumentPlaces places_of(const std::vector<ParsedArgument>& arguments);

}  // namespace piper
