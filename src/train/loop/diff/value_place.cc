#include "train/loop/diff/value_place.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "ir/local_size.h"
#include "plan/routed_rows.h"

namespace piper {
namespace {

int64_t position_in(const std::vector<int>& devices, int device) {
  return std::find(devices.begin(), devices.end(), device) - devices.begin();
}

LocalShard shard_at(const std::vector<int>& members, int device) {
  return {static_cast<int64_t>(members.size()), position_in(members, device)};
}

int64_t first_sample_on(const Plan& plan, const DeviceList& group, int device, int slice, int64_t samples) {
  const int64_t parts = static_cast<int64_t>(group.size()) / plan.devices_per_sample();
  return (std::max(slice, 0) * parts + position_in(group, device) / plan.devices_per_sample()) * samples;
}

std::optional<int64_t> dim_with(const Value& value, std::string_view label) {
  for (size_t d = 0; d < value.shape.size(); ++d)
    if (value.shape[d].label == label) return static_cast<int64_t>(d);
  return {};
}

/// The dimension in which a device has the slots of all slices, one slice behind the other.
std::optional<int64_t> gathered_dim(const Value& value) {
  for (const ShardRule& rule : shard_rules)
    if (const auto dim = rule.gathered.empty() ? std::nullopt : dim_with(value, rule.gathered)) return dim;
  return std::nullopt;
}

/// Zigzag: the first of two blocks is as far from the beginning as the second from the end. A view with two dimensions
/// instead of one.
at::Tensor two_blocks(const at::Tensor& whole, int64_t dim, int64_t count, int64_t index) {
  const int64_t size = whole.size(dim) / (2 * count), before = index * size, stride = whole.stride(dim);
  std::vector<int64_t> sizes = whole.sizes().vec(), strides = whole.strides().vec();
  sizes[static_cast<size_t>(dim)] = size;
  sizes.insert(sizes.begin() + dim, 2);
  strides.insert(strides.begin() + dim, (whole.size(dim) - 2 * before - size) * stride);
  return whole.as_strided(sizes, strides, whole.storage_offset() + before * stride);
}

/// Of the whole, what is here: without the dimension in which slices are gathered.
at::Tensor narrowed(at::Tensor whole, const Value& value, const ValuePlace& place) {
  for (const ShardRule& rule : shard_rules) {
    const auto [count, index] = place.shards[rule.kind];
    const auto dim = count > 1 ? dim_with(value, rule.label) : std::nullopt;
    if (!dim) continue;
    const int64_t size = whole.size(*dim) / count;
    whole = rule.kind == ShardKind::Context && place.zigzag > 0 ? two_blocks(whole, *dim, count, index)
                                                                : whole.narrow(*dim, index * size, size);
  }
  return whole;
}

/// To the tokens of the device so many before it along the axis.
void rotate(ValuePlace& place, int by) {
  auto& [count, index] = place.shards[ShardKind::Context];
  index = (index - by % count + count) % count;
}

/// The tokens of all devices, one device after the other.
at::Tensor by_device(const at::Tensor& whole, int64_t dim, int64_t devices) {
  std::vector<at::Tensor> parts;
  for (int64_t index = 0; index < devices; ++index)
    parts.push_back(two_blocks(whole, dim, devices, index).flatten(dim, dim + 1));
  return at::cat(parts, dim);
}

/// The reverse.
at::Tensor in_order(const at::Tensor& sent, int64_t dim, int64_t devices) {
  at::Tensor out = at::empty_like(sent);
  const int64_t size = sent.size(dim) / devices;
  for (int64_t index = 0; index < devices; ++index)
    two_blocks(out, dim, devices, index).copy_(sent.narrow(dim, index * size, size).unflatten(dim, {2, -1}));
  return out;
}

/// The dimension of tokens, where those of all devices are there in zigzag order.
std::optional<int64_t> dim_of_all_tokens(const Value& value, const ValuePlace& place) {
  return place.zigzag > 0 && place.shards[ShardKind::Context].count == 1 ? dim_with(value, sequence_label)
                                                                         : std::nullopt;
}

/// Whether an all-to-all among these devices makes heads of tokens, or the reverse.
bool divides_heads(const Plan& plan, PartitionId among) {
  return std::ranges::any_of(plan.works, [&](const PlanWork& work) { return work.shards[ShardKind::Heads] == among; });
}

}  // namespace

ValuePlace place_of_run(const Plan& plan, const PlannedOp& op, int device, int slice) {
  const PlanWork& work = plan.works[op.work];
  const DeviceList& group = plan.groups[work.group];
  const auto first = [&](int of) { return first_sample_on(plan, group, of, slice, work.samples); };
  ValuePlace out;
  out.first_sample = first(device);
  out.samples = work.samples;
  out.shards.buffer = work.buffer;
  for (const ShardRule& rule : shard_rules) {
    if (!work.shards[rule.kind].valid()) continue;
    const std::vector<int> members = part_with(plan, work.shards[rule.kind], device);
    out.shards[rule.kind] = shard_at(members, device);
    if (rule.axis) out.members = members;
    if (rule.axis == SampleAxis::Cp && plan.capture.token_order == TokenOrder::Zigzag)
      out.zigzag = plan.shared[SampleAxis::Cp];
    if (rule.gathered.empty()) continue;
    for (const int member : members) out.gathered.push_back(first(member));
  }
  return out;
}

ValuePlaces::ValuePlaces(const Plan& plan, const ModelGraph& graph, const std::vector<OpOnDevice>& order)
    : plan_(plan) {
  for (const Value& value : graph.values) {
    values_[value.name] = &value;
    ids_[value.name] = ValueId(ids_.size());
  }
  for (const Chunk& chunk : graph.chunks) chunks_[chunk.name] = &chunk;
  const std::vector<TemplateId> templates = template_of_device(plan);
  for (const auto& [device, op] : order) {
    const PlanTemplate& program = plan.templates[templates[static_cast<size_t>(device)]];
    follow(device, program, program.ops[op]);
  }
}

const ValuePlace* ValuePlaces::find(int device, BufferId buffer) const {
  const auto found = places_.find({device, buffer});
  return found == places_.end() ? nullptr : &found->second;
}
const Value* ValuePlaces::value(const PlanLabel& label) const {
  const auto found = values_.find(plan_.names[label.name]);
  return found == values_.end() ? nullptr : found->second;
}
const Chunk* ValuePlaces::chunk(const PlanLabel& label) const {
  const auto found = chunks_.find(plan_.names[label.name]);
  return found == chunks_.end() ? nullptr : found->second;
}

void ValuePlaces::follow(int device, const PlanTemplate& program, const PlannedOp& op) {
  const auto label = [&](BufferId buffer) -> const PlanLabel& { return program.buffers[buffer].label; };
  const auto holds_value = [&](BufferId buffer) {
    return program.buffers[buffer].category == Category::Activations && value(label(buffer));
  };
  if (op.kind == OpKind::Send) {
    if (const ValuePlace* place = find(device, op.reads[0])) sent_[op.communication] = *place;
    return;
  }
  for (const BufferId buffer : op.writes) {
    if (!holds_value(buffer)) continue;
    ValuePlace& place = places_[{device, buffer}];
    if (op.kind == OpKind::Run) {
      place = place_of_run(plan_, op, device, label(buffer).slice);
      if (!place.members.empty()) place.partial = value(label(buffer))->partial;
      const auto id = ids_.find(plan_.names[label(buffer).name]);
      if (const Chunk* writer = chunk(op.label); writer && id != ids_.end())
        rotate(place, writer->rotation_of(id->second));
    } else if (op.kind == OpKind::Recv) {
      place = received(device, op, label(buffer).slice);
    } else if (const ValuePlace* from = before(device, program, op, buffer)) {
      place = after(device, op, ValuePlace(*from));
    }
  }
  if (op.kind != OpKind::Run) return;
  for (const BufferId buffer : op.reads) {  // what nobody writes is an input of the model
    if (!holds_value(buffer) || find(device, buffer)) continue;
    ValuePlace& place = places_[{device, buffer}] = place_of_run(plan_, op, device, label(buffer).slice);
    place.shards = {};
    place.zigzag = 0;
    place.gathered.clear();
  }
}

/// Of what a collective reads, that which it makes this of. Null: it is not known.
const ValuePlace* ValuePlaces::before(int device, const PlanTemplate& program, const PlannedOp& op,
                                      BufferId written) const {
  const auto same = [&](BufferId read) {
    return program.buffers[read].label.name == program.buffers[written].label.name;
  };
  const auto found = std::ranges::find_if(op.reads, same);
  return op.reads.empty() ? nullptr : find(device, found == op.reads.end() ? op.reads[0] : *found);
}

/// What a collective makes of it.
ValuePlace ValuePlaces::after(int device, const PlannedOp& op, ValuePlace place) const {
  const Communication& communication = plan_.communications[op.communication];
  if (communication.buffer == 0) place.partial = Partial::No;  // rows for experts go as they are
  switch (op.kind) {
    case OpKind::ReduceScatter:
    case OpKind::LocalSlice:
      place.members = part_with(plan_, communication.over, device);
      place.shards[ShardKind::Tp] = {};
      place.shards[plan_.capture.labelled[ShardKind::Context] ? ShardKind::Context : ShardKind::Sequence] =
          shard_at(place.members, device);
      break;
    case OpKind::AllGather:
      place.shards[ShardKind::Tp] = place.shards[ShardKind::Sequence] = place.shards[ShardKind::Context] = {};
      if (communication.buffer > 0) to_experts(device, communication, place);  // counts of rows
      break;
    case OpKind::AllToAll:
      if (divides_heads(plan_, communication.over)) {  // tokens become heads, or the reverse
        std::swap(place.shards[ShardKind::Context], place.shards[ShardKind::Heads]);
        break;
      }
      place.shards[ShardKind::Expert] = {};
      place.gathered.clear();
      if (communication.exchange == Exchange::Divide) to_experts(device, communication, place);
      break;
    case OpKind::Shift:
      rotate(place, communication.by);
      break;
    default:
      break;
  }
  return place;
}

/// Among the devices that have them.
void ValuePlaces::to_experts(int device, const Communication& communication, ValuePlace& place) const {
  const std::vector<int> members = part_with(plan_, communication.over, device);
  place.shards[ShardKind::Expert] = shard_at(members, device);
  place.shards.buffer = communication.buffer;
  for (const PlanWork& work : plan_.works)
    if (work.shards[ShardKind::Expert] == communication.over && work.samples == place.samples) {
      const DeviceList& group = plan_.groups[work.group];
      const int64_t slices = static_cast<int64_t>(group.size()) / plan_.devices_per_sample() * place.samples;
      for (const int member : members)
        place.gathered.push_back(
            first_sample_on(plan_, group, member, static_cast<int>(place.first_sample / slices), place.samples));
      break;
    }
}

/// As it was sent, but of the samples of the receivers.
ValuePlace ValuePlaces::received(int device, const PlannedOp& op, int slice) const {
  const Communication& communication = plan_.communications[op.communication];
  const DeviceList &from = plan_.groups[communication.from], &to = plan_.groups[communication.to];
  const auto sent = sent_.find(op.communication);
  ValuePlace out = sent == sent_.end() ? ValuePlace{} : sent->second;
  out.samples = out.samples * static_cast<int64_t>(from.size()) / static_cast<int64_t>(to.size());
  out.first_sample = first_sample_on(plan_, to, device, slice, out.samples);
  for (const ShardRule& rule : shard_rules) {  // each device with the same samples sends its shard to its like
    if (!rule.axis || out.shards[rule.kind].count == 1) continue;
    const int64_t size = plan_.devices_per_sample(), at = position_in(to, device);
    out.members.assign(to.begin() + at / size * size, to.begin() + (at / size + 1) * size);
    out.shards[rule.kind].index = at % size;
  }
  return out;
}

at::Tensor by_dimensions(const at::Tensor& whole, const Value& value, int64_t samples) {
  std::vector<int64_t> extents;
  int64_t elements = 1;
  for (const Dim& dim : value.shape) {
    extents.push_back(dim.extent(samples));
    elements *= extents.back();
  }
  if (elements != whole.numel()) return {};
  return whole.sizes() == c10::IntArrayRef(extents) ? whole : whole.contiguous().view(extents);
}

at::Tensor take_place(std::vector<at::Tensor> wholes, const Value& value, const ValuePlace& place) {
  const auto tokens = dim_of_all_tokens(value, place);
  for (at::Tensor& whole : wholes)
    whole = narrowed(tokens ? by_device(whole, *tokens, place.zigzag) : whole, value, place);
  const auto dim = gathered_dim(value);
  return wholes.size() == 1 || !dim ? wholes[0] : at::cat(wholes, *dim);
}

std::pair<at::Tensor, at::Tensor> take_rows(const at::Tensor& here, const std::vector<at::Tensor>& wholes,
                                            const std::vector<int32_t>& ends, const Value& value,
                                            const ValuePlace& place) {
  const int64_t dim = *dim_with(value, routed_label);
  const auto me = static_cast<int>(place.shards.routed().index), members = static_cast<int>(wholes.size());
  std::vector<at::Tensor> theirs;
  for (const at::Tensor& whole : wholes) theirs.push_back(narrowed(whole, value, place));
  std::vector<int64_t> sizes = theirs[0].sizes().vec();
  int64_t& room = sizes[static_cast<size_t>(dim)];
  room = here.numel() / (theirs[0].numel() / room);
  const RoutedRows rows(ends, members, room);
  std::vector<at::Tensor> messages, pieces;
  for (int member = 0; member < members; ++member) {
    const RowRange sent = rows.sent(member, me, 0);
    messages.push_back(theirs[static_cast<size_t>(member)].narrow(dim, sent.first, sent.count));
  }
  const at::Tensor arrived = at::cat(messages, dim);
  for (const RowPiece& piece : rows.pieces(me, 0))
    pieces.push_back(arrived.narrow(dim, piece.in_messages, piece.count));
  const at::Tensor seen = here.contiguous().view(sizes).narrow(dim, 0, arrived.size(dim));
  return {seen, pieces.empty() ? arrived : at::cat(pieces, dim)};
}

void give_place(const at::Tensor& here, std::vector<at::Tensor>& wholes, const Value& value, const ValuePlace& place) {
  std::vector<at::Tensor> targets;
  for (at::Tensor& whole : wholes) targets.push_back(narrowed(whole, value, place));
  std::vector<int64_t> sizes = targets[0].sizes().vec();
  const auto dim = gathered_dim(value);
  if (targets.size() > 1 && dim) sizes[static_cast<size_t>(*dim)] *= static_cast<int64_t>(targets.size());
  at::Tensor seen = here.contiguous().view(sizes);
  if (const auto tokens = dim_of_all_tokens(value, place)) seen = in_order(seen, *tokens, place.zigzag);
  for (size_t i = 0; i < targets.size(); ++i) {
    at::Tensor piece = seen;
    if (targets.size() > 1 && dim) {
      const int64_t size = targets[i].size(*dim);
      piece = seen.narrow(*dim, static_cast<int64_t>(i) * size, size);
    }
    if (place.partial == Partial::Sum)
      targets[i].add_(piece);
    else if (place.partial == Partial::Max)
      targets[i].copy_(at::maximum(targets[i], piece));
    else
      targets[i].copy_(piece);
  }
}

}  // namespace piper
