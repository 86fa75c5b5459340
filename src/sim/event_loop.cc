#include "sim/event_loop.h"

#include <algorithm>
#include <map>
#include <queue>
#include <span>

#include "sim/shared_links.h"

namespace piper::sim {
namespace {

/// Who waits for whom inside one template.
struct LocalOrder {
  Table<OpId, int> pending;  // how many it waits for
  Table<OpId, OpId> next;    // the one after it on its stream
  std::vector<size_t> waiter_offsets;
  std::vector<OpId> waiters;

  /// Those that wait for it.
  std::span<const OpId> waiters_of(OpId op) const {
    return {waiters.data() + waiter_offsets[op.index()], waiters.data() + waiter_offsets[op.index() + 1]};
  }
};

LocalOrder local_order(const Plan& plan, const PlanTemplate& of) {
  LocalOrder order;
  const size_t ops = of.ops.size();
  order.pending.assign(ops, 0);
  order.next.resize(ops);
  order.waiter_offsets.assign(ops + 1, 0);
  Table<PlanStreamId, OpId> last(plan.streams.size());
  for (const OpId op : of.ops.ids()) {
    OpId& before = last[of.ops[op].stream];
    if (before.valid()) {
      order.next[before] = op;
      ++order.pending[op];
    }
    before = op;
    order.pending[op] += static_cast<int>(of.ops[op].waits.size());
    for (const OpId wait : of.ops[op].waits) ++order.waiter_offsets[wait.index() + 1];
  }
  for (size_t i = 0; i < ops; ++i) order.waiter_offsets[i + 1] += order.waiter_offsets[i];
  order.waiters.resize(order.waiter_offsets[ops]);
  std::vector<size_t> at = order.waiter_offsets;
  for (const OpId op : of.ops.ids())
    for (const OpId wait : of.ops[op].waits) order.waiters[at[wait.index()]++] = op;
  return order;
}

/// A communication in one process group: starts when the last of its operations is ready, and ends for all of them at
/// once.
struct CollectiveInstance {
  size_t missing = 0;
  size_t first = 0;  // into EventLoop::participants_
  size_t count = 0;
  double ready = 0;
  SimulatedOpId cause;
};

/// An activity whose speed may change while it runs.
struct Activity {
  double left = 0;  // seconds at full speed
  double since = 0;
  double speed = 1;
  uint32_t version = 0;  // of the event that announces its end
};

class EventLoop {
 public:
  explicit EventLoop(const EventInput& input)
      : in_(input), links_(input.flows.ports.size(), input.shared_links ? instance_count() : 0) {
    for (const PlanTemplate& t : in_.plan.templates) orders_.push_back(local_order(in_.plan, t));
    add_devices();
    add_instances();
    out_.start.assign(total(), 0);
    out_.end.assign(total(), -1);
    out_.cause.resize(total());
    if (in_.shared_links) transfers_.resize(instances_.size());
    if (varies()) {
      computations_.resize(total());
      running_.resize(lanes_.size());
      flying_.assign(lanes_.size(), 0);
    }
  }

  std::optional<SimulatedTimes> run() {
    for (const LaneId lane : lanes_.ids())
      for (const OpId op : lanes_[lane].plan->ops.ids())
        if (pending_[out_.at(lane, op)] == 0) arrive(lane, op, 0, {});
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      handle(event);
    }
    if (ended_ != total()) return std::nullopt;
    return std::move(out_);
  }

 private:
  /// Devices share its time.
  struct Processor {
    double together = 1;
    std::vector<LaneId> lanes;
    int busy = 0;  // computations
  };
  struct LaneState {
    const PlanTemplate* plan = nullptr;
    const LocalOrder* order = nullptr;
    const Table<WorkId, double>* seconds = nullptr;
    double issue = 0;
    Processor* processor = nullptr;  // that it shares with others
  };
  enum class What : uint8_t { EndOp, EndCollective, BeginCollective, BeginOp };
  struct Event {
    double time;
    int32_t id;  // an operation or an instance
    uint32_t version;
    What what;
    friend bool operator<(const Event& a, const Event& b) {  // the earliest on top
      if (a.time != b.time) return a.time > b.time;
      if (a.what != b.what) return a.what > b.what;
      return a.id > b.id;
    }
  };

  size_t total() const { return static_cast<size_t>(out_.first.back()); }
  size_t instance_count() const {
    size_t count = 0;
    for (const GroupingId grouping : in_.groupings.of_communication) count += in_.symmetry.groups[grouping].count();
    return count;
  }
  bool slowed() const { return in_.cluster.slowdown > 0; }
  /// The speed of computations changes while they run.
  bool varies() const { return slowed() || !processors_.empty(); }

  void add_devices() {
    const std::vector<TemplateId> template_of = template_of_device(in_.plan);
    out_.first.push_back(0);
    for (const int device : in_.symmetry.devices.first) {
      const DeviceKind& kind = kind_of(in_.cluster, device);
      const TemplateId t = template_of[static_cast<size_t>(device)];
      const size_t ops = in_.plan.templates[t].ops.size();
      const auto& seconds = in_.seconds[static_cast<size_t>(&kind - in_.cluster.kinds.data())];
      const LaneId lane = lanes_.add({&in_.plan.templates[t], &orders_[t], &seconds, kind.issue, nullptr});
      out_.first.push_back(out_.first.back() + static_cast<int>(ops));
      pending_.insert(pending_.end(), orders_[t].pending.begin(), orders_[t].pending.end());
      lane_of_.insert(lane_of_.end(), ops, lane);
      if (const auto shared = shared_processor(in_.cluster, device)) {
        Processor& processor = processors_[shared->first];
        processor.together = shared->together;
        processor.lanes.push_back(lane);
        lanes_[lane].processor = &processor;
      }
    }
  }

  /// Instances of one communication follow each other, one for every kind of process group.
  void add_instances() {
    for (const CommunicationId c : in_.groupings.of_communication.ids()) {
      first_instance_.push_back(InstanceId(flow_.size()));
      for (const GroupKindId kind : in_.symmetry.groups[in_.groupings.of_communication[c]].first.ids())
        flow_.push_back(&in_.flows.of(c, kind));
    }
    instances_.resize(flow_.size());
    instance_of_.resize(total());
    const auto each = [&](auto visit) {
      for (const LaneId lane : lanes_.ids())
        for (const OpId op : lanes_[lane].plan->ops.ids())
          if (lanes_[lane].plan->ops[op].communication.valid())
            visit(lane, lanes_[lane].plan->ops[op], out_.at(lane, op));
    };
    each([&](LaneId lane, const PlannedOp& op, SimulatedOpId global) {
      const GroupingId p = in_.groupings.of_communication[op.communication];
      const Grouping& grouping = in_.groupings.all[p];
      const auto device = static_cast<size_t>(in_.symmetry.devices.first[lane]);
      const ProcessGroupId group = op.kind == OpKind::Recv ? grouping.of_receiver[device] : grouping.of_member[device];
      const GroupKindId kind = in_.symmetry.groups[p].of[group.index()];
      const InstanceId instance(first_instance_[op.communication].value + kind.value);
      instance_of_[global] = instance;
      ++instances_[instance].count;
    });
    size_t begin = 0;
    for (CollectiveInstance& instance : instances_) {
      instance.first = begin;
      begin += instance.count;
    }
    participants_.resize(begin);
    each([&](LaneId, const PlannedOp&, SimulatedOpId global) {
      CollectiveInstance& instance = instances_[instance_of_[global]];
      participants_[instance.first + instance.missing++] = global;
    });
  }

  std::span<const SimulatedOpId> participants(InstanceId id) const {
    return {participants_.data() + instances_[id].first, instances_[id].count};
  }

  /// Everything that the operation waits for on its own device has ended.
  void arrive(LaneId lane, OpId op, double now, SimulatedOpId cause) {
    const LaneState& state = lanes_[lane];
    const SimulatedOpId global = out_.at(lane, op);
    const double issued = state.issue * (op.value + 1);
    const double start = std::max(now, issued);
    if (issued >= now && issued > 0) cause = {};
    if (const InstanceId instance = instance_of_[global]; instance.valid()) {
      join(instance, start, cause);
      return;
    }
    out_.start[global] = start;
    out_.cause[global] = cause;
    const double seconds = (*state.seconds)[state.plan->ops[op].work];
    if (!varies()) {
      events_.push({start + seconds, global.value, 0, What::EndOp});
      return;
    }
    computations_[global].left = seconds;
    events_.push({start, global.value, 0, What::BeginOp});
  }

  void join(InstanceId id, double time, SimulatedOpId cause) {
    CollectiveInstance& instance = instances_[id];
    if (instance.missing == instance.count || time > instance.ready) {
      instance.ready = time;
      instance.cause = cause;
    }
    if (--instance.missing > 0) return;
    for (const SimulatedOpId op : participants(id)) {
      out_.start[op] = instance.ready;
      out_.cause[op] = instance.cause;
    }
    if (in_.shared_links || slowed())
      events_.push({instance.ready, id.value, 0, What::BeginCollective});
    else
      events_.push({instance.ready + flow_[id]->seconds, id.value, 0, What::EndCollective});
  }

  void handle(const Event& event) {
    switch (event.what) {
      case What::EndOp:
        if (varies() && !end_computation(SimulatedOpId(event.id), event)) return;
        finish(SimulatedOpId(event.id), event.time);
        return;
      case What::BeginOp:
        begin_computation(SimulatedOpId(event.id), event.time);
        return;
      case What::BeginCollective:
        begin_instance(InstanceId(event.id), event.time);
        return;
      case What::EndCollective:
        if (in_.shared_links && transfers_[InstanceId(event.id)].version != event.version) return;
        end_instance(InstanceId(event.id), event.time);
        return;
    }
  }

  void begin_instance(InstanceId id, double now) {
    if (slowed()) count_flying(id, now, +1);
    const Flow& flow = *flow_[id];
    if (!in_.shared_links) {
      events_.push({now + flow.seconds, id.value, 0, What::EndCollective});
      return;
    }
    Activity& activity = transfers_[id];
    activity.left = flow.seconds;
    activity.since = now;
    links_.add(id, flow);
    activity.speed = links_.speed(id);
    announce(activity, id.value, What::EndCollective);
    adjust_changed(now, id);
  }

  void end_instance(InstanceId id, double now) {
    if (in_.shared_links) {
      links_.remove(id);
      adjust_changed(now, id);
    }
    if (slowed()) count_flying(id, now, -1);
    for (const SimulatedOpId op : participants(id)) finish(op, now);
  }

  /// Flows whose speed changed because another one came or went.
  void adjust_changed(double now, InstanceId except) {
    for (const InstanceId id : links_.changed())
      if (id != except) adjust(transfers_[id], links_.speed(id), now, id.value, What::EndCollective);
  }

  void adjust(Activity& activity, double speed, double now, int32_t id, What what) {
    activity.left = std::max(0.0, activity.left - (now - activity.since) * activity.speed);
    activity.since = now;
    activity.speed = speed;
    announce(activity, id, what);
  }
  void announce(Activity& activity, int32_t id, What what) {
    events_.push({activity.since + activity.left / activity.speed, id, ++activity.version, what});
  }

  double computing_speed(LaneId lane) const {
    const Processor* processor = lanes_[lane].processor;
    const double share = processor && processor->busy > 1 ? std::min(1.0, processor->together / processor->busy) : 1;
    return flying_[lane] > 0 ? share * (1 - in_.cluster.slowdown) : share;
  }
  /// A computation comes to the processor of its lane, or leaves it: the others there change their speed.
  void share(LaneId lane, double now, int change) {
    Processor* const processor = lanes_[lane].processor;
    if (!processor) return;
    processor->busy += change;
    for (const LaneId other : processor->lanes) adjust_computations(other, now);
  }
  void adjust_computations(LaneId lane, double now) {
    for (const SimulatedOpId op : running_[lane])
      adjust(computations_[op], computing_speed(lane), now, op.value, What::EndOp);
  }
  void begin_computation(SimulatedOpId global, double now) {
    const LaneId lane = lane_of_[global];
    share(lane, now, +1);
    Activity& activity = computations_[global];
    activity.since = now;
    activity.speed = computing_speed(lane);
    running_[lane].push_back(global);
    announce(activity, global.value, What::EndOp);
  }
  /// False: its speed has changed since the event was announced, so it ends at another time.
  bool end_computation(SimulatedOpId global, const Event& event) {
    if (computations_[global].version != event.version) return false;
    auto& running = running_[lane_of_[global]];
    running.erase(std::find(running.begin(), running.end(), global));
    share(lane_of_[global], event.time, -1);
    return true;
  }
  /// Computations beside communication are slower.
  void count_flying(InstanceId id, double now, int change) {
    for (const SimulatedOpId op : participants(id)) {
      const LaneId lane = lane_of_[op];
      const double before = computing_speed(lane);
      flying_[lane] += change;
      if (computing_speed(lane) != before) adjust_computations(lane, now);
    }
  }

  void finish(SimulatedOpId global, double now) {
    const LaneId lane = lane_of_[global];
    const OpId op(global.value - out_.first[lane]);
    out_.end[global] = now;
    ++ended_;
    const LocalOrder& order = *lanes_[lane].order;
    const auto release = [&](OpId successor) {
      if (--pending_[out_.at(lane, successor)] == 0) arrive(lane, successor, now, global);
    };
    if (const OpId next = order.next[op]; next.valid()) release(next);
    for (const OpId waiter : order.waiters_of(op)) release(waiter);
  }

  const EventInput& in_;
  Table<TemplateId, LocalOrder> orders_;
  Table<LaneId, LaneState> lanes_;
  std::map<int, Processor> processors_;  // by the first of its devices
  Table<SimulatedOpId, int> pending_;
  Table<SimulatedOpId, LaneId> lane_of_;
  Table<CommunicationId, InstanceId> first_instance_;
  Table<InstanceId, CollectiveInstance> instances_;
  Table<InstanceId, const Flow*> flow_;
  Table<SimulatedOpId, InstanceId> instance_of_;  // none for computations
  std::vector<SimulatedOpId> participants_;
  SharedLinks links_;
  Table<InstanceId, Activity> transfers_;
  Table<SimulatedOpId, Activity> computations_;
  Table<LaneId, std::vector<SimulatedOpId>> running_;  // computations
  Table<LaneId, int> flying_;                          // communications
  std::priority_queue<Event> events_;
  SimulatedTimes out_;
  size_t ended_ = 0;
};

}  // namespace

LaneId SimulatedTimes::lane_of(SimulatedOpId id) const {
  return LaneId(static_cast<size_t>(std::upper_bound(first.begin(), first.end(), id.value) - first.begin()) - 1);
}

std::optional<SimulatedTimes> run_events(const EventInput& input) {
  return EventLoop(input).run();
}

}  // namespace piper::sim
