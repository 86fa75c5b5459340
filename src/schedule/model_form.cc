#include "schedule/model_form.h"

#include <algorithm>

#include "schedule/shard_target.h"

namespace piper {

Result<std::shared_ptr<const ModelGraph>> load_model_for(const Schedule& schedule, const ModelLoader& load) {
  std::vector<const Shard*> shards;
  LayerForm form = LayerForm::Blocks;
  TokenForm tokens;
  for (const Directive& directive : schedule.directives)
    if (const auto* shard = std::get_if<Shard>(&directive.body)) {
      shards.push_back(shard);
      if (names_parameters(*shard))
        form = std::max(form, shard->vocabulary ? LayerForm::ShardedVocabulary : LayerForm::Sharded);
      if (divides_context(*shard)) {
        form = std::max(form, LayerForm::Sharded);
        tokens.divided = true;
      }
    }
  for (const Shard* shard : shards) {
    const int64_t devices = devices_along(schedule, *shard);
    if (shard->sequence == Sequence::Heads) tokens.key_heads *= devices;
    if (shard->sequence == Sequence::Ring) tokens.ring = static_cast<int>(std::min(devices, largest_ring));
  }
  for (const Shard* shard : shards)  // it divides heads before
    if (tokens.key_heads > 1 && !divides_context(*shard)) tokens.key_heads *= devices_along(schedule, *shard);
  PIPER_TRY(std::shared_ptr<const ModelGraph> model, load(form, tokens));
  if (form != LayerForm::Blocks || shards.empty()) return model;
  const std::vector<AnnotatedPart> parts = annotated_parts(*model);
  const bool all = std::ranges::all_of(shards, [&](const Shard* shard) { return divides_experts(*shard, parts); });
  return all ? Result(std::move(model)) : load(LayerForm::Sharded, TokenForm{});
}

}  // namespace piper
