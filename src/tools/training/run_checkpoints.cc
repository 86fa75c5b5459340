#include "tools/training/run_checkpoints.h"

#include <fmt/format.h>

#include <cstdio>

#include "base/bytes.h"
#include "base/invariant.h"
#include "base/time_text.h"
#include "checkpoint/folder_names.h"
#include "tools/commands.h"
#include "tools/training/load_training.h"
#include "train/loop/checkpoint/restore.h"

namespace piper {

RunCheckpoints::RunCheckpoints(const CheckpointConfig& config, Training& training, bool color)
    : config_(config),
      training_(training),
      speaks_(!training.run().world() || training.run().world()->rank() == 0),
      color_(color),
      last_time_(seconds_now()) {}

Checked RunCheckpoints::begin() {
  if (!config_.folder) return Ok{};
  const CheckpointOptions options{config_.folder->path, config_.keep, config_.keep_every};
  PIPER_TRY(checkpoints_, Checkpoints::make(training_.run(), saved(), options));
  return Ok{};
}

const SavedModel& RunCheckpoints::saved() {
  if (!saved_) {
    SaveForm form = training_.save_form();
    form.shard_size = config_.shard_size.value_or(form.shard_size);
    auto made = saved_model(training_.run(), form);
    invariant(bool(made), "names of parameters differ");
    saved_ = *std::move(made);
  }
  return *saved_;
}

Checked RunCheckpoints::resume(const std::string& from) {
  if (from == "newest" && !config_.folder)
    return error(ErrorCode::E105, {}, "--resume does not say from where")
        .help("name the folder that has the checkpoints: --checkpoints DIR, or checkpoints in [run]")
        .help("or one of them: --resume=DIR/step-00001000");
  const std::string folder = from == "newest" ? config_.folder->path : from;
  std::vector<std::string> changed;
  const SavedModel& model = saved();  // which the processes make together, also those that cannot read the folder
  PIPER_TRY(const auto resumed, piper::resume(training_.run(), folder, [&](const FolderReader& reader) -> Checked {
              PIPER_TRY(changed, training_.resume(reader, model));
              return Ok{};
            }));
  if (resumed) saved_step_ = training_.run().steps();
  if (!speaks_) return Ok{};
  if (!resumed) {
    put(fmt::format("no checkpoint in {}: the run begins\n", folder));
    return Ok{};
  }
  for (const Diagnostic& damaged : resumed->left_out) report_text(damaged, color_);
  put(fmt::format("resumed from {}, after step {}\n", resumed->folder, training_.run().steps()));
  for (const std::string& line : changed) put(fmt::format("  {}\n", line));
  std::fflush(stdout);
  return Ok{};
}

bool RunCheckpoints::due_by_time() const {
  return checkpoints_ && speaks_ && config_.every.seconds > 0 && seconds_now() - last_time_ >= config_.every.seconds;
}

void RunCheckpoints::after_step(bool due) {
  if (!checkpoints_) return;
  due_ |= due || (config_.every.steps > 0 && training_.run().steps() % config_.every.steps == 0);
  if (due_ && training_.between_updates()) save();
}

void RunCheckpoints::save() {
  checkpoints_->save(training_.state());
  saved_step_ = training_.run().steps();
  due_ = false;
  last_time_ = seconds_now();
  report();
}

/// Of saves that have ended. One that failed is said once; the run goes on, and older checkpoints stay.
void RunCheckpoints::report() {
  for (SaveReport& save : checkpoints_->take_reports()) {
    ++saves_;
    blocked_ += save.blocked;
    if (!save.result && speaks_) report_text(save.result.error(), color_);
    last_ = std::move(save);
  }
}

void RunCheckpoints::wait() {
  if (!checkpoints_) return;
  checkpoints_->wait();
  report();
}

Checked RunCheckpoints::finish() {
  if (!checkpoints_) return Ok{};
  if (saved_step_ != training_.run().steps()) save();
  wait();
  if (saves_ == 0 || !speaks_ || !last_.result) return last_.result;
  put(fmt::format("{} checkpoint{} in {}, the newest {}; steps waited {} for them\n", saves_, saves_ == 1 ? "" : "s",
                  config_.folder->path, checkpoint_name(saved_step_), human_seconds(blocked_)));
  const WriteCounts& written = last_.written;
  put(fmt::format(
      "the newest: {} in {} writes, the smallest {}, the median {}; on the disk after {}; a process copies {}\n",
      human_bytes(written.bytes), written.writes, human_bytes(written.smallest), human_bytes(written.median),
      human_seconds(last_.seconds), human_bytes(last_.copies)));
  return Ok{};
}

}  // namespace piper
