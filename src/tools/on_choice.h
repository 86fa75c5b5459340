// Commands whose options live as long as the command line that fills them.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>

namespace piper {

/// If the user chooses the command, `chosen` becomes what runs it and returns the exit code.
template <class Command>
std::shared_ptr<Command> on_choice(CLI::App& app, std::function<int()>& chosen, Command usual) {
  auto command = std::make_shared<Command>(std::move(usual));
  app.callback([command, &chosen] { chosen = [command] { return run(*command); }; });
  return command;
}

}  // namespace piper
