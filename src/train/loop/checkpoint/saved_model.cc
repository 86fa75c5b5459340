#include "train/loop/checkpoint/saved_model.h"

#include "base/invariant.h"
#include "train/loop/checkpoint/stored_dtype.h"

namespace piper {
namespace {

StoredTensor stored_like(const std::string& name, const at::Tensor& tensor) {
  const auto dtype = dtype_of(tensor.scalar_type());
  invariant(dtype.has_value(), "captured models have tensors of known types only");
  return {name, stored(*dtype), tensor.sizes().vec()};
}

/// None: no step writes it.
std::optional<SavedBuffer> find_buffer(TrainingRun& run, const SavedName& name) {
  const auto [tensor, first_sample] = run.computations().find_state(name.name);
  const int64_t batch = run.job().step_config().batch;
  const int earliness = tensor.defined() ? static_cast<int>(batch - first_sample) : 0;
  const int most = run.greatest(earliness);
  if (most == 0) return {};
  const int rank = run.world() ? run.world()->rank() : 0, ranks = run.world() ? run.world()->ranks() : 1;
  const int writer = ranks - run.greatest(tensor.defined() && earliness == most ? ranks - rank : 0);
  return SavedBuffer{name.name, stored_like(name.stored, run.computations().like(name.name)), writer};
}

std::vector<StoredTensor> stored_tensors(const std::vector<StateTensor>& tensors) {
  std::vector<StoredTensor> out;
  for (const StateTensor& tensor : tensors) out.push_back(tensor.stored);
  return out;
}

}  // namespace

Result<SavedModel> saved_model(TrainingRun& run, const SaveForm& form) {
  SavedModel out;
  out.state = model_state(run.plan(), run.job().step_config(), run.computations(), form.names);
  std::vector<StoredTensor> model = stored_tensors(out.state.weights);
  const std::map<std::string, ParameterPlace> places = places_of(run.plan());
  for (const SavedName& name : form.names) {
    if (places.contains(name.name)) continue;
    if (const auto buffer = find_buffer(run, name)) {
      out.buffers.push_back(*buffer);
      model.push_back(buffer->stored);
    } else if (const auto found = form.constants.find(name.name); found != form.constants.end()) {
      out.constants.push_back({stored_like(name.stored, found->second), found->second});
      model.push_back(out.constants.back().stored);
    }
  }
  PIPER_TRY(FolderLayout layout, make_layout(std::move(model), stored_tensors(out.state.optimizer), form.shard_size));
  for (const auto& [name, text] : form.texts) add_text(layout, name, text);
  out.layout = std::make_shared<const FolderLayout>(std::move(layout));
  return out;
}

}  // namespace piper
