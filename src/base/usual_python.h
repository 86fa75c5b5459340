// The Python that the program uses.
#pragma once

#include <string>

namespace piper {

/// The interpreter that PIPER_PYTHON names, or the one whose PyTorch the program was built with, or python3.
std::string usual_python();

}  // namespace piper
