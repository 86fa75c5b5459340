#include "tools/trace_options.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "tools/trace_command.h"

namespace piper {
namespace {

/// Options live as long as the command line that fills them.
template <class Command>
std::shared_ptr<Command> on_choice(CLI::App& app, std::function<int()>& chosen, Command usual) {
  auto command = std::make_shared<Command>(std::move(usual));
  app.callback([command, &chosen] { chosen = [command] { return run(*command); }; });
  return command;
}

}  // namespace

void add_trace(CLI::App& program, std::function<int()>& chosen, bool color) {
  CLI::App* trace = program.add_subcommand("trace", "Compare traces");
  trace->require_subcommand(1);
  trace->footer("Example:\n  piper trace diff predicted.json measured.json");
  CLI::App* diff = trace->add_subcommand("diff", "Where a prediction and a run of the same plan differ");
  const auto command = on_choice(*diff, chosen, TraceDiffCommand{"", "", "text", color});
  diff->add_option("PREDICTED", command->predicted, "Trace that the simulator wrote")->required();
  diff->add_option("MEASURED", command->measured, "Trace that the runtime wrote")->required();
  diff->add_option("--format", command->format, "How it is printed: text, or json for machines")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  diff->add_flag("--color,!--no-color", command->color, "Colours (default: only on a terminal)");
  diff->footer("Example:\n  piper trace diff predicted.json measured.json --format json");
}

}  // namespace piper
