#include "runtime/device_run.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/invariant.h"
#include "base/prompt_thread.h"
#include "runtime/memory_errors.h"
#include "runtime/stream/thread_stream.h"
#include "runtime/stream/timed_stream.h"

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

DeviceRun::DeviceRun(const Plan& plan, int device, const StepConfig& step, Computations& computations,
                     Communicator& communicator, Failure& failure, const RunOptions& options)
    : plan_(plan),
      program_(program_of(plan, device)),
      device_(device),
      index_(plan, program_, device),
      step_config_(step),
      computations_(computations),
      communicator_(communicator),
      failure_(failure),
      options_(options),
      processor_(options.processor ? *options.processor : host_processor()),
      memory_(processor_.place().type()),
      frame_(program_, processor_.place()),
      recorder_(program_.ops.size(), options.recorded_steps),
      order_(order_memory(program_, processor_.graphs() == Graphs::Step)),
      awaited_(awaited_operations(program_, order_)),
      side_(processor_.make_side(program_.ops.size())),
      events_(program_.ops.size()),
      ends_(plan.streams.size() + 1),
      streams_(plan.streams.size()) {
  frame_.poison_freed = options.poison_freed;
  failure.stop_with([this](const std::string& reason) {
    for (Event& event : events_) event.release();
    for (Event& end : ends_) end.release();
    communicator_.abort(reason);
  });
  const auto on_thread = [this](const std::function<void()>& run) {
    const CountMemory counting(memory_);
    const at::NoGradGuard no_grad;
    at::init_num_threads();
    processor_.enter_thread();
    run();
  };
  const auto failed = [this](const std::exception_ptr& what) {
    try {
      std::rethrow_exception(what);
    } catch (const RunError& problem) {
      failure_.report(problem);
    } catch (const std::exception& problem) {
      failure_.report({is_out_of_memory(problem) ? RunProblem::Memory : RunProblem::Operation,
                       fmt::format("device {}: {}", device_, plain_text(problem))});
    }
  };
  const auto promptly = [on_thread](const std::function<void()>& run) {
    make_thread_prompt();
    on_thread(run);
  };
  Table<PlanStreamId, char> computes(plan.streams.size(), 0);
  for (const PlannedOp& op : program_.ops)
    if (!is_communication(op.kind)) computes[op.stream] = 1;
  for (const PlannedOp& op : program_.ops)
    if (auto& stream = streams_[op.stream]; !stream)
      stream = computes[op.stream] ? processor_.make_stream({on_thread, failed})
                                   : processor_.make_stream({promptly, failed});
  host_ = std::make_unique<ThreadStream>(promptly, failed);
}

DeviceRun::~DeviceRun() {
  host_.reset();
  streams_.clear();
}

void DeviceRun::prepare() {
  const CountMemory counting(memory_);
  for (const BufferId b : program_.buffers.ids()) {
    const PlanBuffer& buffer = program_.buffers[b];
    if (!buffer.persistent) continue;
    const auto found = index_.buckets.find(buffer.label.name);
    if (found == index_.buckets.end()) continue;
    const PlanBucket& bucket = *found->second.bucket;
    if (buffer.category == Category::Weights && options_.weights) frame_[b] = options_.weights(device_, bucket);
    if (frame_[b].defined()) continue;
    if (buffer.category != Category::Weights && !index_.used[b]) continue;  // of another plan of the same devices
    const DType dtype = buffer.category == Category::Weights     ? bucket.weights
                        : buffer.category == Category::Gradients ? bucket.gradients
                                                                 : DType::Int8;  // state is of several types
    frame_[b] = make_flat(dtype, buffer.bytes / bytes_of(dtype), frame_.place()).fill_(0);
  }
  groups_ = make_process_groups(plan_, communicator_);
  const Preparation preparation{plan_,
                                program_,
                                step_config_,
                                device_,
                                computations_,
                                communicator_,
                                processor_,
                                groups_,
                                index_,
                                frame_,
                                side_ ? side_->branch() : nullptr};
  for (const OpId op : program_.ops.ids()) {
    executors_.push_back(make_executor(preparation, op));
    const PlannedOp& of = program_.ops[op];
    completes_.push_back(is_communication(of.kind) && of.label.slice < 0 && index_.buckets.contains(of.label.name));
  }
  if (options_.issue == Issue::Serial)
    serial_.active = [] { return true; };
  else if (options_.turns)
    serial_.active = [this] { return options_.turns->taken.load(); };
  if (options_.turns) serial_.alone = &options_.turns->one;
  if (processor_.graphs() == Graphs::Step) prepare_segments();
  find_units();
}

void DeviceRun::prepare_segments() {
  std::map<BufferId, FrameInput> inputs;
  for (const auto& executor : executors_)
    for (FrameInput& input : executor->inputs()) inputs.try_emplace(input.buffer, input);
  std::vector<FrameInput> all;
  for (auto& [buffer, input] : inputs) all.push_back(std::move(input));
  frame_.keep_inputs(std::move(all));
  const auto before_op = [this](OpId op) {
    if (options_.before_op) options_.before_op(device_, op);
  };
  segment_device_.emplace(SegmentDevice{program_, order_, executors_, frame_, *side_, recorder_, before_op,
                                        [this](const OpId& op, const auto& work) { attempt(op, work); }});
  segments_ = find_segments(*segment_device_, processor_);
}

void DeviceRun::start(const StepSettings& settings) {
  ++step_;
  host_->launch([this, &settings] {
    recorder_.begin(settings.step);
    frame_.begin(settings);
    processor_.finish();
    if (!side_) return issue_all();
    try {
      side_->begin(settings.step);
      issue_all();
      if (!failure_.happened()) side_->end(recorder_);
    } catch (const RunError&) {
      throw;
    } catch (const std::exception& problem) {
      const OpId culprit(side_->culprit(-1));
      if (!culprit.valid()) throw;
      throw RunError(RunProblem::Operation,
                     fmt::format("{}: {}", describe_op(plan_, device_, culprit), problem.what()));
    }
  });
  host_->record(ends_.back(), step_);
  host_->flush();
}

void DeviceRun::issue_all() {
  launch_time_ = 0;
  issue(units_);
  issuing_.store(launch_time_, std::memory_order_relaxed);
  for (const PlanStreamId s : streams_.ids())
    if (streams_[s]) {
      streams_[s]->record(ends_[s], step_);
      streams_[s]->flush();
    }
}

void DeviceRun::issue(std::vector<LaunchUnit>& units) {
  for (LaunchUnit& unit : units) {
    for (const Launch& launch : unit.launches) {
      for (const OpId op : launch.waits) launch.stream->wait(events_[op], step_);
      if (!unit.segment) recorder_.launched(launch.op.value);
      launch.stream->launch(launch.work);
    }
    if (unit.segment && !unit.segment->launched()) {
      issue(unit.singly);
      continue;
    }
    for (const Launch& launch : unit.launches)
      for (const OpId op : launch.records) launch.stream->record(events_[op], step_);
    release(unit);
  }
}

void DeviceRun::release(const LaunchUnit& unit) {
  if (!processor_.memory_belongs_to_streams())
    for (const Launch& launch : unit.launches) frame_.issued(launch.op);
  for (const BufferRelease& release : unit.releases) {
    Stream& stream = *streams_[release.stream];
    for (const OpId user : release.awaited) stream.wait(events_[user], step_);
    stream.launch([&] {
      for (const BufferId buffer : release.buffers) frame_.release(buffer);
    });
  }
}

// ---- units

void DeviceRun::find_units() {
  auto segment = segments_.begin();
  for (OpId next{0}; program_.ops.contains(next);) {
    if (segment != segments_.end() && segment->ops().first == next) {
      units_.push_back(unit_of(*segment));
      next = segment++->ops().past;
      continue;
    }
    units_.push_back(unit_of(next));
    next = OpId(next.index() + units_.back().launches.size());
  }
}

LaunchUnit DeviceRun::unit_of(OpId op) {
  LaunchUnit out;
  const OpId last(sends_to_itself(program_, op) ? op.value + 1 : op.value);
  for (const OpId i : IdRange<OpId>{op, OpId(last.value + 1)}) {
    Launch& launch = out.launches.emplace_back(launch_of(i));
    launch.stream = &stream_of(program_.ops[i], serial_.active != nullptr);
    launch.work = [this, i] { execute(i); };
    if (awaited_[i] || serial_.active) launch.records = {i};
  }
  if (processor_.memory_belongs_to_streams()) out.releases = order_.releases[last];
  return out;
}

LaunchUnit DeviceRun::unit_of(GraphSegment& segment) {
  const IdRange<OpId> ops = segment.ops();
  LaunchUnit out;
  out.segment = &segment;
  for (const OpId op : ops) out.singly.push_back(unit_of(op));
  Launch& launch = out.launches.emplace_back(launch_of(ops.first));
  launch.stream = &stream_of(program_.ops[ops.first], false);
  launch.work = [this, &segment, ops] {
    if (failure_.happened())
      segment.skip();
    else if (segment.launch())
      progress_.fetch_add(ops.past.value - ops.first.value, std::memory_order_relaxed);
  };
  for (const OpId op : ops)
    if (awaited_[op]) launch.records.push_back(op);
  out.releases = order_.releases[OpId(ops.past.value - 1)];
  return out;
}

Launch DeviceRun::launch_of(OpId op) const {
  Launch out;
  out.op = op;
  out.waits = program_.ops[op].waits;
  if (processor_.memory_belongs_to_streams())
    out.waits.insert(out.waits.end(), order_.loaders[op].begin(), order_.loaders[op].end());
  return out;
}

Stream& DeviceRun::stream_of(const PlannedOp& op, bool serial) {
  Stream* stream = streams_[op.stream].get();
  if (side_ && op.kind == OpKind::Run)
    stream = decorated_.emplace_back(std::make_unique<TimedStream>(*stream, launch_time_)).get();
  if (serial)
    stream =
        decorated_.emplace_back(std::make_unique<SerialStream>(*stream, serial_, !is_communication(op.kind))).get();
  return *stream;
}

void DeviceRun::execute(OpId op) {
  if (failure_.happened()) return;
  recorder_.started(op.value);
  if (side_) side_->started(op.value);
  attempt(op, [&] {
    if (options_.before_op) options_.before_op(device_, op);
    if (frame_.settings().accumulation.last() || !completes_[op]) executors_[op]->run(frame_);
    if (options_.after_op) options_.after_op(device_, op, frame_);
  });
  if (side_) side_->ended(op.value);
  recorder_.ended(op.value);
  frame_.ended(op);
  progress_.fetch_add(1, std::memory_order_relaxed);
}

/// Says where something failed: at `op`, as it is then.
void DeviceRun::attempt(const OpId& op, const std::function<void()>& work) {
  try {
    work();
  } catch (const JobStopped& problem) {
    throw RunError(RunProblem::Elsewhere, problem.what());
  } catch (const RunError& problem) {
    throw RunError(problem.problem, fmt::format("{}: {}", describe_op(plan_, device_, op), problem.what()));
  } catch (const std::exception& problem) {
    const OpId culprit = side_ ? OpId(side_->culprit(op.value)) : op;
    throw RunError(
        is_out_of_memory(problem) ? RunProblem::Memory : RunProblem::Operation,
        fmt::format("{}: {}", describe_op(plan_, device_, culprit.valid() ? culprit : op), plain_text(problem)));
  }
}

int64_t DeviceRun::operators() const {
  int64_t count = 0;
  for (const auto& executor : executors_) count += executor->operators();
  return count;
}

void DeviceRun::wait() {
  ends_.back().wait(step_);
  for (const PlanStreamId s : streams_.ids())
    if (streams_[s]) ends_[s].wait(step_);
}

bool DeviceRun::has_ended(OpId op) const {
  return recorder_.times(recorder_.step(), op.value).ended != 0 && (!side_ || side_->has_ended(op.value));
}

bool DeviceRun::idle() const {
  return host_->idle() &&
         std::all_of(streams_.begin(), streams_.end(), [](const auto& stream) { return !stream || stream->idle(); });
}

}  // namespace piper
