// The command line of training.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace piper {

/// Adds the command to the program. If the user chooses it, `chosen` becomes what runs it and returns the exit code.
void add_train(CLI::App& program, std::function<int()>& chosen, bool color);
void add_profile(CLI::App& program, std::function<int()>& chosen, bool color);

}  // namespace piper
