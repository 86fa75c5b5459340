// A program that goes on as another one.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace piper {

/// Where this program lies.
std::filesystem::path own_program();

/// Goes on as `program`, which is searched for where its name has no folder. `words`: its command line, from its name
/// on. Returns only if that fails; errno says why.
void become(const std::string& program, const std::vector<std::string>& words);

}  // namespace piper
