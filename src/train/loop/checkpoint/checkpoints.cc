#include "train/loop/checkpoint/checkpoints.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "checkpoint/folders.h"
#include "runtime/memory_errors.h"
#include "runtime/packed.h"

namespace piper {
namespace {

/// What a process tells rank 0 when it has written.
struct Written {
  std::vector<SummedRange> ranges;
  std::vector<std::pair<int64_t, int64_t>> sizes;  // of writes, and how many
  int64_t copies = 0;                              // bytes

  template <class Self, class Each>
  static void each_field(Self& self, Each each) {
    each(self.ranges);
    each(self.sizes);
    each(self.copies);
  }
};

Diagnostic cannot_save(std::string why) {
  return error(ErrorCode::E903, {}, std::move(why));
}

/// Bytes of all copies in this process, by the plan and the buffers.
int64_t needed_bytes(TrainingRun& run, const SavedModel& saved, int rank) {
  const std::vector<int64_t> by_device = copied_bytes(run.plan(), run.job().step_config());
  int64_t out = 0;
  for (DeviceRun* device : run.job().devices()) out += by_device[static_cast<size_t>(device->device())];
  for (const SavedBuffer& buffer : saved.buffers)
    if (buffer.writer == rank) out += bytes_of(buffer.stored);
  return out;
}

std::string no_memory(int64_t bytes, bool pinned) {
  return fmt::format("{} of {} for the copies from which checkpoints are written cannot be taken", human_bytes(bytes),
                     pinned ? "pinned memory of the host" : "memory");
}

/// Those before the elements of its parameter.
Checked write_zeros(const StateTensor& tensor, FolderWriter& files) {
  const TensorPlace& place = *files.layout().find(tensor.stored.name);
  const std::vector<std::byte> zeros(static_cast<size_t>(-tensor.first * bytes_of(tensor.stored.dtype)));
  return files.write(place.file, place.entry.begin, zeros);
}

double seconds_since(Nanoseconds start) {
  return static_cast<double>(now() - start) * 1e-9;
}

}  // namespace

Checkpoints::Checkpoints(TrainingRun& run, SavedModel saved, CheckpointOptions options)
    : run_(run), options_(std::move(options)), saved_(std::move(saved)) {
  World* const world = run.world();
  if (!world) return;
  const std::shared_ptr<Communicator> ranks = std::move(world->make(world->ranks(), until_the_job_fails).at(0));
  run.job().when_it_fails([ranks](const std::string& reason) { ranks->abort(reason); });
  writers_ = Writers(*world, ranks);
}

Result<std::unique_ptr<Checkpoints>> Checkpoints::make(TrainingRun& run, SavedModel saved, CheckpointOptions options) {
  std::unique_ptr<Checkpoints> out(new Checkpoints(run, std::move(saved), std::move(options)));
  std::string problem;
  try {
    out->take_memory();
  } catch (const std::exception& thrown) {
    if (!is_out_of_memory(thrown)) throw;
    const std::vector<DeviceRun*>& devices = run.job().devices();
    const bool pinned = std::ranges::any_of(devices, [](DeviceRun* d) { return !d->processor().device().is_cpu(); });
    problem = no_memory(needed_bytes(run, out->saved_, out->writers_.rank()), pinned);
  }
  problem = out->writers_.any_problem(problem);
  if (problem.empty()) return out;
  return error(ErrorCode::E808, {}, problem)
      .help("more processes on more hosts divide the copies; the memory table says what each process needs")
      .help("a run that saves nothing needs no copies");
}

void Checkpoints::take_memory() {
  snapshot_.emplace(run_.plan(), run_.job().step_config(), saved_.state, run_.job().devices());
  for (const SavedBuffer& buffer : saved_.buffers)
    buffers_.push_back(buffer.writer == writers_.rank()
                           ? at::zeros(buffer.stored.sizes,
                                       run_.computations().find_state(buffer.name).tensor.options().device(c10::kCPU))
                           : at::Tensor());
}

int64_t Checkpoints::copied_bytes() const {
  int64_t out = snapshot_->bytes();
  for (const at::Tensor& buffer : buffers_) out += buffer.defined() ? static_cast<int64_t>(buffer.nbytes()) : 0;
  return out;
}

Checkpoints::~Checkpoints() = default;  // a thread is waited for

void Checkpoints::save(RunState state) {
  wait();
  const Nanoseconds start = now();
  snapshot_->take();
  for (size_t b = 0; b < buffers_.size(); ++b)
    if (buffers_[b].defined()) buffers_[b].copy_(run_.computations().find_state(saved_.buffers[b].name).tensor);
  current_ = {};
  current_.step = state.step;
  current_.blocked = seconds_since(start);
  writing_ = std::jthread([this, start, state = std::move(state)] {
    try {
      current_.result = write_together(state, current_);
    } catch (const CommunicationError& problem) {
      current_.result = cannot_save(fmt::format("the processes do not write together any more: {}", problem.what()));
    }
    current_.seconds = seconds_since(start);
  });
}

void Checkpoints::wait() {
  if (!writing_.joinable()) return;
  writing_.join();
  reports_.push_back(std::move(current_));
}

std::vector<SaveReport> Checkpoints::take_reports() {
  return std::exchange(reports_, {});
}

Result<std::vector<SummedRange>> Checkpoints::write_files(FolderWriter& files) {
  PIPER_CHECK(write_state(run_.plan(), run_.computations(), saved_.state, *snapshot_, writers_, files));
  const auto write = [&](const StoredTensor& stored, const at::Tensor& value) -> Checked {
    const TensorPlace& place = *files.layout().find(stored.name);
    return files.write(place.file, place.entry.begin, {bytes_of(value), value.nbytes()});
  };
  for (size_t b = 0; b < buffers_.size(); ++b)
    if (buffers_[b].defined()) PIPER_CHECK(write(saved_.buffers[b].stored, buffers_[b]));
  if (writers_.first()) {
    for (const SavedConstant& constant : saved_.constants)
      PIPER_CHECK(write(constant.stored, constant.value.cpu().contiguous()));
    for (const std::vector<StateTensor>* tensors : {&saved_.state.weights, &saved_.state.optimizer})
      for (const StateTensor& tensor : *tensors)
        if (tensor.first < 0) PIPER_CHECK(write_zeros(tensor, files));
  }
  PIPER_CHECK(files.sync());
  return files.ranges();
}

/// Rank 0 prepares the folder, all write, rank 0 commits; everybody hears how it went.
Checked Checkpoints::write_together(const RunState& state, SaveReport& report) {
  std::unique_ptr<FolderWriter> files;
  std::string problem;
  const auto take = [&](Result<std::unique_ptr<FolderWriter>> opened) {
    if (opened)
      files = *std::move(opened);
    else
      problem = opened.error().message;
  };
  if (writers_.first()) take(FolderWriter::prepare(options_.folder, state.step, saved_.layout));
  problem = writers_.broadcast(problem);
  if (!problem.empty()) return cannot_save(problem);
  if (!writers_.first()) take(FolderWriter::open(options_.folder, state.step, saved_.layout));
  problem = writers_.any_problem(problem);
  if (problem.empty()) {
    auto ranges = write_files(*files);
    WriteSizes sizes = files->sizes();
    problem = writers_.any_problem(ranges ? "" : ranges.error().message);
    Written mine{
        ranges ? *std::move(ranges) : std::vector<SummedRange>(), {sizes.begin(), sizes.end()}, copied_bytes()};
    std::vector<SummedRange> all;
    if (writers_.first()) sizes.clear();
    for (const std::string& bytes : writers_.gather(pack_all(std::vector{std::move(mine)})))
      for (const Written& written : unpack_all<Written>(bytes)) {
        all.insert(all.end(), written.ranges.begin(), written.ranges.end());
        for (const auto& [size, count] : written.sizes) sizes[size] += count;
        report.copies = std::max(report.copies, written.copies);
      }
    if (writers_.first()) report.written = count(sizes);
    if (writers_.first() && problem.empty())
      if (auto committed = files->commit(state, std::move(all)); !committed) problem = committed.error().message;
    problem = writers_.broadcast(problem);
  }
  if (!problem.empty()) {
    if (writers_.first() && files) (void)files->abandon();  // what went wrong first is what is said
    return cannot_save(problem);
  }
  if (writers_.first() && options_.keep > 0) return keep(options_.folder, options_.keep, options_.keep_every);
  return Ok{};
}

}  // namespace piper
