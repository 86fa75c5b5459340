// The Python that the program uses.
#pragma once

#include <filesystem>
#include <string>

namespace piper {

/// The interpreter that PIPER_PYTHON names; or that of the environment that the program is installed in, the one whose
/// PyTorch it was built with, or python3.
std::string usual_python();

/// The interpreter of the environment that pip has put this program into: beside it, or above the packages. Or empty.
std::string python_of_environment(const std::filesystem::path& program);

}  // namespace piper
