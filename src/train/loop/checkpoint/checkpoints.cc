#include "train/loop/checkpoint/checkpoints.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <algorithm>

#include "checkpoint/folders.h"
#include "runtime/packed.h"

namespace piper {
namespace {

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

Checkpoints::Checkpoints(TrainingRun& run, SavedModel saved, CheckpointOptions options)
    : run_(run),
      options_(std::move(options)),
      saved_(std::move(saved)),
      snapshot_(run.plan(), run.job().step_config(), saved_.state, run.job().devices()) {
  World* const world = run.world();
  if (!world) return;
  const std::shared_ptr<Communicator> ranks = std::move(world->make(world->ranks(), until_the_job_fails).at(0));
  run.job().when_it_fails([ranks](const std::string& reason) { ranks->abort(reason); });
  writers_ = Writers(*world, ranks);
}

Checkpoints::~Checkpoints() = default;  // a thread is waited for

void Checkpoints::save(RunState state) {
  wait();
  const Nanoseconds start = now();
  snapshot_.take();
  buffers_.clear();
  for (const SavedBuffer& buffer : saved_.buffers)
    buffers_.push_back(buffer.writer == writers_.rank()
                           ? run_.computations().find_state(buffer.name).tensor.cpu().clone()
                           : at::Tensor());
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
  PIPER_CHECK(write_state(run_.plan(), run_.computations(), saved_.state, snapshot_, writers_, files));
  const auto write = [&](const StoredTensor& stored, const at::Tensor& value) -> Checked {
    const TensorPlace& place = *files.layout().find(stored.name);
    return files.write(place.file, place.entry.begin, {bytes_of(value), value.nbytes()});
  };
  for (size_t b = 0; b < buffers_.size(); ++b)
    if (buffers_[b].defined()) PIPER_CHECK(write(saved_.buffers[b].stored, buffers_[b]));
  for (const SavedConstant& constant : saved_.constants)
    if (writers_.first()) PIPER_CHECK(write(constant.stored, constant.value));
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
  problem = writers_.from_first(problem);
  if (!problem.empty()) return cannot_save(problem);
  if (!writers_.first()) take(FolderWriter::open(options_.folder, state.step, saved_.layout));
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
