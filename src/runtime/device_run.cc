#include "runtime/device_run.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <mutex>

#include "base/invariant.h"
#include "base/prompt_thread.h"
#include "runtime/stream/thread_stream.h"

namespace piper {

const PlanTemplate& program_of(const Plan& plan, int device) {
  for (const PlanTemplate& t : plan.templates)
    if (std::find(t.devices.begin(), t.devices.end(), device) != t.devices.end()) return t;
  internal_error(fmt::format("the plan has no device {}", device));
}

std::string describe_op(const Plan& plan, int device, int op) {
  const std::string text = describe(plan, program_of(plan, device), op);
  return fmt::format("device {}{}", device, text.substr(text.find(':')));
}

DeviceRun::DeviceRun(const Plan& plan, int device, const StepConfig& step, Computations& computations,
                     Communicator& communicator, Failure& failure, const RunOptions& options)
    : plan_(plan),
      program_(program_of(plan, device)),
      device_(device),
      step_config_(step),
      computations_(computations),
      communicator_(communicator),
      failure_(failure),
      options_(options),
      processor_(options.processor ? *options.processor : host_processor()),
      memory_(processor_.place().type()),
      frame_(program_, processor_.place()),
      recorder_(program_.ops.size(), options.recorded_steps),
      inputs_(program_.ops.size()),
      releases_(program_.ops.size()),
      side_(processor_.make_side(program_.ops.size())),
      events_(std::make_unique<Event[]>(program_.ops.size())),
      ends_(std::make_unique<Event[]>(plan.streams.size() + 1)),
      streams_(plan.streams.size()) {
  frame_.poison_freed = options.poison_freed;
  frame_.inputs_last = processor_.graphs() == Graphs::Step;
  failure.stop_with([this](const std::string& reason) {
    for (size_t i = 0; i < program_.ops.size(); ++i) events_[i].release();
    for (size_t s = 0; s <= plan_.streams.size(); ++s) ends_[s].release();
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
      failure_.report({RunProblem::Operation, fmt::format("device {}: {}", device_, problem.what())});
    }
  };
  const auto promptly = [on_thread](const std::function<void()>& run) {
    make_thread_prompt();
    on_thread(run);
  };
  std::vector<bool> computes(plan.streams.size());
  for (const PlannedOp& op : program_.ops)
    if (!is_communication(op.kind)) computes[static_cast<size_t>(op.stream)] = true;
  for (const PlannedOp& op : program_.ops)
    if (auto& stream = streams_[static_cast<size_t>(op.stream)]; !stream)
      stream = computes[static_cast<size_t>(op.stream)] ? processor_.make_stream({on_thread, failed})
                                                        : processor_.make_stream({promptly, failed});
  host_ = std::make_unique<ThreadStream>(promptly, failed);
  if (processor_.memory_belongs_to_streams()) order_memory();
}

/// Memory is taken on the stream of the first operation that touches it. When it goes that stream waits for the last
/// uses on others, and for devices that still read what was sent to them; whoever reads an input waits for the
/// operation that has loaded it.
void DeviceRun::order_memory() {
  struct Uses {
    int first = -1;
    bool written = false;
    std::map<int, int> last;  // by stream
  };
  std::vector<Uses> all(program_.buffers.size());
  const auto stream_of = [&](int op) { return program_.ops[static_cast<size_t>(op)].stream; };
  for (size_t i = 0; i < program_.ops.size(); ++i) {
    const PlannedOp& op = program_.ops[i];
    for (const int b : op.writes) all[static_cast<size_t>(b)].written = true;
    for (const auto* list : {&op.reads, &op.writes})
      for (const int b : *list) {
        Uses& uses = all[static_cast<size_t>(b)];
        if (uses.first < 0) uses.first = static_cast<int>(i);
        uses.last[op.stream] = static_cast<int>(i);
        if (!uses.written && !program_.buffers[static_cast<size_t>(b)].persistent && stream_of(uses.first) != op.stream)
          inputs_[i].push_back(uses.first);
      }
    for (const int b : op.frees) {
      const Uses& uses = all[static_cast<size_t>(b)];
      Release& release = releases_[i].emplace_back(Release{b, stream_of(uses.first), {}});
      for (const auto& [stream, last] : uses.last)
        if (stream != release.stream || program_.ops[static_cast<size_t>(last)].kind == OpKind::Send)
          release.awaited.push_back(last);
    }
  }
}

DeviceRun::~DeviceRun() {
  host_.reset();
  streams_.clear();
}

void DeviceRun::prepare() {
  const CountMemory counting(memory_);
  for (size_t b = 0; b < program_.buffers.size(); ++b) {
    const PlanBuffer& buffer = program_.buffers[b];
    if (!buffer.persistent) continue;
    for (const PlanBucket& bucket : plan_.buckets) {
      if (bucket.name != buffer.label.name) continue;
      const DType dtype = buffer.category == Category::Weights     ? bucket.weights
                          : buffer.category == Category::Gradients ? bucket.gradients
                                                                   : DType::Int8;  // state is of several types
      frame_[static_cast<int>(b)] = make_flat(dtype, buffer.bytes / bytes_of(dtype), frame_.place()).fill_(0);
    }
  }
  circles_ = make_circles(plan_, communicator_);
  const Preparation preparation{plan_,         program_,   step_config_, device_, computations_,
                                communicator_, processor_, circles_,     frame_};
  for (size_t i = 0; i < program_.ops.size(); ++i)
    executors_.push_back(make_executor(preparation, static_cast<int>(i)));
  if (processor_.graphs() == Graphs::Step) find_stretches();
}

/// Whoever waits for another stream begins a new one; so does whoever comes after memory that another stream used.
void DeviceRun::find_stretches() {
  awaited_.resize(program_.ops.size());
  const auto await = [&](const std::vector<int>& ops) {
    for (const int op : ops) awaited_[static_cast<size_t>(op)] = 1;
  };
  bool open = false;
  for (size_t i = 0; i < program_.ops.size(); ++i) {
    const PlannedOp& op = program_.ops[i];
    await(op.waits);
    await(inputs_[i]);
    const bool computes = op.kind == OpKind::Run;
    if (computes && open && op.waits.empty() && inputs_[i].empty() && op.stream == program_.ops[i - 1].stream)
      stretches_.back().end = i + 1;
    else if (computes)
      stretches_.push_back({i, i + 1, processor_.make_recorded(), {}});
    open = computes;
    for (const Release& release : releases_[i]) {
      await(release.awaited);
      open = open && release.awaited.empty() && release.stream == op.stream;
    }
  }
}

void DeviceRun::start(const StepSettings& settings) {
  ++step_;
  host_->launch([this, &settings] {
    recorder_.begin(settings.step);
    frame_.begin(settings);
    processor_.finish();
    if (!side_) return issue();
    try {
      side_->begin(settings.step);
      issue();
      if (!failure_.happened()) side_->end(recorder_);
    } catch (const RunError&) {
      throw;
    } catch (const std::exception& problem) {
      const int culprit = side_->culprit(-1);
      if (culprit < 0) throw;
      throw RunError(RunProblem::Operation,
                     fmt::format("{}: {}", describe_op(plan_, device_, culprit), problem.what()));
    }
  });
  host_->record(ends_[plan_.streams.size()], step_);
  host_->flush();
}

void DeviceRun::issue() {
  auto stretch = stretches_.begin();
  Nanoseconds issuing = 0;
  for (size_t i = 0; i < program_.ops.size();) {
    const bool timed = side_ && program_.ops[i].kind == OpKind::Run;
    const Nanoseconds start = timed ? now() : 0;
    while (stretch != stretches_.end() && stretch->begin < i) ++stretch;
    if (stretch != stretches_.end() && stretch->begin == i && issue_recorded(*stretch))
      i = stretch->end;
    else
      issue_one(i++);
    if (timed) issuing += now() - start;
  }
  if (side_) issuing_.store(issuing, std::memory_order_relaxed);
  for (size_t s = 0; s < streams_.size(); ++s)
    if (streams_[s]) {
      streams_[s]->record(ends_[s], step_);
      streams_[s]->flush();
    }
}

void DeviceRun::issue_one(size_t i) {
  const PlannedOp& op = program_.ops[i];
  Stream& stream = *streams_[static_cast<size_t>(op.stream)];
  for (const int awaited : op.waits) stream.wait(events_[static_cast<size_t>(awaited)], step_);
  for (const int loader : inputs_[i]) stream.wait(events_[static_cast<size_t>(loader)], step_);
  {
    // others may need their turn before what this operation frees can go
    const bool in_turn = options_.turns && options_.turns->taken;
    std::unique_lock<std::mutex> alone;
    if (in_turn && !is_communication(op.kind)) alone = std::unique_lock(options_.turns->one);
    recorder_.launched(static_cast<int>(i));
    stream.launch([this, i] { execute(static_cast<int>(i)); });
    stream.record(events_[i], step_);
    if (options_.issue == Issue::Serial || in_turn) {
      stream.flush();
      events_[i].wait(step_);
    }
  }
  free_after(i);
}

/// False: nothing has happened; its operations are issued one by one.
bool DeviceRun::issue_recorded(Stretch& stretch) {
  if (!stretch.work || failure_.happened()) return false;
  const PlannedOp& first = program_.ops[stretch.begin];
  Stream& stream = *streams_[static_cast<size_t>(first.stream)];
  for (const int awaited : first.waits) stream.wait(events_[static_cast<size_t>(awaited)], step_);
  for (const int loader : inputs_[stretch.begin]) stream.wait(events_[static_cast<size_t>(loader)], step_);
  bool launched = false;
  stream.launch([&] { launched = run_recorded(stretch); });
  if (!launched) return false;
  for (size_t i = stretch.begin; i < stretch.end; ++i)
    if (awaited_[i]) stream.record(events_[i], step_);
  if (options_.issue == Issue::Serial) stream.flush();
  free_after(stretch.end - 1);
  return true;
}

bool DeviceRun::run_recorded(Stretch& stretch) {
  const auto each = [&](auto act) {
    for (size_t i = stretch.begin; i < stretch.end; ++i) act(static_cast<int>(i));
  };
  bool can = stretch.work->ready();
  each([&](int op) { can = can && executors_[static_cast<size_t>(op)]->can_be_recorded(); });
  if (!can) return false;
  each([&](int op) {
    recorder_.launched(op);
    attempt(op, [&] {
      if (options_.before_op) options_.before_op(device_, op);
      executors_[static_cast<size_t>(op)]->renew(frame_);
    });
  });
  const std::vector<const void*> now_at = places(stretch);
  if (stretch.places.empty()) {
    const Frame::State before = frame_.state();
    if (!stretch.work->record([&] { record(stretch); })) {
      frame_.recording = false;
      frame_.go_back(before);
      stretch.work.reset();
      return false;
    }
    stretch.places = now_at;
  } else if (now_at == stretch.places) {
    recall(stretch);
  } else {
    return false;
  }
  each([&](int op) { recorder_.started(op); });
  const int first = static_cast<int>(stretch.begin), last = static_cast<int>(stretch.end) - 1;
  attempt(first, [&] { side_->launch(first, last, *stretch.work); });
  each([&](int op) {
    recorder_.ended(op);
    progress_.fetch_add(1, std::memory_order_relaxed);
  });
  return true;
}

void DeviceRun::record(const Stretch& stretch) {
  frame_.recording = true;
  for (size_t i = stretch.begin; i < stretch.end; ++i) {
    const int op = static_cast<int>(i);
    side_->started(op);
    executors_[i]->run(frame_);
    side_->ended(op);
    frame_.ended(op);
    if (i + 1 < stretch.end)
      for (const Release& release : releases_[i]) frame_.release(release.buffer);
  }
  frame_.recording = false;
}

/// The same to the frame. What is freed was filled, if that was asked for, when the work was recorded.
void DeviceRun::recall(const Stretch& stretch) {
  const bool poison = std::exchange(frame_.poison_freed, false);
  for (size_t i = stretch.begin; i < stretch.end; ++i) {
    executors_[i]->recall(frame_);
    frame_.ended(static_cast<int>(i));
    if (i + 1 < stretch.end)
      for (const Release& release : releases_[i]) frame_.release(release.buffer);
  }
  frame_.poison_freed = poison;
}

/// Of buffers that come from outside of it.
std::vector<const void*> DeviceRun::places(const Stretch& stretch) {
  std::vector<const void*> out = {nullptr};  // never empty
  for (size_t i = stretch.begin; i < stretch.end; ++i)
    for (const int buffer : program_.ops[i].reads)
      if (const at::Tensor& tensor = frame_[buffer]; tensor.defined()) out.push_back(tensor.const_data_ptr());
  return out;
}

void DeviceRun::free_after(size_t op) {
  if (!processor_.memory_belongs_to_streams()) return frame_.issued(static_cast<int>(op));
  // where both ends of a transfer are here, what was sent goes after the second: the other device may come to its own
  // second only then
  const auto same = [&](size_t a, size_t b) {
    return b < program_.ops.size() && program_.ops[a].kind == OpKind::Send && program_.ops[b].kind == OpKind::Recv &&
           program_.ops[a].communication == program_.ops[b].communication;
  };
  if (same(op, op + 1)) return;
  for (size_t i = op > 0 && same(op - 1, op) ? op - 1 : op; i <= op; ++i)
    for (const Release& release : releases_[i]) {
      Stream& stream = *streams_[static_cast<size_t>(release.stream)];
      for (const int user : release.awaited) stream.wait(events_[static_cast<size_t>(user)], step_);
      stream.launch([&] { frame_.release(release.buffer); });
    }
}

void DeviceRun::execute(int op) {
  if (failure_.happened()) return;
  recorder_.started(op);
  if (side_) side_->started(op);
  attempt(op, [&] {
    if (options_.before_op) options_.before_op(device_, op);
    executors_[static_cast<size_t>(op)]->run(frame_);
  });
  if (side_) side_->ended(op);
  recorder_.ended(op);
  frame_.ended(op);
  progress_.fetch_add(1, std::memory_order_relaxed);
}

/// Says where something failed.
void DeviceRun::attempt(int op, const std::function<void()>& work) {
  try {
    work();
  } catch (const JobStopped& problem) {
    throw RunError(RunProblem::Elsewhere, problem.what());
  } catch (const RunError& problem) {
    throw RunError(problem.problem, fmt::format("{}: {}", describe_op(plan_, device_, op), problem.what()));
  } catch (const std::exception& problem) {
    const int culprit = side_ ? side_->culprit(op) : op;
    throw RunError(RunProblem::Operation,
                   fmt::format("{}: {}", describe_op(plan_, device_, culprit < 0 ? op : culprit), problem.what()));
  }
}

int64_t DeviceRun::operators() const {
  int64_t count = 0;
  for (const auto& executor : executors_) count += executor->operators();
  return count;
}

void DeviceRun::wait() {
  ends_[plan_.streams.size()].wait(step_);
  for (size_t s = 0; s < streams_.size(); ++s)
    if (streams_[s]) ends_[s].wait(step_);
}

bool DeviceRun::has_ended(int op) const {
  return recorder_.times(recorder_.step(), op).ended != 0 && (!side_ || side_->has_ended(op));
}

bool DeviceRun::idle() const {
  return host_->idle() &&
         std::all_of(streams_.begin(), streams_.end(), [](const auto& stream) { return !stream || stream->idle(); });
}

}  // namespace piper
