#include "runtime/device_streams.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/prompt_thread.h"
#include "runtime/memory_errors.h"
#include "runtime/run_options.h"
#include "runtime/stream/failure.h"
#include "runtime/stream/thread_stream.h"
#include "runtime/stream/timed_stream.h"

namespace piper {
namespace {

void report(const DeviceContext& on, const std::exception_ptr& what) {
  try {
    std::rethrow_exception(what);
  } catch (const RunError& problem) {
    on.failure.report(problem);
  } catch (const std::exception& problem) {
    on.failure.report({is_out_of_memory(problem) ? RunProblem::Memory : RunProblem::Operation,
                       fmt::format("device {}: {}", on.device, plain_text(problem))});
  }
}

}  // namespace

DeviceStreams::DeviceStreams(const DeviceContext& on, MemoryCounter& memory, bool timed)
    : timed_(timed), events_(on.program.ops.size()), ends_(on.plan.streams.size()), streams_(on.plan.streams.size()) {
  const RunOptions& options = on.options;
  if (options.issue == Issue::Serial)
    serial_.active = [] { return true; };
  else if (options.turns)
    serial_.active = [turns = options.turns] { return turns->taken.load(); };
  if (options.turns) serial_.alone = &options.turns->one;
  on.failure.stop_with([this, &on](const std::string& reason) {
    for (Event& event : events_) event.release();
    for (Event& end : ends_) end.release();
    issued_.release();
    on.communicator.abort(reason);
  });
  const auto failed = [&on](const std::exception_ptr& what) { report(on, what); };
  const auto on_thread = [&on, &memory](const std::function<void()>& run) {
    const CountMemory counting(memory);
    const at::NoGradGuard no_grad;
    at::init_num_threads();
    on.processor.enter_thread();
    run();
  };
  const auto promptly = [on_thread](const std::function<void()>& run) {
    make_thread_prompt();
    on_thread(run);
  };
  Table<PlanStreamId, char> computes(streams_.size(), 0);
  for (const PlannedOp& op : on.program.ops)
    if (!is_communication(op.kind)) computes[op.stream] = 1;
  for (const PlannedOp& op : on.program.ops)
    if (auto& stream = streams_[op.stream]; !stream)
      stream = computes[op.stream] ? on.processor.make_stream({on_thread, failed})
                                   : on.processor.make_stream({promptly, failed});
  issuing_ = std::make_unique<ThreadStream>(promptly, failed);
}

DeviceStreams::~DeviceStreams() {
  issuing_.reset();
  streams_.clear();
}

Stream& DeviceStreams::of_segment(const PlannedOp& first) {
  Stream& stream = *streams_[first.stream];
  if (!timed_ || first.kind != OpKind::Run) return stream;
  return *decorators_.emplace_back(std::make_unique<TimedStream>(stream, launching_));
}

Stream& DeviceStreams::of_operation(const PlannedOp& op) {
  Stream& stream = of_segment(op);
  if (!is_serial()) return stream;
  return *decorators_.emplace_back(std::make_unique<SerialStream>(stream, serial_, !is_communication(op.kind)));
}

void DeviceStreams::start(std::function<void()> step) {
  ++step_;
  issuing_->launch(std::move(step));
  issuing_->record(issued_, step_);
  issuing_->flush();
}

void DeviceStreams::end() {
  launch_time_.store(launching_, std::memory_order_relaxed);
  for (const PlanStreamId s : streams_.ids())
    if (streams_[s]) {
      streams_[s]->record(ends_[s], step_);
      streams_[s]->flush();
    }
}

void DeviceStreams::wait() const {
  issued_.wait(step_);
  for (const PlanStreamId s : streams_.ids())
    if (streams_[s]) ends_[s].wait(step_);
}

bool DeviceStreams::idle() const {
  return issuing_->idle() &&
         std::all_of(streams_.begin(), streams_.end(), [](const auto& stream) { return !stream || stream->idle(); });
}

}  // namespace piper
