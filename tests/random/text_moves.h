// A line of a configuration or a schedule made a little smaller, without knowing what it means.
#pragma once

#include <string>
#include <vector>

namespace piper::random {

/// Without one of the items of a list, or with one of them in place of the list, or with a smaller number. The largest
/// changes first.
std::vector<std::string> smaller(const std::string& line);

/// Numbers that stand in the line by themselves.
std::vector<int> numbers_in(const std::string& line);
/// With every such number that equals `from` replaced.
std::string with_number(const std::string& line, int from, int to);

}  // namespace piper::random
