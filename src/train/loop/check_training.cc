#include "train/loop/check_training.h"

#include "model/analytic/config_file.h"
#include "runtime/optimizer/optimizer.h"
#include "train/config.h"
#include "train/loop/prepare_training.h"

namespace piper {

Result<std::optional<Compiled>> check_training(const SourceFilePtr& config, const StepOverrides& step,
                                               const Schedule& schedule, const CompileOptions& options) {
  PIPER_TRY(ConfigFile parsed, parse_config(config, training_sections));
  parsed.step = merge(step, parsed.step);
  const auto model = build_model(parsed, 0);
  if (!model) return std::optional<Compiled>();
  PIPER_TRY(const TrainConfig train, parse_train_config(config));
  PIPER_CHECK(check_types(element_types(model->step, model->step.weights)));
  PIPER_TRY(CompiledTraining training, compile_training(*model, schedule, options, {false, nullptr}));
  PIPER_CHECK(check_device_count(train, training.compiled.plan));
  return std::optional(std::move(training.compiled));
}

}  // namespace piper
