#include "train/loop/checkpoint/initialize.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/read_file.h"
#include "train/loop/checkpoint/restore.h"
#include "train/loop/checkpoint/stored_dtype.h"

namespace piper {
namespace {

using Json = nlohmann::json;

/// A setting of a model of transformers that changes what it computes and no shape.
struct Setting {
  std::string_view key, ours;   // ours: the key of [model]; empty: there is none
  std::string_view unset = {};  // what a configuration without it means, as JSON
  Json value(const Json& config) const {
    const bool of_positions = key == "rope_theta" || key == "partial_rotary_factor";
    const Json& from = of_positions && config.contains("rope_parameters") ? config["rope_parameters"] : config;
    return from.value(key, unset.empty() ? Json() : Json::parse(unset));
  }
};
constexpr std::array settings = {
    Setting{"rms_norm_eps", "norm_eps"},
    Setting{"rope_theta", "rope_theta"},
    Setting{"hidden_act", "act"},
    Setting{"partial_rotary_factor", "", "1.0"},
    Setting{"num_experts_per_tok", "top_k"},
    Setting{"norm_topk_prob", "norm_topk_prob"},
    Setting{"routed_scaling_factor", "routed_scaling_factor"},
    Setting{"n_group", "n_group"},
    Setting{"topk_group", "topk_group"},
    Setting{"tie_word_embeddings", "tie_embeddings"},
    Setting{"activation_function", "act"},
    Setting{"do_layer_norm_before", "", "true"},
    Setting{"_remove_final_layer_norm", "", "false"},  // of OPT: what follows its layers
};

std::string rope_type(const Json& config) {
  for (const char* key : {"rope_parameters", "rope_scaling"})
    if (const auto found = config.find(key); found != config.end() && found->is_object())
      return found->value("rope_type", found->value("type", "default"));
  return "default";
}

/// What config.json of the folder says and the model does not do.
std::vector<std::string> other_computations(const std::string& folder, const TrainableModel& model) {
  const std::string path = (std::filesystem::path(folder) / "config.json").string();
  if (model.hugging_face.empty() || !std::filesystem::exists(path)) return {};
  const auto file = read_file(path, "the configuration of the model");
  const Json theirs = file ? Json::parse((*file)->text, nullptr, false) : Json();
  const Json mine = Json::parse(model.hugging_face);
  std::vector<std::string> out;
  if (!theirs.is_object()) return {"config.json is no JSON object"};
  for (const Setting& setting : settings)
    if (const Json a = setting.value(theirs), b = setting.value(mine); !a.is_null() && a != b)
      out.push_back(fmt::format("{} is {} in config.json; the model has {}{}", setting.key, a.dump(),
                                b.is_null() ? "none" : b.dump(),
                                setting.ours.empty() ? "" : fmt::format(", which {} in [model] sets", setting.ours)));
  if (const std::string type = rope_type(theirs); type != "default")
    out.push_back(fmt::format("positions are of the type \"{}\" in config.json; the model has plain ones", type));
  return out;
}

/// What is wrong with the folder's tensors.
std::vector<std::string> wrong_tensors(const FolderReader& folder, const TrainableModel& model, TrainingRun& run) {
  std::vector<std::string> out;
  for (const SavedName& name : model.saved) {
    std::vector<int64_t> sizes = run.computations().like(name.name).sizes().vec();
    if (name.parts > 0) sizes.erase(sizes.begin());
    if (name.rows_before > 0) sizes[0] += name.rows_before;
    const TensorPlace* found = folder.layout().find(name.stored);
    if (!found)
      out.push_back(fmt::format("{} is missing", name.stored));
    else if (found->entry.tensor.sizes != sizes)
      out.push_back(fmt::format("{} has the shape [{}], the model's is [{}]", name.stored,
                                fmt::join(found->entry.tensor.sizes, ", "), fmt::join(sizes, ", ")));
    else if (!dtype_of(found->entry.tensor.dtype))
      out.push_back(fmt::format("{} is {}", name.stored, print_type(found->entry.tensor)));
  }
  return out;
}

/// What the optimizer has a copy of. Its moments are zeros before the first step.
void copy_weights(TrainingRun& run) {
  const Plan& plan = run.plan();
  const StepConfig& step = run.job().step_config();
  for (const PlanBucket& bucket : plan.buckets)
    for (DeviceRun* device : run.job().devices()) {
      const auto part = part_of(plan, bucket, device->device());
      if (!part) continue;
      const auto [weights, held] = kept_elements(*device, bucket, *part, step, Kept::Weight);
      for (const Kept copy : {Kept::Master, Kept::Ema})
        if (const auto [flat, range] = kept_elements(*device, bucket, *part, step, copy); flat.defined())
          at::Tensor(flat).copy_(weights.narrow(0, range.begin - held.begin, range.count));
    }
  for (DeviceRun* device : run.job().devices()) device->processor().finish();
}

std::vector<std::string> notes_on(const FolderReader& folder, const TrainableModel& model) {
  std::set<std::string> used, types, surplus;
  for (const SavedName& name : model.saved) {
    used.insert(name.stored);
    types.insert(std::string(piper::name(folder.layout().find(name.stored)->entry.tensor.dtype)));
  }
  for (const auto& [name, place] : folder.layout().places)
    if (!used.contains(name) && !folder.layout().files[static_cast<size_t>(place.file)].name.starts_with("optimizer"))
      surplus.insert(name);
  std::vector<std::string> out;
  const std::string own(piper::name(stored(model.step.weights)));
  if (types != std::set{own}) out.push_back(fmt::format("converted from {} to {}", fmt::join(types, ", "), own));
  if (!surplus.empty())
    out.push_back(fmt::format(
        "not used: {}{}",
        fmt::join(std::vector(surplus.begin(), surplus.size() > 3 ? std::next(surplus.begin(), 3) : surplus.end()),
                  ", "),
        surplus.size() > 3 ? fmt::format(" and {} more", surplus.size() - 3) : ""));
  return out;
}

}  // namespace

Result<std::vector<std::string>> initialize_from(const std::string& folder, const TrainableModel& model,
                                                 TrainingRun& run) {
  PIPER_TRY(const std::unique_ptr<FolderReader> reader, FolderReader::open_any(folder));
  std::vector<std::string> problems = wrong_tensors(*reader, model, run);
  for (std::string& other : other_computations(folder, model)) problems.push_back(std::move(other));
  if (!problems.empty())
    return does_not_fit(fmt::format("the weights in {} are not those of this model", folder), std::move(problems))
        .help("write the sizes and settings of the folder's config.json into [model]");
  const ModelState state = model_state(run.plan(), run.job().step_config(), run.computations(), model.saved);
  std::vector<const StateTensor*> weights;
  for (const StateTensor& tensor : state.weights) weights.push_back(&tensor);
  PIPER_CHECK(read_tensors(*reader, weights, run));
  copy_weights(run);
  return notes_on(*reader, model);
}

}  // namespace piper
