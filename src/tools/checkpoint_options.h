// The command line of `piper checkpoint`.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace piper {

/// Adds the command to the program. If the user chooses it, `chosen` becomes what runs it and returns the exit code.
void add_checkpoint(CLI::App& program, std::function<int()>& chosen, bool color);

}  // namespace piper
