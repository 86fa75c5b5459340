#include "models/build_model.h"

#include <fmt/format.h>

#include "models/reference_decoder.h"

namespace piper {
namespace {

Result<c10::ScalarType> scalar_type(DType weights, const ConfigFile& config) {
  switch (weights) {
    case DType::Float64:
      return c10::kDouble;
    case DType::Float32:
      return c10::kFloat;
    case DType::BFloat16:
      return c10::kBFloat16;
    default:
      return error(ErrorCode::E111, config.model_table,
                   fmt::format("models with weights {} cannot be trained", name(weights)))
          .help("weights = \"bfloat16\", \"float32\" or \"float64\" in [step]");
  }
}

Result<std::shared_ptr<ModelModule>> make_module(const ConfigFile& config, const StepConfig& step,
                                                 const TensorMaker& make) {
  const ModelConfig& c = config.model;
  if (c.arch == Architecture::Reference || c.arch == Architecture::ReferenceMoe)
    return make_reference_decoder(c, step.sequence, make);
  return error(ErrorCode::E111, config.model_table, fmt::format("architecture {} cannot be trained", name(c.arch)))
      .help("its analytic form can be compiled, checked and simulated");
}

}  // namespace

Result<TrainableModel> build_model(const ConfigFile& config, uint64_t seed, BuildOn on) {
  TrainableModel out;
  out.name = config.model.name;
  out.vocabulary = config.model.vocab;
  out.step = resolve(config.step, config.model);
  TensorMaker make;
  make.device = on == BuildOn::Meta ? c10::kMeta : c10::kCPU;
  PIPER_TRY(make.dtype, scalar_type(out.step.weights, config));
  PIPER_TRY(const std::shared_ptr<ModelModule> module, make_module(config, out.step, make));
  for (const auto& item : module->named_parameters()) out.meta.parameters.push_back({item.key(), item.value()});
  for (const auto& item : module->named_buffers()) out.meta.buffers.push_back({item.key(), item.value()});
  out.meta.loss = [module](const std::vector<at::Tensor>& inputs) { return module->loss(inputs); };
  out.inputs = module->inputs();
  out.initialize = [module, seed](const std::string& name, at::Tensor& whole) {
    module->initialize(seed, name, whole);
  };
  if (on == BuildOn::Cpu)
    for (std::vector<NamedTensor>* tensors : {&out.meta.parameters, &out.meta.buffers})
      for (NamedTensor& item : *tensors) out.initialize(item.name, item.tensor);
  return out;
}

Result<TrainableModel> build_model(const SourceFilePtr& file, uint64_t seed, BuildOn on) {
  PIPER_TRY(const ConfigFile config, parse_config(file, training_sections));
  return build_model(config, seed, on);
}

}  // namespace piper
