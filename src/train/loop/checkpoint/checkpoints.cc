#include "train/loop/checkpoint/checkpoints.h"

#include <ATen/ops/empty_like.h>
#include <fmt/format.h>

#include <algorithm>

#include "checkpoint/folders.h"
#include "runtime/packed.h"
#include "train/loop/checkpoint/stored_dtype.h"

namespace piper {
namespace {

std::vector<StoredTensor> stored_tensors(const std::vector<StateTensor>& tensors) {
  std::vector<StoredTensor> out;
  for (const StateTensor& tensor : tensors) out.push_back(tensor.stored);
  return out;
}

/// What a process tells rank 0 when it has written.
std::string pack(const std::vector<SummedRange>& ranges) {
  Packing packing;
  packing.add(ranges);
  return packing.take();
}

std::vector<SummedRange> unpack(const std::string& bytes) {
  std::vector<SummedRange> out;
  Unpacking(bytes).take(out);
  return out;
}

Diagnostic cannot_save(std::string why) {
  return error(ErrorCode::E903, {}, std::move(why));
}

double seconds_since(Nanoseconds start) {
  return static_cast<double>(now() - start) * 1e-9;
}

}  // namespace

Checkpoints::Checkpoints(TrainingRun& run, const std::vector<SavedName>& names, CheckpointOptions options)
    : run_(run),
      options_(std::move(options)),
      state_(model_state(run.plan(), run.job().step_config(), run.computations(), names)),
      buffers_(find_buffers(names)),
      snapshot_(run.plan(), run.job().step_config(), state_, run.job().devices()) {
  std::vector<StoredTensor> model = stored_tensors(state_.weights);
  for (const SavedBuffer& buffer : buffers_) model.push_back(buffer.stored);
  auto layout = make_layout(std::move(model), stored_tensors(state_.optimizer), options_.shard_size);
  invariant(bool(layout), "names of parameters differ");
  for (const auto& [name, text] : options_.texts) add_text(*layout, name, text);
  layout_ = std::make_shared<const FolderLayout>(*std::move(layout));
  if (World* world = run.world()) {
    const std::shared_ptr<Communicator> ranks = std::move(world->make(world->ranks(), until_the_job_fails).at(0));
    run.job().when_it_fails([ranks](const std::string& reason) { ranks->abort(reason); });
    writers_ = Writers(*world, ranks);
  }
}

Checkpoints::~Checkpoints() = default;  // a thread is waited for

/// A buffer that passes write is the one of the device that has seen the earliest samples, as everywhere.
std::vector<Checkpoints::SavedBuffer> Checkpoints::find_buffers(const std::vector<SavedName>& names) {
  std::vector<SavedBuffer> out;
  for (const auto& [name, stored_name] : names) {
    if (place_of(run_.plan(), name)) continue;
    const auto [tensor, first_sample] = run_.computations().find_state(name);
    const int64_t batch = run_.job().step_config().batch;
    const int earliness = tensor.defined() ? static_cast<int>(batch - first_sample) : 0;
    const int most = run_.greatest(earliness);
    if (most == 0) continue;  // no step writes it
    const int rank = run_.world() ? run_.world()->rank() : 0;
    const int writer = -run_.greatest(tensor.defined() && earliness == most ? -rank : -1'000'000'000);
    const at::Tensor whole = run_.computations().like(name);
    SavedBuffer buffer;
    buffer.name = name;
    buffer.stored = {stored_name, stored(*dtype_of(whole.scalar_type())), whole.sizes().vec()};
    buffer.mine = writer == rank;
    if (buffer.mine) buffer.copy = at::empty_like(whole, whole.options().device(c10::kCPU));
    out.push_back(std::move(buffer));
  }
  return out;
}

int64_t Checkpoints::host_bytes() const {
  return snapshot_.bytes() + 2 * block_bytes;
}

void Checkpoints::save(RunState state) {
  wait();
  const Nanoseconds start = now();
  snapshot_.take();
  for (SavedBuffer& buffer : buffers_)
    if (buffer.mine) buffer.copy.copy_(run_.computations().find_state(buffer.name).tensor);
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
  PIPER_CHECK(write_state(run_.plan(), run_.computations(), state_, snapshot_, writers_, files));
  for (const SavedBuffer& buffer : buffers_) {
    if (!buffer.mine) continue;
    const TensorPlace& place = *files.layout().find(buffer.stored.name);
    PIPER_CHECK(files.write(place.file, place.entry.begin, {bytes_of(buffer.copy), buffer.copy.nbytes()}));
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
  if (writers_.first()) take(FolderWriter::prepare(options_.folder, state.step, layout_));
  problem = writers_.from_first(problem);
  if (!problem.empty()) return cannot_save(problem);
  if (!writers_.first()) take(FolderWriter::open(options_.folder, state.step, layout_));
  problem = writers_.any_problem(problem);
  if (problem.empty()) {
    const auto ranges = write_files(*files);
    report.written = files->counts();
    problem = writers_.any_problem(ranges ? "" : ranges.error().message);
    std::vector<SummedRange> all;
    for (const std::string& bytes : writers_.to_first(ranges ? pack(*ranges) : ""))
      std::ranges::move(unpack(bytes), std::back_inserter(all));
    if (writers_.first() && problem.empty())
      if (auto committed = files->commit(state, std::move(all)); !committed) problem = committed.error().message;
    problem = writers_.from_first(problem);
  }
  if (!problem.empty()) {
    if (writers_.first() && files) (void)files->abandon();  // what went wrong first is what is said
    return cannot_save(problem);
  }
  if (writers_.first() && options_.keep > 0) return keep(options_.folder, options_.keep, options_.keep_every);
  return Ok{};
}

}  // namespace piper
