#include <fmt/format.h>

#include "tools/commands.h"
#include "tools/train_command.h"
#include "tools/training/load_training.h"
#include "train/devices/use_gpu.h"

namespace piper {

int run(const KernelsBuildCommand& command) {
  const bool color = command.input.color;
  auto loaded = load(command.input);
  if (!loaded) return report_text(loaded.error(), color);
  TrainingOptions options;
  std::unique_ptr<Processor> gpu;
  if (loaded->config.run.on == RunOn::Cuda) {
    auto found = use_gpu({});
    if (!found) return report_text(found.error(), color);
    gpu = std::move(*found);
    options.processor = gpu.get();
  }
  options.threads = command.input.threads;
  options.kernels = kernels_of(command.input);
  if (auto made = prepare(loaded->file, loaded->config, loaded->schedule, options); !made)
    return report_text(made.error(), color);
  const KernelCount count = options.kernels->count();
  put(fmt::format("{} kernel{}, {} of them compiled now\n", count.kernels - count.failed,
                  count.kernels - count.failed == 1 ? "" : "s", count.compiled));
  return count.failed == 0 ? fine : run_failed;
}

}  // namespace piper
