#include "plan/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/hash.h"

namespace piper {
namespace {

void add(StableHash& hash, const PlanLabel& label) {
  hash.add(static_cast<uint64_t>(label.name.value));
  hash.add(label.pass ? static_cast<uint64_t>(*label.pass) : 99);
  hash.add(static_cast<uint64_t>(label.slice));
}

void add(StableHash& hash, const DeviceList& list) {
  hash.add(list.size());
  for (const int item : list) hash.add(static_cast<uint64_t>(item));
}

template <class Tag>
void add(StableHash& hash, const std::vector<Id<Tag>>& list) {
  hash.add(list.size());
  for (const Id<Tag> item : list) hash.add(static_cast<uint64_t>(item.value));
}

}  // namespace

std::string_view name(OpKind kind) {
  constexpr std::string_view names[] = {"run",        "send",       "recv",          "all_reduce",  "reduce_scatter",
                                        "all_gather", "all_to_all", "reduce_pieces", "local_slice", "update",
                                        "shift",      "rounds"};
  return names[static_cast<int>(kind)];
}

bool is_communication(OpKind kind) {
  return kind != OpKind::Run && kind != OpKind::Update;
}

std::string_view name(Category category) {
  constexpr std::string_view names[] = {"weights",     "gradients",     "optimizer",
                                        "activations", "communication", "temporaries"};
  return names[static_cast<int>(category)];
}

std::string_view name(Exchange exchange) {
  constexpr std::string_view names[] = {"", "divide", "gather"};
  return names[static_cast<int>(exchange)];
}

uint64_t hash(const Plan& plan) {
  StableHash hash;
  hash.add(plan.model);
  hash.add(plan.costs);
  hash.add(static_cast<uint64_t>(plan.losses));
  hash.add(static_cast<uint64_t>(plan.devices_per_sample()));
  if (plan.devices_per_sample() > 1)
    for (const int size : plan.shared.of) hash.add(static_cast<uint64_t>(size));
  add(hash, plan.capture);
  for (const PlanDim& dim : plan.dims) {
    hash.add(dim.name);
    hash.add(static_cast<uint64_t>(dim.parts));
  }
  for (const std::string& stream : plan.streams) hash.add(stream);
  for (const std::string& name : plan.names) hash.add(name);
  for (const DeviceList& group : plan.groups) add(hash, group);
  for (const PlanPartition& partition : plan.partitions) {
    hash.add(static_cast<uint64_t>(partition.part_size));
    add(hash, partition.members);
  }
  for (const PlanBucket& bucket : plan.buckets) {
    for (const int64_t word :
         {int64_t{bucket.name.value}, static_cast<int64_t>(bucket.weights), static_cast<int64_t>(bucket.gradients)})
      hash.add(static_cast<uint64_t>(word));
    if (bucket.matrices) hash.add(1);
    for (const PlanParameter& parameter : bucket.parameters)
      for (const int64_t word : {int64_t{parameter.name.value}, parameter.elements, int64_t{parameter.ordered},
                                 int64_t{parameter.sharded.value_or(-1)}})
        hash.add(static_cast<uint64_t>(word));
    for (const PlanHolder& holder : bucket.holders) {
      for (const int word : {holder.group.value, holder.copies.value, int{holder.sharded}})
        hash.add(static_cast<uint64_t>(word));
      for (const int64_t count : holder.shards.of) hash.add(static_cast<uint64_t>(count));
    }
  }
  for (const PlanWork& work : plan.works) {
    add(hash, {work.name, work.pass, -1});
    for (const int64_t word :
         {work.samples, static_cast<int64_t>(work.dtype), work.does.flops, work.does.bytes, int64_t{work.group.value}})
      hash.add(static_cast<uint64_t>(word));
    for (const PartitionId partition : work.shards.of) hash.add(static_cast<uint64_t>(partition.value));
    if (work.buffer > 0) hash.add(static_cast<uint64_t>(work.buffer));
    if (work.float8) hash.add("float8");
  }
  for (const Communication& c : plan.communications) {
    add(hash, c.label);
    for (const int64_t word : {int64_t{c.transfer}, int64_t{c.from.value}, int64_t{c.to.value}, int64_t{c.over.value},
                               c.bytes, static_cast<int64_t>(c.exchange), 2 * int64_t{c.maximum}})
      hash.add(static_cast<uint64_t>(word));
    if (c.by != 0) hash.add(static_cast<uint64_t>(c.by));
    if (c.shards != ShardCounts())
      for (const int64_t count : c.shards.of) hash.add(static_cast<uint64_t>(count));
    if (c.buffer > 0) hash.add(static_cast<uint64_t>(c.buffer));
  }
  for (const PlanTemplate& t : plan.templates) {
    add(hash, t.devices);
    for (const PlanBuffer& buffer : t.buffers) {
      add(hash, buffer.label);
      for (const int64_t word : {static_cast<int64_t>(buffer.category), buffer.bytes, int64_t{buffer.persistent}})
        hash.add(static_cast<uint64_t>(word));
    }
    for (const PlannedOp& op : t.ops) {
      add(hash, op.label);
      for (const int64_t word : {static_cast<int64_t>(op.kind), int64_t{op.stream.value}, int64_t{op.work.value},
                                 int64_t{op.communication.value}})
        hash.add(static_cast<uint64_t>(word));
      add(hash, op.waits);
      for (const auto* list : {&op.reads, &op.writes, &op.frees}) add(hash, *list);
    }
  }
  return hash.value();
}

std::string describe(const Plan& plan, const PlanLabel& label) {
  std::string out = label.name.valid() ? plan.names[label.name] : "-";
  if (label.pass) out += fmt::format(" {}", name(*label.pass));
  std::string tags;
  int slice = label.slice;
  for (auto dim = plan.dims.rbegin(); slice >= 0 && dim != plan.dims.rend(); ++dim) {
    tags = fmt::format(" {}={}", dim->name, slice % dim->parts) + tags;
    slice /= dim->parts;
  }
  return out + tags;
}

std::string describe(const Plan& plan, const PlanTemplate& on, OpId id) {
  const PlannedOp& op = on.ops[id];
  std::string out = fmt::format("device {}: op {} {} {} on {}", on.devices.empty() ? -1 : on.devices[0], id.value,
                                name(op.kind), describe(plan, op.label), plan.streams[op.stream]);
  if (op.origin.valid()) out += fmt::format(" ({})", plan.origins[op.origin].place);
  return out;
}

int device_count(const Plan& plan) {
  int highest = -1;
  for (const PlanTemplate& t : plan.templates)
    for (const int device : t.devices) highest = std::max(highest, device);
  return highest + 1;
}

std::vector<TemplateId> template_of_device(const Plan& plan) {
  std::vector<TemplateId> out(static_cast<size_t>(device_count(plan)));
  for (const TemplateId t : plan.templates.ids())
    for (const int device : plan.templates[t].devices) out[static_cast<size_t>(device)] = t;
  return out;
}

std::vector<TransferPiece> transfer_pieces(int position, const DeviceList& mine, const DeviceList& theirs,
                                           int64_t samples, int devices_per_sample) {
  const int64_t my_size = samples * devices_per_sample / static_cast<int64_t>(mine.size()),
                their_size = samples * devices_per_sample / static_cast<int64_t>(theirs.size());
  const int64_t begin = position / devices_per_sample * my_size, end = begin + my_size;
  std::vector<TransferPiece> pieces;
  for (int64_t p = begin / their_size; p * their_size < end; ++p) {
    const int64_t common = std::min(end, (p + 1) * their_size) - std::max(begin, p * their_size);
    const int64_t peer = p * devices_per_sample + position % devices_per_sample;
    if (common > 0) pieces.push_back({theirs[static_cast<size_t>(peer)], common});
  }
  return pieces;
}

int devices_with_same_data(const Plan& plan) {
  int devices = 1;
  for (const SampleAxisRule& rule : sample_axes)
    if (!rule.divides_tokens) devices *= plan.shared[rule.axis];
  return devices;
}

int rank_with_same_data(const Plan& plan, int device) {
  for (const PlanWork& work : plan.works) {
    const DeviceList& group = plan.groups[work.group];
    const auto found = std::find(group.begin(), group.end(), device);
    if (work.pass && found != group.end())
      return static_cast<int>(found - group.begin()) % devices_with_same_data(plan);
  }
  return 0;
}

}  // namespace piper
