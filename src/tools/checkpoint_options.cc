#include "tools/checkpoint_options.h"

#include <CLI/CLI.hpp>

#include "tools/checkpoint_command.h"
#include "tools/on_choice.h"

namespace piper {
namespace {

void add_output(CLI::App& app, std::string& format, bool& color) {
  app.add_option("--format", format, "Output format: text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  app.add_flag("--color,!--no-color", color, "Colours (default: only on a terminal)");
}

}  // namespace

void add_checkpoint(CLI::App& program, std::function<int()>& chosen, bool color) {
  CLI::App* checkpoint = program.add_subcommand("checkpoint", "List, show, verify, compare and export checkpoints");
  checkpoint->require_subcommand(1);
  checkpoint->footer("Example:\n  piper checkpoint verify runs/first");

  CLI::App* list = checkpoint->add_subcommand("list", "List the checkpoints in a folder, oldest first");
  const auto listed = on_choice(*list, chosen, CheckpointListCommand{"", "text", color});
  list->add_option("DIR", listed->parent, "Folder with checkpoints")->required();
  add_output(*list, listed->format, listed->color);
  list->footer("Example:\n  piper checkpoint list runs/first");

  CLI::App* show = checkpoint->add_subcommand("show", "Show the step, files and tensors of a checkpoint");
  const auto shown = on_choice(*show, chosen, CheckpointShowCommand{"", "text", color});
  show->add_option("FOLDER", shown->folder, "A checkpoint, or a model folder of transformers")->required();
  add_output(*show, shown->format, shown->color);
  show->footer("Example:\n  piper checkpoint show runs/first/step-00001000");

  CLI::App* verify = checkpoint->add_subcommand("verify", "Compare every byte with the checksums");
  const auto verified = on_choice(*verify, chosen, CheckpointVerifyCommand{"", "text", color});
  verify->add_option("FOLDER", verified->folder, "A checkpoint, or a folder with checkpoints")->required();
  add_output(*verify, verified->format, verified->color);
  verify->footer("Example:\n  piper checkpoint verify runs/first");

  CLI::App* diff = checkpoint->add_subcommand("diff", "Show in which tensors two checkpoints differ, and how much");
  const auto compared = on_choice(*diff, chosen, CheckpointDiffCommand{"", "", "text", color});
  diff->add_option("A", compared->first, "A checkpoint, or a model folder of transformers")->required();
  diff->add_option("B", compared->second, "The other one")->required();
  add_output(*diff, compared->format, compared->color);
  diff->footer("Example:\n  piper checkpoint diff runs/first/step-00001000 runs/second/step-00001000");

  CLI::App* out = checkpoint->add_subcommand("export", "Make a model folder for transformers, without the optimizer");
  const auto exported = on_choice(*out, chosen, CheckpointExportCommand{"", "", color});
  out->add_option("FOLDER", exported->folder, "A checkpoint")->required();
  out->add_option("-o,--output", exported->output, "Folder to make; it shares the data on disk where possible")
      ->required();
  out->add_flag("--color,!--no-color", exported->color, "Colours (default: only on a terminal)");
  out->footer("Example:\n  piper checkpoint export runs/first/step-00001000 -o my-model");
}

}  // namespace piper
