#include "property/bucket_operations.h"

#include <fmt/format.h>

#include <algorithm>

namespace piper::property {
namespace {

void add(Sum& to, const Sum& from) {
  for (const auto& [contribution, times] : from) to[contribution] += times;
}

OpKind kind_of(CollectiveKind kind) {
  constexpr OpKind kinds[] = {OpKind::AllReduce, OpKind::ReduceScatter, OpKind::AllGather,
                              OpKind::AllToAll,  OpKind::ReducePieces,  OpKind::LocalSlice};
  return kinds[static_cast<int>(kind)];
}

}  // namespace

BucketOperations::BucketOperations(const TrainingDag& dag, Machine& machine, const StepRules& rules)
    : dag_(dag), machine_(machine), rules_(rules) {
  for (int device = 0; device < machine.device_count(); ++device) {
    if (!machine.has(device)) continue;
    for (const BufferId b : machine.buffers(device).ids()) fill(device, b);
  }
}

std::optional<BucketId> BucketOperations::bucket_named(int device, BufferId buffer) const {
  for (size_t b = 0; b < dag_.buckets.size(); ++b)
    if (machine_.named(device, {buffer}, bucket_name(dag_, BucketId(b)), machine_.buffer(device, buffer).category).valid())
      return BucketId(b);
  return std::nullopt;
}

void BucketOperations::fill(int device, BufferId id) {
  const PlanBuffer& buffer = machine_.buffer(device, id);
  if (!buffer.persistent || (buffer.category != Category::Weights && buffer.category != Category::Gradients)) return;
  const auto bucket = bucket_named(device, id);
  const Holder* holder = bucket ? rules_.holder(*bucket, device) : nullptr;
  if (!holder) return machine_.fault(fmt::format("device {} keeps a bucket it does not hold", device));
  const bool weights = buffer.category == Category::Weights;
  const bool whole = holder->zero < (weights ? 3 : 2);
  Weights first{*bucket, rules_.block(*bucket, device), {}};
  Gradients zero{*bucket, first.block, {}};
  for (const Piece& piece : rules_.pieces(*bucket)) {
    const bool here = whole || rules_.owns(*bucket, *holder, device, piece);
    first.version.push_back(here ? std::optional(0) : std::nullopt);
    zero.pieces.push_back(here ? std::optional(Sum{}) : std::nullopt);
  }
  if (weights)
    machine_.content(device, id) = std::move(first);
  else
    machine_.content(device, id) = std::move(zero);
}

void BucketOperations::check_weights(NodeId id, int device, const PlannedOp& op, ParameterId parameter) {
  const BucketId bucket = rules_.bucket_of(parameter);
  for (const Weights* weights : machine_.find<Weights>(device, op.reads)) {
    if (weights->bucket != bucket) continue;
    bool good = weights->block == rules_.block(bucket, device);
    for (size_t p = 0; p < weights->version.size(); ++p)
      good = good && (rules_.pieces(bucket)[p].parameter != parameter || weights->version[p] == 0);
    if (!good)
      machine_.fault(fmt::format("{} on device {} uses wrong weights of {}", name_of(dag_, id), device,
                                 (*dag_.model)[parameter].name));
    return;
  }
  machine_.fault(fmt::format("{} on device {} misses the weights of {}", name_of(dag_, id), device,
                             (*dag_.model)[parameter].name));
}

void BucketOperations::contribute(NodeId id, int device, const PlannedOp& op, ParameterId parameter) {
  const BucketId bucket = rules_.bucket_of(parameter);
  BufferId buffer = machine_.named(device, op.writes, bucket_name(dag_, bucket), Category::Gradients);
  if (!buffer.valid()) buffer = machine_.named(device, op.writes, bucket_name(dag_, bucket), Category::Communication);
  if (!buffer.valid())
    return machine_.fault(
        fmt::format("{} on device {} writes no gradient of {}", name_of(dag_, id), device, bucket_name(dag_, bucket)));
  Content& content = machine_.content(device, buffer);
  if (std::holds_alternative<std::monostate>(content))
    content = Gradients{bucket, rules_.block(bucket, device),
                        std::vector(rules_.pieces(bucket).size(), std::optional(Sum{}))};
  auto& gradients = std::get<Gradients>(content);
  for (size_t p = 0; p < gradients.pieces.size(); ++p) {
    if (rules_.pieces(bucket)[p].parameter != parameter) continue;
    if (!gradients.pieces[p])
      machine_.fault(fmt::format("{} on device {} adds to what is reduced already", name_of(dag_, id), device));
    else
      add(*gradients.pieces[p], rules_.contributions(dag_[id], device, parameter));
  }
}

void BucketOperations::communicate(NodeId id, const Collective& collective) {
  const Partition& over = dag_.groups[collective.over];
  for (int part = 0; part < over.parts(); ++part) {
    const DeviceList members(over.members.begin() + part * over.part_size,
                             over.members.begin() + (part + 1) * over.part_size);
    if (collective.item.kind == Item::Kind::Weights)
      gather_weights(id, collective.item.bucket_id(), members);
    else
      combine_gradients(id, collective, members);
  }
}

void BucketOperations::gather_weights(NodeId id, BucketId bucket, const DeviceList& members) {
  std::vector<std::pair<const PlannedOp*, Weights*>> at;  // by member: its own weights
  for (const int device : members) {
    const PlannedOp& op = machine_.take(device, OpKind::AllGather, id);
    std::vector<Weights*> own = machine_.find<Weights>(device, op.reads);
    if (own.empty()) own = machine_.find<Weights>(device, op.writes);
    if (own.size() != 1 || own[0]->bucket != bucket) {
      machine_.fault(fmt::format("{} on device {} has nothing to gather", name_of(dag_, id), device));
      throw OutOfStep{};
    }
    at.emplace_back(&op, own[0]);
  }
  Weights whole{bucket, at[0].second->block, {}};
  for (const Piece& piece : rules_.pieces(bucket)) {
    const int owner = rules_.owner(bucket, piece, static_cast<int>(members.size()));
    whole.version.push_back(at[static_cast<size_t>(owner)].second->version[whole.version.size()]);
  }
  for (size_t m = 0; m < members.size(); ++m) {
    if (at[m].second->block != whole.block) machine_.fault(fmt::format("{} mixes experts", name_of(dag_, id)));
    if (at[m].first->writes.size() != 1)
      machine_.fault(fmt::format("{} writes nothing", name_of(dag_, id)));
    else
      machine_.content(members[m], at[m].first->writes[0]) = whole;
    machine_.finish(members[m], *at[m].first);
  }
}

void BucketOperations::combine_gradients(NodeId id, const Collective& collective, const DeviceList& devices) {
  const BucketId bucket = collective.item.bucket_id();
  std::vector<Member> members;
  for (const int device : devices) {
    Member member{device, &machine_.take(device, kind_of(collective.kind), id), nullptr, nullptr};
    const auto sources = machine_.find<Gradients>(device, member.op->reads),
               targets = machine_.find<Gradients>(device, member.op->writes);
    if (targets.size() == 1) member.target = targets[0];
    member.source = sources.empty() ? member.target : sources[0];
    if (!member.target || member.target->bucket != bucket || member.source->bucket != bucket) {
      machine_.fault(fmt::format("{} on device {} has no gradients", name_of(dag_, id), device));
      throw OutOfStep{};
    }
    members.push_back(member);
  }
  if (collective.kind != CollectiveKind::ReducePieces)
    for (const Member& member : members)
      if (member.source->block != members[0].source->block)
        machine_.fault(fmt::format("{} mixes gradients of different experts", name_of(dag_, id)));
  switch (collective.kind) {
    case CollectiveKind::AllReduce:
      all_reduce(id, bucket, members);
      break;
    case CollectiveKind::ReducePieces:
      reduce_pieces(bucket, members);
      break;
    case CollectiveKind::ReduceScatter:
      reduce_scatter(id, bucket, members);
      break;
    case CollectiveKind::AllGather:
      gather_gradients(id, bucket, members);
      break;
    case CollectiveKind::AllToAll:
    case CollectiveKind::LocalSlice:
    case CollectiveKind::Shift:
    case CollectiveKind::Rounds:
      machine_.fault("gradients are not exchanged");
      break;
  }
  for (const Member& member : members) machine_.finish(member.device, *member.op);
}

void BucketOperations::all_reduce(NodeId id, BucketId bucket, std::vector<Member>& members) {
  for (size_t p = 0; p < rules_.pieces(bucket).size(); ++p) {
    Sum total;
    for (const Member& member : members) {
      if (member.source->pieces[p])
        add(total, *member.source->pieces[p]);
      else
        machine_.fault(fmt::format("{} on device {} does not have all that it adds", name_of(dag_, id), member.device));
    }
    for (const Member& member : members) member.target->pieces[p] = total;
  }
}

/// Whoever has a piece of the same experts adds it and gets the sum.
void BucketOperations::reduce_pieces(BucketId bucket, std::vector<Member>& members) {
  for (size_t p = 0; p < rules_.pieces(bucket).size(); ++p) {
    std::map<int, Sum> total;  // by block of experts
    for (const Member& member : members)
      if (member.source->pieces[p]) add(total[member.source->block], *member.source->pieces[p]);
    for (const Member& member : members)
      if (member.source->pieces[p]) member.target->pieces[p] = total[member.source->block];
  }
}

void BucketOperations::reduce_scatter(NodeId id, BucketId bucket, std::vector<Member>& members) {
  for (size_t p = 0; p < rules_.pieces(bucket).size(); ++p) {
    Sum total;
    for (const Member& member : members) {
      if (!member.source->pieces[p])
        machine_.fault(
            fmt::format("{} on device {} adds a piece that is reduced already", name_of(dag_, id), member.device));
      else
        add(total, *member.source->pieces[p]);
    }
    const int owner = rules_.owner(bucket, rules_.pieces(bucket)[p], static_cast<int>(members.size()));
    for (size_t m = 0; m < members.size(); ++m) {
      std::optional<Sum>& kept = members[m].target->pieces[p];
      const bool own = static_cast<int>(m) == owner, accumulates = members[m].source != members[m].target;
      if (!own && !accumulates) kept.reset();
      if (own && !accumulates) kept = total;
      if (own && accumulates && kept) add(*kept, total);
      if (own && !kept)
        machine_.fault(fmt::format("{} on device {} has no place for its shard", name_of(dag_, id), members[m].device));
    }
  }
}

void BucketOperations::gather_gradients(NodeId id, BucketId bucket, std::vector<Member>& members) {
  for (size_t p = 0; p < rules_.pieces(bucket).size(); ++p) {
    const int owner = rules_.owner(bucket, rules_.pieces(bucket)[p], static_cast<int>(members.size()));
    const std::optional<Sum> sum = members[static_cast<size_t>(owner)].source->pieces[p];
    if (!sum) machine_.fault(fmt::format("{}: the owner of a piece does not have it", name_of(dag_, id)));
    for (const Member& member : members) member.target->pieces[p] = sum;
  }
}

bool BucketOperations::updates(BucketId bucket, const Holder& holder, int device, const Piece& piece) const {
  return holder.zero == 0 || rules_.owns(bucket, holder, device, piece);
}

void BucketOperations::check_complete(NodeId id, int device, const Gradients& gradients) {
  const Holder& holder = *rules_.holder(gradients.bucket, device);
  for (size_t p = 0; p < gradients.pieces.size(); ++p) {
    const Piece& piece = rules_.pieces(gradients.bucket)[p];
    if (!updates(gradients.bucket, holder, device, piece)) continue;
    const Sum found = gradients.pieces[p].value_or(Sum{}), &wanted = rules_.complete(piece.parameter);
    if (found == wanted) continue;
    machine_.fault(fmt::format("{} on device {}: gradient of {} is not complete, each once:{}", name_of(dag_, id),
                               device, (*dag_.model)[piece.parameter].name, difference(dag_, found, wanted)));
  }
}

void BucketOperations::scalars(NodeId id) {
  std::map<std::pair<ValueId, Samples>, int> losses;
  const auto& devices = dag_.groups[dag_[id].group].devices;
  for (const int device : devices) {
    const PlannedOp& op = machine_.take(device, OpKind::AllReduce, id);
    for (const Gradients* gradients : machine_.find<Gradients>(device, op.reads))
      check_complete(id, device, *gradients);
    for (const Tensor* loss : machine_.find<Tensor>(device, op.reads))
      for (const Samples& samples : loss->slots) ++losses[{loss->value, samples}];
    machine_.finish(device, op);
  }
  int64_t counted = 0;
  size_t values = 0;
  for (const auto& [key, times] : losses) {
    counted += key.second.count;
    if (times != 1) machine_.fault(fmt::format("{} counts a loss {} times", name_of(dag_, id), times));
  }
  for (const Value& value : dag_.model->values) values += value.kind == ValueKind::Loss;
  if (counted != dag_.model->step.batch * static_cast<int64_t>(values))
    machine_.fault(fmt::format("{} counts the losses of {} samples", name_of(dag_, id), counted));
  scalars_known_ = true;
}

/// What the scalars say must be known; one device on its own sees that itself.
void BucketOperations::check_scalars(NodeId id, int device) {
  if (scalars_known_) return;
  int active = 0;
  for (int d = 0; d < machine_.device_count(); ++d) active += machine_.has(d);
  if (active > 1) return machine_.fault(fmt::format("{} does not wait for the step's scalars", name_of(dag_, id)));
  for (const BufferId b : machine_.buffers(device).ids())
    if (const auto* gradients = std::get_if<Gradients>(&machine_.content(device, b)))
      check_complete(id, device, *gradients);
}

void BucketOperations::update(NodeId id, BucketId bucket) {
  for (const int device : dag_.groups[dag_[id].group].devices) {
    const PlannedOp& op = machine_.take(device, OpKind::Update, id);
    check_scalars(id, device);
    const auto gradients = machine_.find<Gradients>(device, op.reads);
    const auto weights = machine_.find<Weights>(device, op.writes);
    if (gradients.size() != 1 || weights.size() != 1 || gradients[0]->bucket != bucket ||
        weights[0]->bucket != bucket) {
      machine_.fault(fmt::format("{} on device {} has no gradients or weights", name_of(dag_, id), device));
      continue;
    }
    check_complete(id, device, *gradients[0]);
    for (size_t p = 0; p < weights[0]->version.size(); ++p) {
      if (!updates(bucket, *rules_.holder(bucket, device), device, rules_.pieces(bucket)[p])) continue;
      if (weights[0]->version[p] != 0)
        machine_.fault(fmt::format("{} on device {} updates twice", name_of(dag_, id), device));
      weights[0]->version[p] = 1;
    }
    machine_.finish(device, op);
  }
}

void BucketOperations::check_end() {
  for (int device = 0; device < machine_.device_count(); ++device) {
    if (!machine_.has(device)) continue;
    for (const BufferId b : machine_.buffers(device).ids()) {
      const auto* weights = std::get_if<Weights>(&machine_.content(device, b));
      if (!weights) continue;
      if (!machine_.buffers(device)[b].persistent)
        machine_.fault(fmt::format("device {} never frees a gathered copy", device));
      const Bucket& bucket = dag_[weights->bucket];
      const Holder& holder = *rules_.holder(weights->bucket, device);
      for (size_t p = 0; p < weights->version.size(); ++p) {
        const bool here =
            holder.zero < 3 || rules_.owns(weights->bucket, holder, device, rules_.pieces(weights->bucket)[p]);
        if (here && weights->version[p] != (bucket.trainable ? 1 : 0))
          machine_.fault(fmt::format("device {} ends with old weights of {}", device, bucket_name(dag_, weights->bucket)));
      }
    }
  }
}

}  // namespace piper::property
