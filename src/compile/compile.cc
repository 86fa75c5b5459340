#include "compile/compile.h"

#include <fmt/format.h>

#include <chrono>

#include "cost/hash_costs.h"
#include "directives/directives.h"
#include "ir/verify_dag.h"
#include "plan/lower.h"
#include "plan/memory_report.h"
#include "plan/verify_plan.h"
#include "schedule/schedule_text.h"

namespace piper {
namespace {

/// Runs passes one after the other: verifies, times and shows what each has made, so that no pass does so itself.
class Pipeline {
 public:
  Pipeline(TrainingDag dag, const CompileOptions& options) : dag(std::move(dag)), options_(options) {}

  template <class Pass>
  Checked run(std::string name, Pass pass) {
    const auto start = std::chrono::steady_clock::now();
    auto result = pass(std::move(dag));
    if (!result) return std::move(result.error());
    dag = *std::move(result);
    note(std::move(name), start, dag);
    if (options_.verify_every_pass) end_phase(dag);
    return Ok{};
  }

  /// The same for what is not a rewrite of the DAG any more.
  template <class Step>
  auto timed(std::string name, const TrainingDag& shown, Step step) {
    const auto start = std::chrono::steady_clock::now();
    auto result = step();
    note(std::move(name), start, shown);
    return result;
  }

  /// What a pass may have broken is an internal error, never the user's.
  void end_phase(const TrainingDag& made) {
    if (auto sound = verify(made); !sound)
      internal_error(fmt::format("after {}: {}", times.empty() ? "start" : times.back().pass, render(sound.error())));
  }

  TrainingDag dag;
  std::vector<PassTime> times;

 private:
  void note(std::string name, std::chrono::steady_clock::time_point start, const TrainingDag& made) {
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    times.push_back({std::move(name), seconds.count(), made.nodes.size(), made.edges.size()});
    if (options_.after_pass) options_.after_pass(times.back().pass, made);
  }

  const CompileOptions& options_;
};

Checked check_phases(const Schedule& schedule) {
  const Directive* time = nullptr;
  for (const Directive& directive : schedule.directives) {
    if (is_time_directive(directive.body)) {
      time = &directive;
    } else if (time) {
      return error(ErrorCode::E302, directive.where,
                   fmt::format("{} changes the structure of the step after {} has ordered it", verb(directive.body),
                               verb(time->body)))
          .note(time->where, "ordered here")
          .help(fmt::format("move {} up, before the first order, use or prefetch", verb(directive.body)));
    }
  }
  return Ok{};
}

void add_origins(TrainingDag& dag, const Schedule& schedule) {
  for (const Directive& directive : schedule.directives) {
    const auto* order = std::get_if<Order>(&directive.body);
    dag.origins.push_back({print(directive.body), short_place(directive.where), std::string(verb(directive.body)),
                           directive.where, directive.arguments,
                           order ? order->elements : std::vector<OrderElement>{}});
  }
}

/// The cluster has the devices that the schedule declares, and knows the model's dtype.
Checked check_cluster(const Cluster& cluster, const TrainingDag& dag, const Schedule& schedule) {
  SourceRange where;
  for (const Directive& directive : schedule.directives)
    if (std::holds_alternative<Devices>(directive.body) || std::holds_alternative<Mesh>(directive.body))
      where = directive.where;
  PIPER_CHECK(check_devices(cluster, dag.devices, where));
  return check_dtype(cluster, dag.devices, dag.model->step.weights);
}

/// Applies all directives of one kind, in file order.
template <class Kind>
Checked apply_all(Pipeline& pipeline, const Schedule& schedule) {
  for (size_t d = 0; d < schedule.directives.size(); ++d) {
    const auto* directive = std::get_if<Kind>(&schedule.directives[d].body);
    if (!directive) continue;
    PIPER_CHECK(pipeline.run(std::string(verb(schedule.directives[d].body)),
                             [&](TrainingDag dag) { return apply(std::move(dag), *directive, DirectiveId(d)); }));
  }
  return Ok{};
}

/// Orders in file order, with every `use` written out.
Result<std::vector<SourcedOrder>> collect_orders(const TrainingDag& dag, const Schedule& schedule, const Costs& costs,
                                                 Schedule& written_out) {
  std::vector<SourcedOrder> orders;
  for (size_t d = 0; d < schedule.directives.size(); ++d) {
    const Directive& directive = schedule.directives[d];
    if (const auto* use = std::get_if<Use>(&directive.body)) {
      PIPER_TRY(const std::vector<Order> expanded, expand(dag, *use, costs, DirectiveId(d)));
      for (const Order& order : expanded) {
        written_out.directives.push_back({order, directive.where, {}});
        orders.push_back({order, DirectiveId(d)});
      }
      continue;
    }
    written_out.directives.push_back(directive);
    if (const auto* order = std::get_if<Order>(&directive.body)) orders.push_back({*order, DirectiveId(d)});
  }
  return orders;
}

/// Structure: any file order gives the same DAG, because each kind of directive has its turn.
Checked build_structure(Pipeline& pipeline, const Schedule& schedule) {
  PIPER_CHECK(apply_all<Devices>(pipeline, schedule));
  PIPER_CHECK(apply_all<Mesh>(pipeline, schedule));
  PIPER_CHECK(apply_all<Split>(pipeline, schedule));  // before place: a placement may depend on the slice
  PIPER_CHECK(apply_all<Place>(pipeline, schedule));
  PIPER_CHECK(apply_all<Lose>(pipeline, schedule));
  PIPER_CHECK(apply_all<Precision>(pipeline, schedule));  // before use list, which asks what stages cost
  return pipeline.run("collect-residences", collect_residences);
}

/// Everything between the computations.
Checked add_communication(Pipeline& pipeline, const Schedule& schedule) {
  PIPER_CHECK(apply_all<Recompute>(pipeline, schedule));  // after split-backward: recomputed values go to BI and BW
  PIPER_CHECK(apply_all<Replicate>(pipeline, schedule));
  PIPER_CHECK(apply_all<Shard>(pipeline, schedule));
  PIPER_CHECK(pipeline.run("check-replication", check_replication));
  PIPER_CHECK(pipeline.run("check-float8", check_float8));
  PIPER_CHECK(pipeline.run("insert-communication", insert_communication));
  PIPER_CHECK(pipeline.run("insert-rounds", insert_rounds));  // after insert-communication: it exchanges rows
  PIPER_CHECK(pipeline.run("pace-shifts", pace_shifts));
  return pipeline.run("delay-recomputation",
                      delay_recomputation);  // after insert-communication: gradients arrive there
}

Checked complete_structure(Pipeline& pipeline, const Schedule& schedule, const std::vector<SourcedOrder>& orders) {
  std::vector<const Order*> plain;
  for (const SourcedOrder& sourced : orders) plain.push_back(&sourced.order);
  PIPER_CHECK(pipeline.run("split-backward", [&](TrainingDag dag) { return split_backward(std::move(dag), plain); }));
  PIPER_CHECK(add_communication(pipeline, schedule));
  PIPER_CHECK(pipeline.run("insert-updates", insert_updates));
  PIPER_CHECK(pipeline.run("order-states", order_states));  // before orders, which may contradict it
  pipeline.end_phase(pipeline.dag);
  return Ok{};
}

/// The DAG of the model, with the directives that will rewrite it as origins.
Pipeline start(std::shared_ptr<const ModelGraph> model, const Schedule& schedule, const CompileOptions& options) {
  TrainingDag dag = initial_dag(std::move(model));
  add_origins(dag, schedule);
  return Pipeline(std::move(dag), options);
}

}  // namespace

Result<TrainingDag> placed_dag(std::shared_ptr<const ModelGraph> model, const Schedule& schedule) {
  const CompileOptions options;
  Pipeline pipeline = start(std::move(model), schedule, options);
  PIPER_CHECK(build_structure(pipeline, schedule));
  return std::move(pipeline.dag);
}

Result<TrainingDag> communicating_dag(std::shared_ptr<const ModelGraph> model, const Schedule& schedule,
                                      const CompileOptions& options) {
  Pipeline pipeline = start(std::move(model), schedule, options);
  PIPER_CHECK(build_structure(pipeline, schedule));
  PIPER_CHECK(check_cluster(options.cluster, pipeline.dag, schedule));
  PIPER_CHECK(add_communication(pipeline, schedule));
  return std::move(pipeline.dag);
}

Result<Compiled> compile(std::shared_ptr<const ModelGraph> model, const Schedule& schedule,
                         const CompileOptions& options) {
  PIPER_CHECK(check_phases(schedule));
  if (options.costs) PIPER_CHECK(check_names(*options.costs, *model));
  Pipeline pipeline = start(std::move(model), schedule, options);
  Compiled out;

  PIPER_CHECK(build_structure(pipeline, schedule));
  PIPER_CHECK(check_cluster(options.cluster, pipeline.dag, schedule));
  const Costs costs{options.cluster, options.costs ? &*options.costs : nullptr};
  PIPER_TRY(const std::vector<SourcedOrder> orders, collect_orders(pipeline.dag, schedule, costs, out.schedule));
  PIPER_CHECK(complete_structure(pipeline, schedule, orders));

  PIPER_CHECK(apply_all<Prefetch>(pipeline, schedule));
  PIPER_CHECK(pipeline.run("order", [&](TrainingDag dag) { return apply(std::move(dag), orders); }));
  PIPER_CHECK(pipeline.run("check-acyclic", check_acyclic));

  LinearDag& linear = out.linear;
  const auto order_nodes = [&]() -> Checked {
    PIPER_TRY(const std::vector<double> seconds, node_seconds(pipeline.dag, costs));
    PIPER_TRY(linear, linearize(std::move(pipeline.dag), seconds));
    return Ok{};
  };
  PIPER_CHECK(pipeline.timed("linearize", linear.dag, order_nodes));
  if (options.plan_for == PlanFor::Evaluation) {  // after linearize: forward passes keep the order they have there
    PIPER_CHECK(pipeline.run("keep-forward", [&](TrainingDag) { return keep_forward(std::move(linear)); }));
    PIPER_CHECK(pipeline.timed("linearize", linear.dag, order_nodes));
  }
  PIPER_CHECK(pipeline.timed("place-gathers", linear.dag, [&]() -> Checked {
    PIPER_TRY(linear, place_gathers(std::move(linear)));
    return Ok{};
  }));
  pipeline.end_phase(linear.dag);

  out.plan =
      pipeline.timed("lower", linear.dag, [&] { return lower(linear, hash_costs(costs.cluster, costs.measured)); });
  PIPER_CHECK(pipeline.timed("verify-plan", linear.dag, [&] { return verify(out.plan); }));
  PIPER_CHECK(check_capacity(out.plan, options.cluster));
  out.times = std::move(pipeline.times);
  return out;
}

}  // namespace piper
