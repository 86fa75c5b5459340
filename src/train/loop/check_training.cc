#include "train/loop/check_training.h"

#include "model/analytic/config_file.h"
#include "runtime/optimizer/optimizer.h"
#include "train/config.h"
#include "train/loop/prepare_training.h"

namespace piper {

Result<std::optional<CheckedTraining>> check_training(const SourceFilePtr& config, const StepOverrides& step,
                                                      const Schedule& schedule, const CompileOptions& options,
                                                      const std::shared_ptr<KernelStore>& kernels) {
  PIPER_TRY(ConfigFile parsed, parse_config(config, training_sections));
  parsed.step = merge(step, parsed.step);
  if (!build_model(parsed, 0)) return std::optional<CheckedTraining>();
  PIPER_TRY(const TrainConfig train, parse_train_config(config));
  const auto compile_for = [&](PlanFor plan_for) -> Result<Compiled> {
    PIPER_TRY(const TrainableModel model, model_of_run(parsed, train, {plan_for, c10::kCPU, kernels}));
    PIPER_CHECK(check_types(element_types(model.step, model.step.weights)));
    CompileOptions compiling = options;
    compiling.plan_for = plan_for;
    PIPER_TRY(CompiledTraining made, compile_training(model, schedule, compiling, {false, nullptr}));
    return std::move(made.compiled);
  };
  PIPER_TRY(Compiled training, compile_for(PlanFor::Training));
  PIPER_CHECK(check_device_count(train, training.plan));
  CheckedTraining out{std::move(training), {}};
  if (train.evaluation) {
    PIPER_TRY(out.evaluation, compile_for(PlanFor::Evaluation));
  }
  return std::optional(std::move(out));
}

}  // namespace piper
