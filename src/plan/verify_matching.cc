#include <fmt/format.h>

#include <algorithm>

#include "plan/verify_plan.h"

namespace piper {
namespace {

/// The templates whose devices a group or partition has. A template that it has only in part is an error when used.
struct Membership {
  std::vector<TemplateId> templates;  // sorted
  TemplateId partly;                  // a template of which only some devices belong
  int without_plan = -1;              // a device that no template has
};

Membership membership(const Plan& plan, const DeviceList& devices, const std::vector<TemplateId>& template_of) {
  Membership out;
  Table<TemplateId, int> count(plan.templates.size(), 0);
  for (const int device : devices) {
    const auto position = static_cast<size_t>(device);
    const TemplateId t = position < template_of.size() ? template_of[position] : TemplateId();
    if (t.valid())
      ++count[t];
    else
      out.without_plan = device;
  }
  for (const TemplateId t : count.ids()) {
    if (count[t] == 0) continue;
    out.templates.push_back(t);
    if (count[t] != static_cast<int>(plan.templates[t].devices.size())) out.partly = t;
  }
  return out;
}

/// Templates that issue a communication, by role. One entry per operation, in order of templates.
struct Roles {
  std::vector<TemplateId> sends, receives, collectives;
  int first_device = -1, other_device = -1;  // the first that takes part, and one that does something else
  OpKind first_kind = OpKind::Run, other_kind = OpKind::Run;
};

bool is_half(OpKind kind) {
  return kind == OpKind::Send || kind == OpKind::Recv;
}

/// The operations of a communication, the first of each template, with the schedule lines behind them.
Diagnostic with_operations(Diagnostic problem, const Plan& plan, const Communication& comm) {
  constexpr size_t most_shown = 4;
  const CommunicationId number(static_cast<size_t>(&comm - plan.communications.data()));
  for (const PlanTemplate& t : plan.templates) {
    const auto found =
        std::find_if(t.ops.begin(), t.ops.end(), [&](const PlannedOp& op) { return op.communication == number; });
    if (found == t.ops.end()) continue;
    problem.notes.push_back({{}, describe(plan, t, OpId(static_cast<size_t>(found - t.ops.begin())))});
    if (problem.notes.size() == most_shown) break;
  }
  return problem;
}

Diagnostic unmatched(const Plan& plan, const Communication& comm, std::string message) {
  return with_operations(
      error(ErrorCode::E407, {}, fmt::format("{} ({})", message, describe(plan, comm.label)))
          .help("every device of a communication's groups or partition issues it once, all in the same way, and no "
                "other device does"),
      plan, comm);
}

/// Exactly the members issue it, each once.
Checked check_members(const Plan& plan, const Communication& comm, const Membership& members,
                      const std::vector<TemplateId>& found, std::string_view what) {
  if (members.without_plan >= 0)
    return unmatched(plan, comm,
                     fmt::format("device {} takes part in a communication but has no plan", members.without_plan));
  if (members.partly.valid())
    return with_operations(
        error(ErrorCode::E409, {},
              fmt::format("only some of the devices {} take part in {}, but they share one plan",
                          print_devices(plan.templates[members.partly].devices), describe(plan, comm.label)))
            .help("give the others a template of their own"),
        plan, comm);
  if (found == members.templates) return Ok{};
  for (const TemplateId t : found) {
    const int device = plan.templates[t].devices[0];
    if (!std::binary_search(members.templates.begin(), members.templates.end(), t))
      return unmatched(plan, comm, fmt::format("device {} is no member, but wants to {}", device, what));
    if (std::count(found.begin(), found.end(), t) > 1)
      return unmatched(plan, comm, fmt::format("device {} wants to {} twice", device, what));
  }
  for (const TemplateId t : members.templates)
    if (!std::binary_search(found.begin(), found.end(), t))
      return unmatched(plan, comm,
                       fmt::format("device {} must {}, but its plan does not", plan.templates[t].devices[0], what));
  return Ok{};
}

Table<CommunicationId, Roles> collect_roles(const Plan& plan) {
  Table<CommunicationId, Roles> roles(plan.communications.size());
  for (const TemplateId t : plan.templates.ids()) {
    for (const PlannedOp& op : plan.templates[t].ops) {
      if (!op.communication.valid()) continue;
      Roles& r = roles[op.communication];
      auto& list = op.kind == OpKind::Send ? r.sends : op.kind == OpKind::Recv ? r.receives : r.collectives;
      list.push_back(t);
      const int device = plan.templates[t].devices[0];
      if (r.first_device < 0) {
        r.first_device = device;
        r.first_kind = op.kind;
      } else if (op.kind != r.first_kind && !(is_half(op.kind) && is_half(r.first_kind))) {
        r.other_device = device;
        r.other_kind = op.kind;
      }
    }
  }
  return roles;
}

}  // namespace

Checked verify_matching(const Plan& plan) {
  const std::vector<TemplateId> template_of = template_of_device(plan);
  Table<GroupId, Membership> groups;
  Table<PartitionId, Membership> partitions;
  for (const DeviceList& group : plan.groups) groups.push_back(membership(plan, group, template_of));
  for (const PlanPartition& partition : plan.partitions)
    partitions.push_back(membership(plan, partition.members, template_of));
  const Table<CommunicationId, Roles> roles = collect_roles(plan);
  for (const CommunicationId c : roles.ids()) {
    const Communication& comm = plan.communications[c];
    const Roles& r = roles[c];
    if (r.other_device >= 0)
      return unmatched(plan, comm,
                       fmt::format("device {} wants to {} and device {} to {} in one communication", r.first_device,
                                   name(r.first_kind), r.other_device, name(r.other_kind)));
    if (r.first_device >= 0 && comm.transfer != is_half(r.first_kind))
      return unmatched(plan, comm,
                       fmt::format("device {} wants to {} in a {}", r.first_device, name(r.first_kind),
                                   comm.transfer ? "transfer" : "collective"));
    if (comm.transfer) {
      PIPER_CHECK(check_members(plan, comm, groups[comm.from], r.sends, "send"));
      PIPER_CHECK(check_members(plan, comm, groups[comm.to], r.receives, "receive"));
    } else {
      PIPER_CHECK(check_members(plan, comm, partitions[comm.over], r.collectives, "take part"));
    }
  }
  return Ok{};
}

}  // namespace piper
