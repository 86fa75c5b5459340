#include "model/load_model.h"

#include <fmt/format.h>

#include "base/read_file.h"
#include "model/analytic/analytic_model.h"
#include "model/analytic/builtin_models.h"
#include "model/analytic/config_file.h"
#include "model/model_text.h"
#include "model/verify_model.h"

namespace piper {
namespace {

constexpr std::string_view analytic_prefix = "analytic:";

Result<SourceFilePtr> read_model(const std::string& path) {
  auto file = read_file(path, "model");
  if (file) return file;
  const bool builtin = static_cast<bool>(builtin_model(path));
  return std::move(file.error())
      .help(builtin ? fmt::format("did you mean \"{}{}\"?", analytic_prefix, path)
                    : "give a model file, a configuration that ends in .toml, or analytic:NAME");
}

Result<ModelGraph> from_config(const SourceFilePtr& file, const StepOverrides& overrides, LayerForm form,
                               TokenForm tokens) {
  PIPER_TRY(const ConfigFile config, parse_config(file, training_sections));
  auto model = analytic_model(config.model, resolve(merge(overrides, config.step), config.model), form, tokens);
  if (!model && !model.error().where) model.error().where = config.model_table;
  return model;
}

Result<ModelGraph> from_text(const SourceFilePtr& file, const StepOverrides& overrides) {
  auto parsed = parse_model(file);
  if (!parsed && file->name.ends_with(".piper"))
    return std::move(parsed.error()).help("is this the schedule? the model comes first");
  PIPER_TRY(ModelGraph model, std::move(parsed));
  PIPER_CHECK(apply(overrides, model.step));
  PIPER_CHECK(verify(model));  // again: values grow with the batch
  return model;
}

}  // namespace

Result<ModelGraph> load_model(const std::string& spec, const StepOverrides& overrides, LayerForm form,
                              TokenForm tokens) {
  if (spec.starts_with(analytic_prefix)) {
    PIPER_TRY(const ModelConfig config, builtin_model(spec.substr(analytic_prefix.size())));
    return analytic_model(config, resolve(overrides, config), form, tokens);
  }
  PIPER_TRY(const SourceFilePtr file, read_model(spec));
  return spec.ends_with(".toml") ? from_config(file, overrides, form, tokens) : from_text(file, overrides);
}

}  // namespace piper
