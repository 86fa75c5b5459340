// The command line of `piper data`.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace piper {

void add_data(CLI::App& program, std::function<int()>& chosen, bool color);

}  // namespace piper
