// Names by patterns: `*` stands for any part of a name.
#pragma once

#include <string_view>

namespace piper {

bool matches_pattern(std::string_view name, std::string_view pattern);

}  // namespace piper
