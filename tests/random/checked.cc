#include "random/checked.h"

#include "compile/compile.h"
#include "model/analytic/analytic_model.h"
#include "model/analytic/config_file.h"
#include "schedule/schedule_text.h"

namespace piper::random {
namespace {

LayerForm form_for(const Schedule& schedule) {
  LayerForm form = LayerForm::Blocks;
  for (const Directive& directive : schedule.directives)
    if (const auto* cut = std::get_if<Cut>(&directive.body))
      form = std::max(form, cut->vocabulary ? LayerForm::CutVocabulary : LayerForm::Cut);
  return form;
}

Checked compiled(const Case& c, const ConfigFile& config) {
  PIPER_TRY(const Schedule schedule, parse_schedule(make_source("case.piper", c.schedule())));
  PIPER_TRY(ModelGraph model, analytic_model(config.model, resolve(config.step, config.model), form_for(schedule)));
  PIPER_CHECK(compile(std::make_shared<const ModelGraph>(std::move(model)), schedule));
  return Ok{};
}

}  // namespace

std::optional<Checked> checked(const Case& c) {
  Result<ConfigFile> config = parse_config(make_source("case.toml", c.config()));
  if (!config) return Checked(config.error());
  if (config->model.arch == Architecture::TwoBranch) return std::nullopt;
  return compiled(c, *config);
}

}  // namespace piper::random
