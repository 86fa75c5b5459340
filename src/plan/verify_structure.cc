#include <fmt/format.h>

#include <algorithm>

#include "plan/verify_plan.h"

namespace piper {
namespace {

Diagnostic malformed(std::string message) {
  return error(ErrorCode::E408, {}, std::move(message))
      .help("what piper has written is never malformed: print the plan anew with piper compile MODEL SCHEDULE");
}

Checked check_label(const Plan& plan, const PlanLabel& label, std::string_view what) {
  int64_t slices = 1;
  for (const PlanDim& dim : plan.dims) slices *= dim.parts;
  if (!plan.names.contains(label.name)) return malformed(fmt::format("{} has no name", what));
  if (label.slice < -1 || label.slice >= slices)
    return malformed(fmt::format("{} names slice {} of {}", what, label.slice, slices));
  return Ok{};
}

Checked check_tables(const Plan& plan) {
  int64_t slices = 1;
  for (const PlanDim& dim : plan.dims) {
    slices *= dim.parts;
    if (dim.parts < 1 || slices > 1'000'000'000)
      return malformed(fmt::format("dim {} has {} parts", dim.name, dim.parts));
  }
  const auto check_devices = [](const DeviceList& devices, std::string_view what) -> Checked {
    DeviceList sorted = devices;
    std::sort(sorted.begin(), sorted.end());
    if (devices.empty() || sorted[0] < 0) return malformed(fmt::format("{} has no devices", what));
    if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end())
      return malformed(fmt::format("{} has a device twice", what));
    return Ok{};
  };
  for (const GroupId g : plan.groups.ids())
    PIPER_CHECK(check_devices(plan.groups[g], fmt::format("group {}", g.value)));
  for (const PartitionId p : plan.partitions.ids()) {
    const PlanPartition& partition = plan.partitions[p];
    PIPER_CHECK(check_devices(partition.members, fmt::format("partition {}", p.value)));
    if (partition.part_size < 1 || partition.members.size() % static_cast<size_t>(partition.part_size) != 0)
      return malformed(fmt::format("partition {} does not divide into parts of {}", p.value, partition.part_size));
  }
  for (const PlanBucket& bucket : plan.buckets)
    for (const PlanHolder& holder : bucket.holders)
      if (!plan.groups.contains(holder.group) || !plan.partitions.contains(holder.copies))
        return malformed("a bucket is held by groups that do not exist");
  const auto divides = [](size_t count, int64_t by) { return by >= 1 && count % static_cast<size_t>(by) == 0; };
  for (const PlanBucket& bucket : plan.buckets)
    for (const PlanHolder& holder : bucket.holders) {
      const PlanPartition& copies = plan.partitions[holder.copies];
      size_t parts = copies.members.size() / static_cast<size_t>(copies.part_size);
      bool good = divides(parts, devices_with_same_data(plan));
      for (const int64_t count : holder.shards.of) {
        good = good && divides(parts, count);
        if (good) parts /= static_cast<size_t>(count);
      }
      if (!good || !divides(static_cast<size_t>(devices_with_same_data(plan)), static_cast<int64_t>(parts)))
        return malformed("parts of a bucket do not divide among shards and devices with the same data");
    }
  const auto inside_or_none = [&](PartitionId partition) {
    return partition == PartitionId() || plan.partitions.contains(partition);
  };
  for (const PlanWork& work : plan.works)
    if (!plan.groups.contains(work.group) || !std::ranges::all_of(work.shards.of, inside_or_none))
      return malformed("a work is done by groups that do not exist");
  for (const PlanWork& work : plan.works)
    if (work.pass && !divides(plan.groups[work.group].size(), plan.devices_per_sample()))
      return malformed("the devices of a work do not divide among devices with the same samples");
  for (const CommunicationId c : plan.communications.ids()) {
    const Communication& comm = plan.communications[c];
    const std::string what = fmt::format("communication {}", c.value);
    PIPER_CHECK(check_label(plan, comm.label, what));
    const bool good = comm.transfer ? plan.groups.contains(comm.from) && plan.groups.contains(comm.to)
                                    : plan.partitions.contains(comm.over);
    if (!good || comm.bytes < 0) return malformed(fmt::format("{} names groups that do not exist", what));
    if (comm.by < 0 || (!comm.transfer && comm.by >= std::max(1, plan.partitions[comm.over].part_size)))
      return malformed(fmt::format("{} leads further than around its devices", what));
  }
  std::vector<int> all;
  for (const TemplateId t : plan.templates.ids()) {
    PIPER_CHECK(check_devices(plan.templates[t].devices, fmt::format("template {}", t.value)));
    all.insert(all.end(), plan.templates[t].devices.begin(), plan.templates[t].devices.end());
  }
  std::sort(all.begin(), all.end());
  if (const auto twice = std::adjacent_find(all.begin(), all.end()); twice != all.end())
    return malformed(fmt::format("device {} has two plans", *twice));
  if (plan.templates.empty()) return malformed("the plan has no devices");
  return Ok{};
}

Checked check_op(const Plan& plan, const PlanTemplate& t, OpId id, Table<BufferId, char>& freed) {
  const PlannedOp& op = t.ops[id];
  const std::string numbered = fmt::format("op {} of device {}", id.value, t.devices[0]);
  if (!plan.streams.contains(op.stream)) return malformed(fmt::format("{} has no stream", numbered));
  PIPER_CHECK(check_label(plan, op.label, numbered));
  if (op.origin != DirectiveId() && !plan.origins.contains(op.origin))
    return malformed(fmt::format("{} has an unknown origin", numbered));
  const auto bad = [&](const std::string& message) {
    return malformed(fmt::format("{} {}", describe(plan, t, id), message));
  };
  if (is_communication(op.kind) != (op.communication.valid()) ||
      (op.communication.valid() && !plan.communications.contains(op.communication)))
    return bad("must name a communication if and only if it is one");
  for (const OpId wait : op.waits)
    if (!wait.valid() || wait >= id || t.ops[wait].stream == op.stream)
      return bad(fmt::format("waits for op {}, which is not an earlier one on another stream", wait.value));
  for (const auto* list : {&op.reads, &op.writes, &op.frees})
    for (const BufferId buffer : *list)
      if (!t.buffers.contains(buffer)) return bad(fmt::format("names buffer {}, which does not exist", buffer.value));
  for (const BufferId buffer : op.frees) {
    if (t.buffers[buffer].persistent) return bad(fmt::format("frees the persistent buffer {}", buffer.value));
    if (freed[buffer]) return bad(fmt::format("frees buffer {} a second time", buffer.value));
    freed[buffer] = 1;
  }
  return Ok{};
}

/// What is used is freed, and the other way round.
Checked check_lifetimes(const Plan& plan, const PlanTemplate& t, const Table<BufferId, char>& freed) {
  Table<BufferId, OpId> last(t.buffers.size());  // operation that uses the buffer last
  for (const OpId i : t.ops.ids())
    for (const auto* list : {&t.ops[i].reads, &t.ops[i].writes})
      for (const BufferId buffer : *list) last[buffer] = i;
  for (const BufferId b : freed.ids()) {
    if (t.buffers[b].persistent || (freed[b] != 0) == (last[b].valid())) continue;
    Diagnostic problem =
        malformed(fmt::format("buffer {} ({}) of device {} is {}", b.value, describe(plan, t.buffers[b].label),
                              t.devices[0], freed[b] ? "freed but never used" : "never freed"));
    if (last[b].valid()) problem.notes.push_back({{}, fmt::format("last used by {}", describe(plan, t, last[b]))});
    return problem;
  }
  return Ok{};
}

}  // namespace

Checked verify_structure(const Plan& plan) {
  PIPER_CHECK(check_tables(plan));
  for (const PlanTemplate& t : plan.templates) {
    Table<BufferId, char> freed(t.buffers.size(), 0);
    for (const PlanBuffer& buffer : t.buffers) {
      PIPER_CHECK(check_label(plan, buffer.label, "a buffer"));
      if (buffer.bytes < 0) return malformed("a buffer has a negative size");
    }
    for (const OpId op : t.ops.ids()) PIPER_CHECK(check_op(plan, t, op, freed));
    PIPER_CHECK(check_lifetimes(plan, t, freed));
  }
  return Ok{};
}

}  // namespace piper
