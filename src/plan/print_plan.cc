#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/text/bounded_reader.h"
#include "base/text/scanner.h"
#include "plan/plan_text.h"

namespace piper {
namespace {

template <class Tag>
std::string print_list(std::string_view key, std::string_view sigil, const std::vector<Id<Tag>>& list) {
  if (list.empty()) return "";
  std::vector<std::string> items;
  for (const Id<Tag> item : list) items.push_back(fmt::format("{}{}", sigil, item.value));
  return fmt::format(" {}({})", key, fmt::join(items, ", "));
}

/// Prints the lines of one plan; knows how each name and stream is referred to.
class Printer {
 public:
  explicit Printer(const Plan& plan)
      : plan_(plan), names_(references_to(plan.names)), streams_(references_to(plan.streams)) {}

  std::string header() const;
  std::string buffer(BufferId id, const PlanBuffer& buffer) const {
    return fmt::format("  buffer {} {} {} {}{}\n", id.value, name(buffer.category), buffer.bytes, label(buffer.label),
                       buffer.persistent ? " persistent" : "");
  }
  std::string op(OpId id, const PlannedOp& op) const;

 private:
  std::string label(const PlanLabel& label) const;
  std::string bucket(const PlanBucket& bucket) const;

  const Plan& plan_;
  std::vector<std::string> names_, streams_;  // by NameId, PlanStreamId
};

/// `layer.0 F mb=1`, with names quoted where they must be.
std::string Printer::label(const PlanLabel& label) const {
  std::string out = names_[label.name.index()];
  if (label.pass) out += fmt::format(" {}", name(*label.pass));
  std::string tags;
  int slice = label.slice;
  for (auto dim = plan_.dims.rbegin(); slice >= 0 && dim != plan_.dims.rend(); ++dim) {
    tags.insert(0, fmt::format(" {}={}", as_name(dim->name), slice % dim->parts));
    slice /= dim->parts;
  }
  if (label.slice >= 0 && plan_.dims.empty()) tags = " whole";
  return out + tags;
}

std::string Printer::op(OpId id, const PlannedOp& op) const {
  std::string out =
      fmt::format("  op {} {} {} on {}", id.value, name(op.kind), label(op.label), streams_[op.stream.index()]);
  if (op.work.valid()) out += fmt::format(" work={}", op.work.value);
  if (op.communication.valid()) out += fmt::format(" communication={}", op.communication.value);
  out += print_list("waits", "", op.waits) + print_list("reads", "%", op.reads) + print_list("writes", "%", op.writes) +
         print_list("frees", "%", op.frees);
  if (op.origin.valid()) out += fmt::format(" origin={}", op.origin.value);
  return out;
}

std::string print_operators(const DeviceOperators& operators) {
  std::string out;
  for (const MatrixProduct& p : operators.products)
    out += fmt::format("{}{}[{}, {}, {}, {}]", out.empty() ? " products(" : ", ",
                       p.kind == ProductKind::Float8 ? "float8 " : "", p.count, p.rows, p.columns, p.depth);
  if (!operators.products.empty()) out += ")";
  return out + fmt::format(" streamed={} kernels={}", operators.streamed, operators.kernels);
}

std::string Printer::bucket(const PlanBucket& bucket) const {
  const auto named = [&](NameId name) { return names_[name.index()]; };
  std::string out = fmt::format("bucket {} {} {}{}\n", named(bucket.name), name(bucket.weights), name(bucket.gradients),
                                bucket.matrices ? " matrices" : "");
  for (const PlanParameter& parameter : bucket.parameters)
    out += fmt::format("parameter {} elements={}{}{}\n", named(parameter.name), parameter.elements,
                       parameter.ordered ? " ordered" : "",
                       parameter.sharded ? fmt::format(" sharded={}", *parameter.sharded) : "");
  for (const PlanHolder& holder : bucket.holders)
    out += fmt::format("holder {} over {}{}{}\n", holder.group.value, holder.copies.value,
                       holder.sharded ? " sharded" : "",
                       holder.shards == ShardCounts() ? "" : " " + piper::print(holder.shards));
  return out;
}

std::string Printer::header() const {
  std::string out = fmt::format("plan {} costs={}", as_name(plan_.model), plan_.costs);
  if (plan_.losses > 0) out += fmt::format(" losses={}", plan_.losses);
  for (const SampleAxisRule& rule : sample_axes)
    if (plan_.shared[rule.axis] > 1) out += fmt::format(" {}={}", rule.name, plan_.shared[rule.axis]);
  if (plan_.capture != CaptureForm()) out += " " + piper::print(plan_.capture);
  out += "\n";
  for (const PlanDim& dim : plan_.dims) out += fmt::format("dim {} {}\n", as_name(dim.name), dim.parts);
  for (const std::string& stream : plan_.streams) out += fmt::format("stream {}\n", as_name(stream));
  for (const std::string& name : plan_.names) out += fmt::format("name {}\n", as_name(name));
  for (const PlanOrigin& origin : plan_.origins)
    out += fmt::format("origin {} {}\n", as_name(origin.place), as_name(origin.text));
  for (const DeviceList& group : plan_.groups) out += fmt::format("group {}\n", print_devices(group));
  for (const PlanPartition& partition : plan_.partitions)
    out += fmt::format("partition {} {}\n", partition.part_size, print_devices(partition.members));
  for (const PlanBucket& bucket : plan_.buckets) out += this->bucket(bucket);
  for (const PlanWork& work : plan_.works) {
    out += fmt::format("work {} samples={} {} flops={} bytes={} group={}", label({work.name, work.pass, -1}),
                       work.samples, name(work.dtype), work.does.flops, work.does.bytes, work.group.value);
    for (const ShardRule& rule : shard_rules)
      if (const PartitionId among = work.shards[rule.kind]; among.valid())
        out += fmt::format(" {}={}", rule.name, among.value);
    if (work.buffer > 0) out += " buffer=" + print_load(work.buffer);
    if (work.float8) out += " float8";
    if (work.does.operators) out += print_operators(*work.does.operators);
    out += "\n";
  }
  for (const Communication& c : plan_.communications) {
    const std::string who =
        c.transfer ? fmt::format("transfer {} -> {}", c.from.value, c.to.value) : fmt::format("over {}", c.over.value);
    out += fmt::format("communication {} {} bytes={}", label(c.label), who, c.bytes);
    if (c.exchange != Exchange::None) out += fmt::format(" {}", name(c.exchange));
    if (c.shards != ShardCounts()) out += " " + piper::print(c.shards);
    if (c.maximum) out += " max";
    if (c.by != 0) out += fmt::format(" by={}", c.by);
    if (c.buffer > 0) out += " buffer=" + print_load(c.buffer);
    out += "\n";
  }
  return out;
}

/// With whom the device communicates in this operation.
std::string peers(const Plan& plan, const PlannedOp& op, int device) {
  const Communication& c = plan.communications[op.communication];
  const auto position = [&](const DeviceList& list) {
    return static_cast<int>(std::find(list.begin(), list.end(), device) - list.begin());
  };
  if (!c.transfer) {
    const PlanPartition& partition = plan.partitions[c.over];
    const int part = position(partition.members) / partition.part_size;
    const auto first = partition.members.begin() + part * partition.part_size;
    return print_devices(DeviceList(first, first + partition.part_size));
  }
  const DeviceList &from = plan.groups[c.from], &to = plan.groups[c.to];
  const bool sends = op.kind == OpKind::Send;
  const DeviceList &mine = sends ? from : to, &theirs = sends ? to : from;
  DeviceList out;
  const int64_t fine = static_cast<int64_t>(mine.size()) * static_cast<int64_t>(theirs.size());
  for (const TransferPiece& piece : transfer_pieces(position(mine), mine, theirs, fine, plan.devices_per_sample()))
    out.push_back(piece.peer);
  return print_devices(out);
}

}  // namespace

std::string print(const Plan& plan) {
  const Printer printer(plan);
  std::string out = printer.header();
  for (const PlanTemplate& t : plan.templates) {
    out += fmt::format("template {}\n", print_devices(t.devices));
    for (const BufferId b : t.buffers.ids()) out += printer.buffer(b, t.buffers[b]);
    for (const OpId i : t.ops.ids()) out += printer.op(i, t.ops[i]) + "\n";
  }
  return out;
}

std::string print_device(const Plan& plan, int device) {
  const Printer printer(plan);
  const PlanTemplate& t = plan.templates[template_of_device(plan)[static_cast<size_t>(device)]];
  std::string out = fmt::format("# device {}, as {}\n", device, print_devices(t.devices));
  for (const BufferId b : t.buffers.ids()) out += printer.buffer(b, t.buffers[b]);
  for (const OpId i : t.ops.ids()) {
    out += printer.op(i, t.ops[i]);
    if (t.ops[i].communication.valid()) out += "  # with " + peers(plan, t.ops[i], device);
    out += "\n";
  }
  return out;
}

}  // namespace piper
