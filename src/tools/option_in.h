// Options of `piper train` that other commands look at; it checks the words itself.
#pragma once

#include <string>
#include <vector>

namespace piper {

/// What an option such as `--timeout` is given among the arguments; empty: it is not there, or nothing follows it.
std::string option_in(const std::vector<std::string>& train, const std::string& option);

}  // namespace piper
