#include "tools/training/run_checkpoints.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <ranges>

#include "base/time_text.h"
#include "checkpoint/folder_names.h"
#include "checkpoint/folders.h"
#include "tools/commands.h"
#include "tools/training/load_training.h"

namespace piper {
namespace {

bool is_damage(ErrorCode code) {
  return code == ErrorCode::E901 || code == ErrorCode::E902;
}

constexpr std::chrono::minutes limit{10};  // for a list of folders

}  // namespace

RunCheckpoints::RunCheckpoints(const CheckpointConfig& config, Training& training, bool color)
    : config_(config),
      training_(training),
      speaks_(!training.run().world() || training.run().world()->rank() == 0),
      color_(color),
      last_time_(seconds_now()) {
  if (!config.folder) return;
  CheckpointOptions options;
  options.folder = config.folder->path;
  options.keep = config.keep;
  options.keep_every = config.keep_every;
  options.shard_size = config.shard_size.value_or(options.shard_size);
  checkpoints_.emplace(training.run(), training.saved_names(), std::move(options));
}

/// Newest first, as rank 0 sees them.
Result<std::vector<std::string>> RunCheckpoints::candidates(const std::string& which) const {
  if (which != "newest") return std::vector{which};
  if (!config_.folder)
    return error(ErrorCode::E105, {}, "--resume does not say from where")
        .help("name the folder that has the checkpoints: --checkpoints DIR, or checkpoints in [run]")
        .help("or one of them: --resume=DIR/step-00001000");
  std::string lines;
  if (auto found = list_checkpoints(config_.folder->path); found)
    for (const CheckpointFolder& folder : *found | std::views::reverse) lines += folder.path + "\n";
  if (World* world = training_.run().world()) lines = world->broadcast(lines, limit);
  std::vector<std::string> out;
  for (size_t begin = 0; begin < lines.size();) {
    const size_t end = lines.find('\n', begin);
    out.push_back(lines.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

int RunCheckpoints::try_resume(const std::string& folder, std::optional<Diagnostic>& problem) {
  const auto attempt = [&]() -> Result<std::vector<std::string>> {
    PIPER_TRY(const std::unique_ptr<FolderReader> reader, FolderReader::open(folder));
    return training_.resume(*reader);
  };
  const auto changed = attempt();
  if (!changed) problem = changed.error();
  const int worst = training_.run().greatest(changed ? 0 : is_damage(changed.error().code) ? 1 : 2);
  if (worst > 0 || !speaks_) return worst;
  put(fmt::format("goes on from {}, after step {}\n", folder, training_.run().steps()));
  for (const std::string& line : *changed) put(fmt::format("  {}\n", line));
  std::fflush(stdout);
  return 0;
}

Checked RunCheckpoints::resume(const std::string& which) {
  PIPER_TRY(const std::vector<std::string> folders, candidates(which));
  std::optional<Diagnostic> problem;
  for (const std::string& folder : folders) {
    problem.reset();
    const int worst = try_resume(folder, problem);
    if (worst == 0) {
      saved_step_ = training_.run().steps();
      return Ok{};
    }
    if (!problem) problem = error(ErrorCode::E902, {}, fmt::format("{}: another process cannot read it", folder));
    if (worst > 1 || which != "newest") return *problem;
    report_text(*std::move(problem), color_);
    if (speaks_) put(fmt::format("left out: {}\n", folder));
  }
  if (problem)
    return error(ErrorCode::E902, {}, fmt::format("no checkpoint in {} is sound", config_.folder->path))
        .help("without --resume a new run begins");
  if (speaks_) put(fmt::format("no checkpoint in {}: the run begins\n", config_.folder->path));
  return Ok{};
}

bool RunCheckpoints::due_by_time() const {
  return checkpoints_ && speaks_ && config_.every.seconds > 0 && seconds_now() - last_time_ >= config_.every.seconds;
}

void RunCheckpoints::after_step(bool due) {
  if (!checkpoints_) return;
  if (due || (config_.every.steps > 0 && training_.run().steps() % config_.every.steps == 0)) save();
}

void RunCheckpoints::save() {
  checkpoints_->save(training_.state());
  saved_step_ = training_.run().steps();
  last_time_ = seconds_now();
  report();
}

/// Of saves that have ended. One that failed is said once; the run goes on, and older checkpoints stay.
void RunCheckpoints::report() {
  for (SaveReport& save : checkpoints_->take_reports()) {
    ++saves_;
    blocked_ += save.blocked;
    last_ = save.result;
    if (!save.result && speaks_) report_text(save.result.error(), color_);
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
  if (saves_ == 0 || !speaks_) return last_;
  put(fmt::format("{} checkpoint{} in {}, the newest {}; steps waited {} for them\n", saves_, saves_ == 1 ? "" : "s",
                  config_.folder->path, checkpoint_name(saved_step_), human_seconds(blocked_)));
  return last_;
}

}  // namespace piper
