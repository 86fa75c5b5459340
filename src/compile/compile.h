// From a model and a schedule to proved plans: one flat list of passes.
#pragma once

#include <functional>
#include <memory>

#include "base/result.h"
#include "cost/cluster.h"
#include "ir/training_dag.h"
#include "passes/passes.h"
#include "plan/plan.h"
#include "schedule/schedule.h"

namespace piper {

#ifdef PIPER_VERIFY_EVERY_PASS
constexpr bool verify_every_pass_by_default = true;
#else
constexpr bool verify_every_pass_by_default = false;
#endif

/// What devices do with a batch.
enum class PlanFor {
  Training,   // a step: forward, backward, updates
  Evaluation  // the same schedule without backward and updates: only losses and metrics come out
};

struct CompileOptions {
  PlanFor plan_for = PlanFor::Training;
  /// Costs behind the order of nodes, and the memory of each kind of device, if it is known.
  Cluster cluster;
  /// Measured costs of all computations, instead of formulas.
  std::optional<CostTable> costs;
  /// Called after every pass with its name; for --dump-after.
  std::function<void(std::string_view, const TrainingDag&)> after_pass;
  /// Check the DAG after every pass instead of at the end of each phase; debug builds do.
  bool verify_every_pass = verify_every_pass_by_default;
};

struct PassTime {
  std::string pass;
  double seconds = 0;
  size_t nodes = 0, edges = 0;
};

struct Compiled {
  Schedule schedule;  // with `use` written out as orders
  LinearDag linear;
  Plan plan;
  std::vector<PassTime> times;
};

Result<Compiled> compile(std::shared_ptr<const ModelGraph> model, const Schedule& schedule,
                         const CompileOptions& options = {});

/// Only the computations of all microbatches, on the groups of devices where the schedule places them.
Result<TrainingDag> placed_dag(std::shared_ptr<const ModelGraph> model, const Schedule& schedule);

/// Only the computations and the communication between them, as the structure directives want it: no updates, no
/// orders, no plan. For who wants to know what a microbatch costs before there is a whole schedule.
Result<TrainingDag> communicating_dag(std::shared_ptr<const ModelGraph> model, const Schedule& schedule,
                                      const CompileOptions& options = {});

}  // namespace piper
