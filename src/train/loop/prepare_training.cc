#include "train/loop/prepare_training.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/match_pattern.h"
#include "capture/sharding/known_projections.h"
#include "compile/tried_hints.h"
#include "plan/plan_text.h"
#include "schedule/shard_target.h"

namespace piper {
namespace {

std::vector<int64_t> sizes_of_slices(const Plan& plan) {
  std::vector<int64_t> sizes;
  for (const PlanWork& work : plan.works)
    if (work.pass) sizes.push_back(work.samples);
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

/// Among how many devices the values of a computation are sharded.
ShardCounts shards_of(const Plan& plan, const PlanWork& work) {
  ShardCounts out;
  for (size_t k = 0; k < out.of.size(); ++k)
    if (const PartitionId partition = work.shards.of[k]; partition.valid())
      out.of[k] = plan.partitions[partition].part_size;
  out.buffer = work.buffer;
  return out;
}

/// Among how many devices regions are sharded.
std::vector<ShardCounts> shards_of_regions(const Plan& plan) {
  std::set<ShardCounts> ways;
  for (const PlanWork& work : plan.works) ways.insert(shards_of(plan, work));
  ways.erase(ShardCounts());
  return {ways.begin(), ways.end()};
}

/// All that the plan runs.
std::vector<PassSite> runs_of(const Plan& plan) {
  std::vector<PassSite> out;
  for (const PlanWork& work : plan.works)
    if (work.pass) out.push_back({plan.names[work.name], *work.pass, work.samples, shards_of(plan, work)});
  return out;
}

/// Chunks that multiply in float8.
std::set<std::string> float8_chunks(const Plan& plan) {
  std::set<std::string> out;
  for (const PlanWork& work : plan.works)
    if (work.float8) out.insert(plan.names[work.name]);
  return out;
}

/// What the schedule's shard directives divide besides experts, in a model with these parts.
TensorParallel tensor_parallel(const TrainableModel& model, const Schedule& schedule,
                               const std::vector<AnnotatedPart>& parts) {
  TensorParallel out;
  for (const Directive& directive : schedule.directives) {
    const auto* shard = std::get_if<Shard>(&directive.body);
    if (!shard || divides_experts(*shard, parts)) continue;
    if (divides_context(*shard)) {
      out.context = true;
      out.token_order = shard->order;
      if (const int64_t devices = devices_along(schedule, *shard); shard->sequence == Sequence::Heads && devices > 1)
        out.heads_among = static_cast<int>(std::min(devices, largest_ring));
      continue;
    }
    const auto add = [&](const std::vector<ShardSeed>& seeds) {
      out.parameters.insert(out.parameters.end(), seeds.begin(), seeds.end());
    };
    add(shard->parameters.empty() ? known_projections(model.meta.parameters) : shard->parameters);
    if (shard->vocabulary) add(known_vocabulary(model.meta.parameters));
    out.sequence = out.sequence || shard->sequence == Sequence::On;
  }
  return out;
}

/// Why nothing can be divided among devices that have different samples, whatever it is: those of an axis along which
/// everything is replicated.
std::optional<Diagnostic> shards_replicas(const Schedule& schedule, const std::vector<AnnotatedPart>& parts) {
  for (const Directive& directive : schedule.directives) {
    const auto* shard = std::get_if<Shard>(&directive.body);
    if (!shard || divides_experts(*shard, parts) || divides_context(*shard)) continue;
    for (const Directive& other : schedule.directives) {
      const auto* replicate = std::get_if<Replicate>(&other.body);
      if (!replicate || !replicate->what.conditions.empty()) continue;
      for (const std::string& along : shard->devices.along)
        if (std::ranges::find(replicate->devices.along, along) != replicate->devices.along.end())
          return error(ErrorCode::E317, shard->devices.where,
                       "shard: devices along \"" + along + "\" are replicas, which have different samples")
              .note(replicate->devices.where, "replicated here")
              .help("tensor parallelism needs an axis of its own, the last of the mesh: mesh(dp=2, tp=2)")
              .help("for expert parallelism the region must be annotated with the number of its experts");
    }
  }
  return std::nullopt;
}

/// What a plan says that it was made for.
TensorParallel tensor_parallel(const Plan& plan) {
  TensorParallel out;
  for (const PlanBucket& bucket : plan.buckets)
    for (const PlanParameter& parameter : bucket.parameters)
      if (parameter.sharded) out.parameters.push_back({plan.names[parameter.name], *parameter.sharded});
  out.sequence = plan.capture.labelled[ShardKind::Sequence];
  out.context = plan.capture.labelled[ShardKind::Context];
  out.token_order = plan.capture.token_order;
  for (const PlanWork& work : plan.works)
    if (const PartitionId among = work.shards[ShardKind::Heads]; among.valid())
      out.heads_among = plan.partitions[among].part_size;
  return out;
}

CaptureOptions capture_options(const TrainableModel& model) {
  CaptureOptions out;
  out.name = model.name;
  out.step = model.step;
  out.inputs = model.inputs;
  out.target = model.target;
  out.loss_blocks = model.loss_blocks;
  out.saved = model.saved_activations.value_or(model.kernels ? Saved::Fewest : Saved::AsRecorded);
  return out;
}

/// For the sizes of slices and the divided regions of the plan.
Result<CapturedModel> capture_for(const TrainableModel& model, const Plan& plan, bool measure) {
  CaptureOptions capturing = capture_options(model);
  capturing.tensor_parallel = [&](const auto&) { return tensor_parallel(plan); };
  capturing.samples = sizes_of_slices(plan);
  capturing.float8 = float8_chunks(plan);
  capturing.shards = shards_of_regions(plan);
  capturing.measure_operators = measure;
  capturing.kernels = measure ? model.kernels : nullptr;
  capturing.runs = runs_of(plan);
  return capture(model.meta, capturing);
}

/// Compiles the schedule for a model that was captured for any sizes, and captures it for those it needs.
Result<CapturedModel> capture_for(const TrainableModel& model, const CapturedModel& sketched, const Schedule& schedule,
                                  CompileOptions options, const Preparing& preparing) {
  options.after_pass = nullptr;
  PIPER_TRY(const Compiled compiled, compile(sketched, schedule, options));
  if (preparing.fits) PIPER_CHECK(preparing.fits(compiled.plan));
  return capture_for(model, compiled.plan, preparing.measure);
}

/// Every group has a parameter.
Checked check_groups(const TrainConfig& train, const TrainableModel& model) {
  for (size_t g = 0; g < train.groups.size(); ++g) {
    const std::vector<NamedTensor>& parameters = model.meta.parameters;
    if (std::any_of(parameters.begin(), parameters.end(), [&](const NamedTensor& parameter) {
          return matches_pattern(parameter.name, train.groups[g].pattern);
        }))
      continue;
    return error(ErrorCode::E111, train.group_places[g],
                 fmt::format("no parameter has a name like {}", train.groups[g].pattern))
        .help(fmt::format("names of the model begin with {}", parameters.front().name));
  }
  return Ok{};
}

/// Parameters of frozen groups get no gradients.
Checked freeze(const TrainConfig& train, TrainableModel& model) {
  if (train.frozen_groups.empty()) return Ok{};
  size_t trained = 0;
  for (NamedTensor& parameter : model.meta.parameters) {
    const std::optional<size_t> group = group_of(train.groups, parameter.name);
    const bool frozen = group && train.frozen_groups.contains(*group);
    parameter.tensor.requires_grad_(!frozen);
    std::vector<std::string>& matrices = model.step.matrices;
    if (frozen) std::erase(matrices, parameter.name);
    trained += frozen ? 0 : 1;
  }
  if (trained > 0) return Ok{};
  return error(ErrorCode::E111, train.group_places[*train.frozen_groups.begin()], "no parameter is left to train")
      .help(
          "a group is frozen that has all of them, or several together do: give a pattern that some names do not "
          "match");
}

/// Not a norm, a bias or an embedding.
bool is_matrix(const NamedTensor& parameter) {
  return parameter.tensor.dim() >= 2 && !parameter.name.starts_with("embed") && !parameter.name.ends_with("bias");
}

}  // namespace

std::vector<ParameterGroup> groups_of(const TrainConfig& train, const TrainableModel& model) {
  std::vector<ParameterGroup> out = model.groups;
  for (const NamedTensor& parameter : model.meta.parameters) {
    if (!train.decay_matrices_only || is_matrix(parameter)) continue;
    const std::optional<size_t> group = group_of(train.groups, parameter.name);
    if (group && train.groups[*group].weight_decay) continue;  // somebody has said so
    out.push_back({parameter.name, group ? train.groups[*group].rate : 1, 0});
  }
  out.insert(out.end(), train.groups.begin(), train.groups.end());
  return out;
}

Result<TrainableModel> model_of_run(ConfigFile parsed, const TrainConfig& train, const CaptureFor& capture_for) {
  const bool evaluates = capture_for.plan_for == PlanFor::Evaluation;
  if (evaluates) parsed.model.dropout = false;
  const DataConfig& data = evaluates && train.evaluation ? train.evaluation->data : train.data;
  ModelUse use;
  use.within_documents = data.attention == AttentionWithin::Document;
  if (evaluates && train.evaluation && train.evaluation->prompts)
    use.temperature = train.evaluation->prompts->temperature;
  PIPER_TRY(TrainableModel model, build_model(parsed, train.run.seed, BuildOn::Meta, capture_for.target, use));
  model.meta.counts_batch = leaves_out_targets(data);
  model.kernels = capture_for.kernels;
  if (train.run.loss_block) model.loss_blocks = loss_blocks_of(*train.run.loss_block);
  if (train.run.fewest_saved) model.saved_activations = *train.run.fewest_saved ? Saved::Fewest : Saved::AsRecorded;
  PIPER_CHECK(check_groups(train, model));
  PIPER_CHECK(freeze(train, model));
  return model;
}

Result<CapturedModel> sketch(const TrainableModel& model, const Schedule& schedule) {
  CaptureOptions capturing = capture_options(model);
  std::optional<Diagnostic> misplaced;
  capturing.tensor_parallel = [&](const auto& parts) {
    misplaced = shards_replicas(schedule, parts);
    return tensor_parallel(model, schedule, parts);
  };
  capturing.samples = {std::min<int64_t>(model.step.batch, 2)};
  capturing.measure_operators = false;
  auto few = capture(model.meta, capturing);
  if (!few && few.error().code == ErrorCode::E317 && misplaced) return *std::move(misplaced);
  if (!few || few->unshardable().empty()) return few;
  capturing.samples = {model.step.batch};  // where experts have several slots
  auto all = capture(model.meta, capturing);
  return all && all->unshardable().size() < few->unshardable().size() ? std::move(all) : std::move(few);
}

Result<CapturedModel> capture_for(const TrainableModel& model, const CapturedModel& whole, const Schedule& schedule,
                                  const CompileOptions& options, bool measure) {
  const Preparing preparing{measure, nullptr};
  if (!tensor_parallel(model, schedule, annotated_parts(*whole.graph())).any())
    return capture_for(model, whole, schedule, options, preparing);
  PIPER_TRY(const CapturedModel sharded, sketch(model, schedule));
  return capture_for(model, sharded, schedule, options, preparing);
}

Result<Compiled> compile(const CapturedModel& captured, const Schedule& schedule, const CompileOptions& options) {
  auto compiled = compile_with_hints(captured.graph(), schedule, options);
  if (compiled || compiled.error().code != ErrorCode::E308) return compiled;
  const std::vector<Diagnostic>& reasons = captured.unshardable();
  for (const Diagnostic& reason : reasons) compiled.error().notes.push_back({{}, reason.message});
  if (!reasons.empty()) compiled.error().helps = reasons[0].helps;
  return compiled;
}

Checked check_programs(const CapturedModel& captured, const Plan& plan) {
  std::map<std::string, ChunkId, std::less<>> chunks;
  for (size_t c = 0; c < captured.graph()->chunks.size(); ++c) chunks[captured.graph()->chunks[c].name] = ChunkId(c);
  for (const PlanWork& work : plan.works) {
    if (!work.pass) continue;
    PIPER_CHECK(
        captured.check_program(chunks.at(plan.names[work.name]), *work.pass, work.samples, shards_of(plan, work)));
  }
  return Ok{};
}

Checked check_device_count(const TrainConfig& train, const Plan& plan) {
  if (!train.run.devices || *train.run.devices == device_count(plan)) return Ok{};
  return error(ErrorCode::E205, {},
               fmt::format("the schedule is for {} devices, the run for {}", device_count(plan), *train.run.devices))
      .help("leave `devices` out, or change the mesh of the schedule");
}

Result<CompiledTraining> compile_training(const TrainableModel& model, const Schedule& schedule,
                                          const CompileOptions& options, const Preparing& preparing) {
  PIPER_TRY(const CapturedModel sketched, sketch(model, schedule));
  PIPER_TRY(CapturedModel captured, capture_for(model, sketched, schedule, options, preparing));
  CompiledTraining out;
  out.captured = std::make_shared<const CapturedModel>(std::move(captured));
  PIPER_TRY(out.compiled, compile(*out.captured, schedule, options));
  PIPER_CHECK(check_programs(*out.captured, out.compiled.plan));
  if (preparing.fits) PIPER_CHECK(preparing.fits(out.compiled.plan));
  return out;
}

Result<PreparedTraining> prepare_training(const TrainableModel& model, const Schedule& schedule,
                                          const CompileOptions& options, const Preparing& preparing) {
  PIPER_TRY(CompiledTraining training, compile_training(model, schedule, options, preparing));
  return PreparedTraining{std::move(training.captured),
                          std::make_shared<const Plan>(std::move(training.compiled.plan))};
}

Result<PreparedTraining> prepare_for_plan(const TrainableModel& model, const SourceFilePtr& plan, const Fits& fits) {
  PreparedTraining out;
  PIPER_TRY(Plan parsed, parse_plan(plan));
  out.plan = std::make_shared<const Plan>(std::move(parsed));
  if (fits) PIPER_CHECK(fits(*out.plan));
  PIPER_TRY(CapturedModel captured, capture_for(model, *out.plan, true));
  out.captured = std::make_shared<const CapturedModel>(std::move(captured));
  return out;
}

}  // namespace piper
