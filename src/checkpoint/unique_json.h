// JSON objects in which no name stands twice.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace piper {

/// E902 says what of the file is not JSON, no object, nested deeply, or has a name twice.
Result<nlohmann::json> parse_json_object(const std::string& file, std::string_view what, std::string_view text);

}  // namespace piper
