// In which form a schedule needs an analytic model: with parts of their own for what the schedule divides.
#pragma once

#include <functional>
#include <memory>

#include "base/result.h"
#include "model/analytic/chunk_writer.h"
#include "schedule/schedule.h"

namespace piper {

/// Loads one model in any of its forms; a model in text form, or a captured one, has the form it has.
using ModelLoader = std::function<Result<std::shared_ptr<const ModelGraph>>(LayerForm, TokenForm)>;

/// The model in the form that the schedule needs. Only where no argument says so it depends on what the directives
/// select, and the model is loaded to see it.
Result<std::shared_ptr<const ModelGraph>> load_model_for(const Schedule& schedule, const ModelLoader& load);

}  // namespace piper
