#include "runtime/operations.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/invariant.h"
#include "runtime/memory_errors.h"
#include "runtime/run_options.h"
#include "runtime/stream/failure.h"

namespace piper {

const PlanTemplate& program_of(const Plan& plan, int device) {
  for (const PlanTemplate& t : plan.templates)
    if (std::find(t.devices.begin(), t.devices.end(), device) != t.devices.end()) return t;
  internal_error(fmt::format("the plan has no device {}", device));
}

std::string describe_op(const Plan& plan, int device, OpId op) {
  const std::string text = describe(plan, program_of(plan, device), op);
  return fmt::format("device {}{}", device, text.substr(text.find(':')));
}

void Operations::prepare() {
  groups_ = make_process_groups(on_.plan, on_.communicator);
  const Preparation preparation{on_, groups_, index_, frame_, side_.branch()};
  for (const OpId op : on_.program.ops.ids()) {
    executors_.push_back(make_executor(preparation, op));
    const PlannedOp& of = on_.program.ops[op];
    completes_.push_back(is_communication(of.kind) && of.label.slice < 0 && index_.buckets.contains(of.label.name));
  }
}

std::vector<FrameInput> Operations::inputs() const {
  std::map<BufferId, FrameInput> found;
  for (const auto& executor : executors_)
    for (FrameInput& input : executor->inputs()) found.try_emplace(input.buffer, input);
  std::vector<FrameInput> out;
  for (auto& [buffer, input] : found) out.push_back(std::move(input));
  return out;
}

int64_t Operations::operators() const {
  int64_t count = 0;
  for (const auto& executor : executors_) count += executor->operators();
  return count;
}

void Operations::run(OpId op) {
  if (on_.failure.happened()) return;
  recorder_.started(op);
  side_.started(op);
  attempt(op, [&] {
    before(op);
    if (frame_.settings().accumulation.last() || !completes_[op]) executors_[op]->run(frame_);
    if (on_.options.after_op) on_.options.after_op(on_.device, op, frame_);
  });
  side_.ended(op);
  recorder_.ended(op);
  frame_.ended(op);
  ended_.fetch_add(1, std::memory_order_relaxed);
}

void Operations::before(OpId op) const {
  if (on_.options.before_op) on_.options.before_op(on_.device, op);
}

bool Operations::can_be_recorded(IdRange<OpId> ops) const {
  if (on_.failure.happened()) return false;
  for (const OpId op : ops)
    if (!executors_[op]->can_be_recorded()) return false;
  return true;
}

void Operations::renew(IdRange<OpId> ops) {
  const Nanoseconds launched = now();
  OpId op = ops.first;
  attempt(op, [&] {
    for (const OpId next : ops) {
      op = next;
      recorder_.launched(op, launched);
      before(op);
      executors_[op]->renew(frame_);
    }
  });
}

void Operations::record(OpId op) {
  side_.started(op);
  executors_[op]->run(frame_);
  side_.ended(op);
  frame_.ended(op);
}

void Operations::launch(IdRange<OpId> ops, CudaGraph& graph) {
  const Nanoseconds started = now();
  for (const OpId op : ops) recorder_.started(op, started);
  attempt(ops.first, [&] { side_.launch(ops, graph); });
  const Nanoseconds ended = now();
  for (const OpId op : ops) recorder_.ended(op, ended);
  ended_.fetch_add(ops.past.value - ops.first.value, std::memory_order_relaxed);
}

void Operations::attempt(const OpId& op, const std::function<void()>& work) const {
  try {
    work();
  } catch (const JobStopped& problem) {
    throw RunError(RunProblem::Elsewhere, problem.what());
  } catch (const RunError& problem) {
    throw RunError(problem.problem, fmt::format("{}: {}", describe_op(on_.plan, on_.device, op), problem.what()));
  } catch (const std::exception& problem) {
    const OpId culprit = side_.culprit(op);
    throw RunError(
        is_out_of_memory(problem) ? RunProblem::Memory : RunProblem::Operation,
        fmt::format("{}: {}", describe_op(on_.plan, on_.device, culprit.valid() ? culprit : op), plain_text(problem)));
  }
}

void Operations::attempt_step(const std::function<void()>& step) const {
  try {
    step();
  } catch (const RunError&) {
    throw;
  } catch (const std::exception& problem) {
    const OpId culprit = side_.culprit({});
    if (!culprit.valid()) throw;
    throw RunError(RunProblem::Operation,
                   fmt::format("{}: {}", describe_op(on_.plan, on_.device, culprit), problem.what()));
  }
}

}  // namespace piper
