#include "runtime/device_run.h"

#include "runtime/stream/failure.h"

namespace piper {

DeviceRun::DeviceRun(const Plan& plan, const StepConfig& step, Computations& computations, Communicator& communicator,
                     Failure& failure, const RunOptions& options)
    : on_{plan,
          program_of(plan, communicator.device()),
          communicator.device(),
          step,
          computations,
          communicator,
          options.processor ? *options.processor : host_processor(),
          options,
          failure},
      memory_(on_.processor.device().type()),
      frame_(on_.program, on_.processor.device()),
      recorder_(on_.program.ops.size(), options.recorded_steps),
      side_(on_.processor.make_side(on_.program.ops.size())),
      operations_(on_, frame_, recorder_, *side_),
      streams_(on_, memory_, side_->has_clock()) {
  frame_.poison_freed = options.poison_freed;
}

void DeviceRun::prepare() {
  const CountMemory counting(memory_);
  allocate_persistent();
  operations_.prepare();
  const bool graphs = on_.processor.graphs() == Graphs::Step;
  if (graphs) frame_.keep_inputs(operations_.inputs());
  const FreeOrder frees =
      on_.processor.memory_belongs_to_streams() ? frees_by_stream(on_.program, graphs) : frees_to_pool(on_.program);
  units_ = make_launch_units(operations_, streams_, frees, on_.processor);
}

void DeviceRun::allocate_persistent() {
  const PlanIndex& index = operations_.index();
  for (const BufferId b : on_.program.buffers.ids()) {
    const PlanBuffer& buffer = on_.program.buffers[b];
    if (!buffer.persistent) continue;
    const auto found = index.buckets.find(buffer.label.name);
    if (found == index.buckets.end()) continue;
    const PlanBucket& bucket = *found->second.bucket;
    if (buffer.category == Category::Weights && on_.options.weights)
      frame_[b] = on_.options.weights(on_.device, bucket);
    if (frame_[b].defined()) continue;
    if (buffer.category != Category::Weights && !index.used[b]) continue;  // of another plan of the same devices
    const DType dtype = buffer.category == Category::Weights     ? bucket.weights
                        : buffer.category == Category::Gradients ? bucket.gradients
                                                                 : DType::Int8;  // state is of several types
    frame_[b] = make_flat(dtype, buffer.bytes / bytes_of(dtype), frame_.device()).fill_(0);
  }
}

void DeviceRun::start(const StepSettings& settings) {
  streams_.start([this, &settings] {
    recorder_.begin(settings.step);
    frame_.begin(settings);
    on_.processor.finish();
    operations_.attempt_step([&] { run_step(settings); });
  });
}

void DeviceRun::run_step(const StepSettings& settings) {
  side_->begin(settings.step);
  streams_.begin();
  issue(units_);
  streams_.end();
  if (!on_.failure.happened()) side_->end(recorder_);
}

void DeviceRun::issue(std::vector<LaunchUnit>& units) {
  for (LaunchUnit& unit : units) {
    for (const Launch& launch : unit.launches) {
      for (const OpId op : launch.waits) streams_.wait(*launch.stream, op);
      if (!unit.segment) recorder_.launched(launch.op);
      launch.stream->launch(launch.work);
    }
    if (unit.segment && !unit.segment->launched()) {
      issue(unit.singly);
      continue;
    }
    for (const Launch& launch : unit.launches)
      for (const OpId op : launch.records) streams_.record(*launch.stream, op);
    for (const BufferFree& free : unit.frees) release(free);
  }
}

void DeviceRun::release(const BufferFree& free) {
  const auto work = [this, &free] {
    for (const BufferId buffer : free.buffers) frame_.release(buffer);
  };
  if (!free.stream.valid()) return work();
  Stream& stream = streams_[free.stream];
  for (const OpId user : free.after) streams_.wait(stream, user);
  stream.launch(work);
}

bool DeviceRun::has_ended(OpId op) const {
  return recorder_.times(recorder_.step(), op).ended != 0 && side_->has_ended(op);
}

}  // namespace piper
