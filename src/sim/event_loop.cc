#include "sim/event_loop.h"

#include <algorithm>
#include <map>
#include <queue>

#include "sim/shared_links.h"

namespace piper::sim {
namespace {

/// Who waits for whom inside one template.
struct LocalOrder {
  std::vector<int> pending;                  // by op: how many it waits for
  std::vector<int> next;                     // by op: the one after it on its stream, -1
  std::vector<int> waiter_offsets, waiters;  // by op: those that wait for it
};

LocalOrder local_order(const Plan& plan, const PlanTemplate& of) {
  LocalOrder order;
  const size_t ops = of.ops.size();
  order.pending.assign(ops, 0);
  order.next.assign(ops, -1);
  order.waiter_offsets.assign(ops + 1, 0);
  std::vector<int> last(plan.streams.size(), -1);
  for (size_t i = 0; i < ops; ++i) {
    int& before = last[static_cast<size_t>(of.ops[i].stream)];
    if (before >= 0) {
      order.next[static_cast<size_t>(before)] = static_cast<int>(i);
      ++order.pending[i];
    }
    before = static_cast<int>(i);
    order.pending[i] += static_cast<int>(of.ops[i].waits.size());
    for (const int wait : of.ops[i].waits) ++order.waiter_offsets[static_cast<size_t>(wait) + 1];
  }
  for (size_t i = 0; i < ops; ++i) order.waiter_offsets[i + 1] += order.waiter_offsets[i];
  order.waiters.resize(static_cast<size_t>(order.waiter_offsets[ops]));
  std::vector<int> at = order.waiter_offsets;
  for (size_t i = 0; i < ops; ++i)
    for (const int wait : of.ops[i].waits)
      order.waiters[static_cast<size_t>(at[static_cast<size_t>(wait)]++)] = static_cast<int>(i);
  return order;
}

/// A communication in one process group: starts when the last of its operations is ready, and ends for all of them at
/// once.
struct CollectiveInstance {
  int missing = 0;
  int first = 0;  // into EventLoop::participants_
  int count = 0;
  double ready = 0;
  int cause = -1;
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
    out_.cause.assign(total(), -1);
    if (in_.shared_links) transfers_.resize(instances_.size());
    if (varies()) {
      computations_.resize(total());
      running_.resize(kinds_.size());
      flying_.assign(kinds_.size(), 0);
    }
  }

  std::optional<SimulatedTimes> run() {
    for (size_t d = 0; d < kinds_.size(); ++d)
      for (int i = 0; i < kinds_[d].ops; ++i)
        if (pending_[static_cast<size_t>(out_.first[d] + i)] == 0) arrive(static_cast<int>(d), i, 0, -1);
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
    std::vector<int> devices;
    int busy = 0;  // computations
  };
  struct DeviceKindState {
    const PlanTemplate* plan = nullptr;
    const LocalOrder* order = nullptr;
    const std::vector<double>* seconds = nullptr;  // by work
    double issue = 0;
    int ops = 0;
    Processor* processor = nullptr;  // that it shares with others
  };
  enum class What : uint8_t { EndOp, EndCollective, BeginCollective, BeginOp };
  struct Event {
    double time;
    int id;  // an operation or an instance
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
    for (const int grouping : in_.groupings.of_communication)
      count += in_.symmetry.groups[static_cast<size_t>(grouping)].count();
    return count;
  }
  bool slowed() const { return in_.cluster.slowdown > 0; }
  /// The speed of computations changes while they run.
  bool varies() const { return slowed() || !processors_.empty(); }

  void add_devices() {
    const std::vector<int> template_of = template_of_device(in_.plan);
    out_.first.push_back(0);
    for (const int device : in_.symmetry.devices.first) {
      const DeviceKind& kind = kind_of(in_.cluster, device);
      const auto t = static_cast<size_t>(template_of[static_cast<size_t>(device)]);
      const int ops = static_cast<int>(in_.plan.templates[t].ops.size());
      kinds_.push_back({&in_.plan.templates[t], &orders_[t],
                        &in_.seconds[static_cast<size_t>(&kind - in_.cluster.kinds.data())], kind.issue, ops, nullptr});
      out_.first.push_back(out_.first.back() + ops);
      pending_.insert(pending_.end(), orders_[t].pending.begin(), orders_[t].pending.end());
      const int number = static_cast<int>(kinds_.size()) - 1;
      device_of_.insert(device_of_.end(), static_cast<size_t>(ops), number);
      if (const auto shared = shared_processor(in_.cluster, device)) {
        Processor& processor = processors_[shared->first];
        processor.together = shared->together;
        processor.devices.push_back(number);
        kinds_.back().processor = &processor;
      }
    }
  }

  /// Instances of one communication follow each other, one for every kind of process group.
  void add_instances() {
    int next = 0;
    for (const int grouping : in_.groupings.of_communication) {
      first_instance_.push_back(next);
      next += static_cast<int>(in_.symmetry.groups[static_cast<size_t>(grouping)].count());
    }
    instances_.resize(static_cast<size_t>(next));
    flow_.assign(instances_.size(), nullptr);
    for (size_t c = 0; c < in_.groupings.of_communication.size(); ++c) {
      const auto grouping = static_cast<size_t>(in_.groupings.of_communication[c]);
      for (size_t k = 0; k < in_.symmetry.groups[grouping].count(); ++k)
        flow_[static_cast<size_t>(first_instance_[c]) + k] = &in_.flows.of(static_cast<int>(c), static_cast<int>(k));
    }
    instance_of_.assign(total(), -1);
    const auto each = [&](auto visit) {
      for (size_t d = 0; d < kinds_.size(); ++d)
        for (int i = 0; i < kinds_[d].ops; ++i)
          if (kinds_[d].plan->ops[static_cast<size_t>(i)].communication >= 0)
            visit(d, kinds_[d].plan->ops[static_cast<size_t>(i)], out_.first[d] + i);
    };
    each([&](size_t d, const PlannedOp& op, int global) {
      const auto c = static_cast<size_t>(op.communication);
      const auto p = static_cast<size_t>(in_.groupings.of_communication[c]);
      const Grouping& grouping = in_.groupings.all[p];
      const auto device = static_cast<size_t>(in_.symmetry.devices.first[d]);
      const int group = op.kind == OpKind::Recv ? grouping.of_receiver[device] : grouping.of_member[device];
      const int instance = first_instance_[c] + in_.symmetry.groups[p].of[static_cast<size_t>(group)];
      instance_of_[static_cast<size_t>(global)] = instance;
      ++instances_[static_cast<size_t>(instance)].count;
    });
    int begin = 0;
    for (CollectiveInstance& instance : instances_) {
      instance.first = begin;
      begin += instance.count;
    }
    participants_.resize(static_cast<size_t>(begin));
    each([&](size_t, const PlannedOp&, int global) {
      CollectiveInstance& instance = instances_[static_cast<size_t>(instance_of_[static_cast<size_t>(global)])];
      participants_[static_cast<size_t>(instance.first + instance.missing++)] = global;
    });
  }

  int device_of(int global) const { return device_of_[static_cast<size_t>(global)]; }

  /// Everything that the operation waits for on its own device has ended.
  void arrive(int device, int op, double now, int cause) {
    const DeviceKindState& kind = kinds_[static_cast<size_t>(device)];
    const int global = out_.first[static_cast<size_t>(device)] + op;
    const double issued = kind.issue * (op + 1);
    const double start = std::max(now, issued);
    if (issued >= now && issued > 0) cause = -1;
    if (const int instance = instance_of_[static_cast<size_t>(global)]; instance >= 0) {
      join(instance, start, cause);
      return;
    }
    out_.start[static_cast<size_t>(global)] = start;
    out_.cause[static_cast<size_t>(global)] = cause;
    const double seconds = (*kind.seconds)[static_cast<size_t>(kind.plan->ops[static_cast<size_t>(op)].work)];
    if (!varies()) {
      events_.push({start + seconds, global, 0, What::EndOp});
      return;
    }
    computations_[static_cast<size_t>(global)].left = seconds;
    events_.push({start, global, 0, What::BeginOp});
  }

  void join(int id, double time, int cause) {
    CollectiveInstance& instance = instances_[static_cast<size_t>(id)];
    if (instance.missing == instance.count || time > instance.ready) {
      instance.ready = time;
      instance.cause = cause;
    }
    if (--instance.missing > 0) return;
    for (int k = 0; k < instance.count; ++k) {
      const auto op = static_cast<size_t>(participants_[static_cast<size_t>(instance.first + k)]);
      out_.start[op] = instance.ready;
      out_.cause[op] = instance.cause;
    }
    if (in_.shared_links || slowed())
      events_.push({instance.ready, id, 0, What::BeginCollective});
    else
      events_.push({instance.ready + flow_[static_cast<size_t>(id)]->seconds, id, 0, What::EndCollective});
  }

  void handle(const Event& event) {
    switch (event.what) {
      case What::EndOp:
        if (varies()) {
          if (computations_[static_cast<size_t>(event.id)].version != event.version) return;
          auto& running = running_[static_cast<size_t>(device_of(event.id))];
          running.erase(std::find(running.begin(), running.end(), event.id));
          share(device_of(event.id), event.time, -1);
        }
        finish(event.id, event.time);
        return;
      case What::BeginOp:
        begin_computation(event.id, event.time);
        return;
      case What::BeginCollective:
        begin_instance(event.id, event.time);
        return;
      case What::EndCollective:
        if (in_.shared_links && transfers_[static_cast<size_t>(event.id)].version != event.version) return;
        end_instance(event.id, event.time);
        return;
    }
  }

  void begin_instance(int id, double now) {
    if (slowed()) count_flying(id, now, +1);
    const Flow& flow = *flow_[static_cast<size_t>(id)];
    if (!in_.shared_links) {
      events_.push({now + flow.seconds, id, 0, What::EndCollective});
      return;
    }
    Activity& activity = transfers_[static_cast<size_t>(id)];
    activity.left = flow.seconds;
    activity.since = now;
    links_.add(id, flow);
    activity.speed = links_.speed(id);
    announce(activity, id, What::EndCollective);
    adjust_changed(now, id);
  }

  void end_instance(int id, double now) {
    if (in_.shared_links) {
      links_.remove(id);
      adjust_changed(now, id);
    }
    if (slowed()) count_flying(id, now, -1);
    const CollectiveInstance& instance = instances_[static_cast<size_t>(id)];
    for (int k = 0; k < instance.count; ++k) finish(participants_[static_cast<size_t>(instance.first + k)], now);
  }

  /// Flows whose speed changed because another one came or went.
  void adjust_changed(double now, int except) {
    for (const int id : links_.changed())
      if (id != except) adjust(transfers_[static_cast<size_t>(id)], links_.speed(id), now, id, What::EndCollective);
  }

  void adjust(Activity& activity, double speed, double now, int id, What what) {
    activity.left = std::max(0.0, activity.left - (now - activity.since) * activity.speed);
    activity.since = now;
    activity.speed = speed;
    announce(activity, id, what);
  }
  void announce(Activity& activity, int id, What what) {
    events_.push({activity.since + activity.left / activity.speed, id, ++activity.version, what});
  }

  double computing_speed(int device) const {
    const Processor* processor = kinds_[static_cast<size_t>(device)].processor;
    const double share = processor && processor->busy > 1 ? processor->together / processor->busy : 1;
    return flying_[static_cast<size_t>(device)] > 0 ? share * (1 - in_.cluster.slowdown) : share;
  }
  /// A computation comes to the processor of its device, or leaves it: the others there change their speed.
  void share(int device, double now, int change) {
    Processor* const processor = kinds_[static_cast<size_t>(device)].processor;
    if (!processor) return;
    processor->busy += change;
    for (const int other : processor->devices) adjust_computations(other, now);
  }
  void adjust_computations(int device, double now) {
    for (const int op : running_[static_cast<size_t>(device)])
      adjust(computations_[static_cast<size_t>(op)], computing_speed(device), now, op, What::EndOp);
  }
  void begin_computation(int global, double now) {
    const int device = device_of(global);
    share(device, now, +1);
    Activity& activity = computations_[static_cast<size_t>(global)];
    activity.since = now;
    activity.speed = computing_speed(device);
    running_[static_cast<size_t>(device)].push_back(global);
    announce(activity, global, What::EndOp);
  }
  /// Computations beside communication are slower.
  void count_flying(int id, double now, int change) {
    const CollectiveInstance& instance = instances_[static_cast<size_t>(id)];
    for (int k = 0; k < instance.count; ++k) {
      const int device = device_of(participants_[static_cast<size_t>(instance.first + k)]);
      const double before = computing_speed(device);
      flying_[static_cast<size_t>(device)] += change;
      if (computing_speed(device) != before) adjust_computations(device, now);
    }
  }

  void finish(int global, double now) {
    const int device = device_of(global);
    const int first = out_.first[static_cast<size_t>(device)], op = global - first;
    out_.end[static_cast<size_t>(global)] = now;
    ++ended_;
    const LocalOrder& order = *kinds_[static_cast<size_t>(device)].order;
    const auto release = [&](int successor) {
      if (--pending_[static_cast<size_t>(first + successor)] == 0) arrive(device, successor, now, global);
    };
    if (const int next = order.next[static_cast<size_t>(op)]; next >= 0) release(next);
    for (int w = order.waiter_offsets[static_cast<size_t>(op)]; w < order.waiter_offsets[static_cast<size_t>(op) + 1];
         ++w)
      release(order.waiters[static_cast<size_t>(w)]);
  }

  const EventInput& in_;
  std::vector<LocalOrder> orders_;  // by template
  std::vector<DeviceKindState> kinds_;
  std::map<int, Processor> processors_;  // by the first of its devices
  std::vector<int> pending_;
  std::vector<int> device_of_;       // kind of device, by operation
  std::vector<int> first_instance_;  // by communication
  std::vector<CollectiveInstance> instances_;
  std::vector<const Flow*> flow_;  // by instance
  std::vector<int> instance_of_;   // by operation, -1
  std::vector<int> participants_;
  SharedLinks links_;
  std::vector<Activity> transfers_;        // by instance
  std::vector<Activity> computations_;     // by operation
  std::vector<std::vector<int>> running_;  // computations, by kind of device
  std::vector<int> flying_;                // communications, by kind of device
  std::priority_queue<Event> events_;
  SimulatedTimes out_;
  size_t ended_ = 0;
};

}  // namespace

std::optional<SimulatedTimes> run_events(const EventInput& input) {
  return EventLoop(input).run();
}

}  // namespace piper::sim
