#include "tools/training/reporter.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/files_in_use.h"
#include "base/hash.h"
#include "base/time_text.h"
#include "base/write_file.h"
#include "tools/commands.h"
#include "tools/supervise.h"
#include "tools/training/interrupts.h"
#include "trace/chrome.h"
#include "train/loop/flight_record.h"
#include "train/loop/measured.h"
#include "train/loop/plant_fault.h"
#include "train/run_problems.h"

namespace piper {
namespace {

double wall_clock_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

RunDescription describe(const Training& training, const LoadedTraining& loaded) {
  RunDescription out;
  out.model = training.model().name;
  out.schedule = loaded.schedule_path;
  out.plan_hash = fmt::format("{:016x}", hash(training.plan()));
  out.parameters = parameter_count(training.graph());
  out.devices = device_count(training.plan());
  out.batch = training.model().step.batch;
  out.sequence = training.model().step.sequence;
  out.steps = loaded.config.run.steps;
  out.seed = loaded.config.run.seed;
  out.data = training.data().describe();
  if (training.prediction()) out.predicted_seconds = training.prediction()->seconds;
  return out;
}

/// Messages that did not come, outside of steps: who is to blame is seen from what everybody does.
RunError as_run_error(Training& training, const CommunicationError& problem) {
  if (dynamic_cast<const JobStopped*>(&problem)) return {RunProblem::Elsewhere, problem.what()};
  const std::vector<DeviceProgress> devices = training.job().progress();
  const std::string silent = describe_silent(devices);
  return {RunProblem::Stalled, fmt::format("{}{}{}\n{}", problem.what(), silent.empty() ? "" : ": ", silent,
                                           describe_progress(training.plan(), devices))};
}

}  // namespace

Reporter::Reporter(const TrainCommand& command, const LoadedTraining& loaded, Training& training, World* world,
                   Recovery& recovery)
    : loaded_(loaded),
      config_(loaded.config),
      training_(training),
      run_(training.run()),
      world_(world),
      recovery_(recovery),
      report_(recovery.report),
      speaks_(!world || world->rank() == 0),
      color_(command.input.color),
      resume_(command.resume),
      trace_(!command.trace.empty() ? command.trace
             : config_.run.trace    ? config_.run.trace->path
                                    : ""),
      metrics_file_(!command.metrics.empty() ? NamedFile{command.metrics, {}} : config_.run.metrics) {}

Ending Reporter::run() {
  try {
    return begin_and_take_steps();
  } catch (const RunError& problem) {
    return failed(problem);
  } catch (const CommunicationError& problem) {
    return failed(as_run_error(training_, problem));
  }
}

Ending Reporter::begin_and_take_steps() {
  run_.begin();
  checkpoints_.emplace(config_.run.checkpoints, training_, color_);
  if (auto ready = checkpoints_->begin(); !ready) return refusal(ready.error(), run_failed);
  std::optional<OnTerminate> on_terminate;
  if (keeps_record()) {
    std::remove(record_name().c_str());  // of an earlier run
    on_terminate.emplace([this] { leave_record("the launcher ended this process"); });
  }
  const auto went_on = go_on();
  if (!went_on) return refusal(went_on.error(), run_failed);
  int code = speaks_ ? prepare_files(*went_on) : fine;
  if (code == fine && config_.init && !*went_on)
    if (auto begun = initialize(); !begun) return refusal(begun.error(), refused);
  if (code == fine && !resume_.empty() && !*went_on)
    if (auto resumed = checkpoints_->resume(resume_); !resumed) return refusal(resumed.error(), refused);
  if (code == fine && keeper_) keeper_->keep(training_.progress());
  if (code == fine) code = take_steps(*went_on);
  if (code == fine) code = finish();
  on_terminate.reset();
  const Ending ending{code, true};
  if (!ending.failed() && keeps_record()) std::remove(record_name().c_str());
  return ending;
}

Ending Reporter::refusal(const Diagnostic& why, int code) {
  if (speaks_) report_text(why, color_);
  return {code, speaks_, render(why)};
}

std::string Reporter::record_name() const {
  return fmt::format("{}.rank{}.flight", metrics_file_->path, world_->rank());
}

/// What this process did last, next to the metrics: others may be gone, so nobody collects it.
void Reporter::leave_record(const std::string& reason) {
  const std::lock_guard lock(recording_);
  FlightFile file;
  file.rank = world_->rank();
  file.host = host_name();
  file.reason = reason;
  const Together* together = run_.together();
  file.clock_error = together ? together->clock_error_here() : 0;
  add_events(file, run_.plan(), flights_of(run_.job().devices()), together ? together->clock_ahead() : 0);
  if (auto written = write_file(record_name(), print(file)); !written) report_unwritable(written.error(), color_);
}

/// With what the devices held when others were lost, if some were. False: there is nothing to go on with.
Result<bool> Reporter::go_on() {
  if (!world_ || !recovery_.wanted || world_->ranks() == 1) return false;
  keeper_.emplace(run_, recovery_.states, recovery_.hosts);
  if (recovery_.fault && recovery_.epoch > 0) strike(*recovery_.fault);
  recovery_.times.planned = seconds_now();
  PIPER_TRY(const std::optional<StatePosition> progress, keeper_->restore());
  recovery_.times.restored = seconds_now();
  if (!progress) return false;
  training_.go_on_after(*progress);
  last_.step = progress->step - 1;
  last_.loss = progress->loss;
  if (speaks_) put(fmt::format("goes on after step {}\n", progress->step));
  std::fflush(stdout);
  return true;
}

/// Of the first step after others were lost: how long each phase took, as far as this process was there.
void Reporter::say_phases() {
  RecoveryTimes& times = recovery_.times;
  if (speaks_ && recovery_.epoch > 0 && times.agreed && times.met) {
    std::string text;
    if (times.last_step && times.noticed)
      text = fmt::format("noticed within {}, agreed after {}, ", human_seconds(*times.noticed - *times.last_step),
                         human_seconds(*times.agreed - *times.noticed));
    put(fmt::format("back: {}met after {}, planned after {}, state after {}, step after {}\n", text,
                    human_seconds(*times.met - *times.agreed), human_seconds(times.planned - *times.met),
                    human_seconds(times.restored - times.planned), human_seconds(seconds_now() - times.restored)));
    std::fflush(stdout);
  }
  times = {};
}

/// Whether it is others that are lost. This process goes on with those that are left, or, where it cannot, ends so
/// that they go on without it.
bool Reporter::goes_on_after(const RunError& problem) {
  if (!world_ || !recovery_.wanted || problem.problem == RunProblem::NotFinite) return false;
  const bool by_others =
      problem.problem == RunProblem::Elsewhere || problem.problem == RunProblem::Stalled || !world_->lost().empty();
  if (by_others && !training_.job().stuck()) {
    recovery_.times.noticed = seconds_now();
    world_->leave();
    return true;
  }
  report_failure(training_, problem, color_);
  std::fflush(nullptr);
  std::_Exit(run_failed);
}

Ending Reporter::failed(const RunError& problem) {
  if (goes_on_after(problem)) return {run_failed, false, render(as_diagnostic(problem)), true};
  if (keeps_record()) leave_record(problem.what());
  const bool known_to_all = problem.problem == RunProblem::NotFinite && !speaks_;
  if (problem.problem == RunProblem::Elsewhere || known_to_all)
    return {run_failed, false, render(as_diagnostic(problem))};
  report_failure(training_, problem, color_);
  for (const std::string& process : silent_processes(training_.job().progress())) say_blame(host_of(process));
  if (!world_ && checkpoints_) checkpoints_->wait();
  if (!world_) end_if_stuck(training_);
  return {run_failed, true};
}

/// With weights of others.
Checked Reporter::initialize() {
  PIPER_TRY(const std::vector<std::string> notes, training_.initialize_from(config_.init->path));
  if (!speaks_) return Ok{};
  put(fmt::format("begins with the weights in {}\n", config_.init->path));
  for (const std::string& note : notes) put(fmt::format("  {}\n", note));
  std::fflush(stdout);
  return Ok{};
}

/// A long run is not lost because of a name.
int Reporter::prepare_files(bool goes_on) {
  const RunDescription description = describe(training_, loaded_);
  if (metrics_file_ && !report_.metrics) {
    auto created = MetricsFile::create(*metrics_file_, description);
    if (!created) return report_unwritable(created.error(), color_);
    report_.metrics = std::move(*created);
    use_file(metrics_file_->path, "metrics");
  }
  if (config_.run.tensorboard && !report_.events) {
    auto created = EventFile::create(*config_.run.tensorboard);
    if (!created) return report_unwritable(created.error(), color_);
    report_.events = std::move(*created);
  }
  if (!trace_.empty())
    if (auto writable = check_writable(trace_); !writable) return report_unwritable(writable.error(), color_);
  if (goes_on) return fine;
  put(fmt::format("{}: {} parameters, {} device{}{}, batch {} x {} tokens; data: {}\n", description.model,
                  description.parameters, description.devices, description.devices == 1 ? "" : "s",
                  world_ ? fmt::format(" in {} processes", world_->ranks()) : "", description.batch,
                  description.sequence, description.data));
  put(fmt::format("schedule {}, plan {}{}\n", description.schedule.empty() ? "of one device" : description.schedule,
                  description.plan_hash,
                  description.predicted_seconds
                      ? fmt::format(", a step takes {} by prediction", human_seconds(*description.predicted_seconds))
                      : ""));
  const StartUp& start_up = training_.start_up();
  put(fmt::format("ready after {}: {} for the plan, {} for the devices\n",
                  human_seconds(start_up.plan + start_up.devices), human_seconds(start_up.plan),
                  human_seconds(start_up.devices)));
  std::fflush(stdout);
  return fine;
}

int Reporter::take_steps(bool again) {
  const WatchInterrupts watching;
  ProgressLine progress(stderr, progress_style(stderr), config_.run.steps);
  const auto show = [&](const StepMetrics& step) -> Checked {
    progress.show(step, seconds_now());
    if (report_.events) PIPER_CHECK(report_.events->add(step.step, scalars_of(step), wall_clock_seconds()));
    return report_.metrics ? report_.metrics->add(step) : Ok{};
  };
  constexpr int save_asked = 1 << 10;  // beyond all signals
  if (speaks_) say_step(run_.steps());
  if (again && training_.evaluates_now())  // that of the step before may have been interrupted
    if (auto written = evaluate(progress); !written) return report_unwritable(written.error(), color_);
  double said = -1;  // when
  while (run_.steps() < wanted() && (stopped_by_ == 0 || !training_.between_updates())) {
    last_ = training_.step();
    if (report_.times.empty()) report_.first_loss = last_.loss;
    report_.times.add(last_.seconds);
    if (speaks_)
      if (auto shown = show(last_); !shown) return report_unwritable(shown.error(), color_);
    if (speaks_ && seconds_now() > said + 0.1) {
      say_step(run_.steps());
      said = seconds_now();
    }
    const int asked = run_.greatest(WatchInterrupts::asked_by() + (checkpoints_->due_by_time() ? save_asked : 0));
    stopped_by_ = std::max(stopped_by_, asked % save_asked);
    checkpoints_->after_step(asked >= save_asked);
    if (keeper_ && training_.between_updates()) keeper_->keep(training_.progress());
    say_phases();
    recovery_.times.last_step = seconds_now();
    if (stopped_by_ == 0 && training_.evaluates_now())
      if (auto written = evaluate(progress); !written) return report_unwritable(written.error(), color_);
  }
  progress.finish();
  if (auto saved = checkpoints_->finish(); !saved) return run_failed;
  return fine;
}

Checked Reporter::evaluate(ProgressLine& progress) {
  const EvaluationMetrics found = training_.evaluate();
  if (!speaks_) return Ok{};
  progress.finish();
  std::fputs(print_line(found).c_str(), stderr);
  if (report_.events) PIPER_CHECK(report_.events->add(found.steps, scalars_of(found), wall_clock_seconds()));
  return report_.metrics ? report_.metrics->add(found) : Ok{};
}

int Reporter::finish() {
  const std::vector<DeviceFlight> flights = run_.flights();
  const int code = run_.steps() < wanted() ? by_signal + stopped_by_ : fine;
  if (!speaks_) return code;
  if (code != fine)
    put(fmt::format("stopped after {} of {} steps: {}\n", run_.steps(), wanted(), strsignal(stopped_by_)));
  if (report_.times.empty()) {
    put(fmt::format("nothing to do: all {} steps have been taken\n", wanted()));
    return code;
  }
  put(fmt::format("loss {:.6f} -> {:.6f}\n", report_.first_loss, last_.loss));
  put(device_table(training_.plan(), flights, last_.step));
  put(print_prediction(report_.times, last_.predicted_seconds));
  if (trace_.empty()) return code;
  const Trace measured = measured_trace(training_.plan(), flights, training_.cluster(), training_.tokens_per_step());
  if (auto written = write_file(trace_, print_chrome(measured)); !written)
    return report_unwritable(written.error(), color_);
  put(fmt::format("trace of the last steps: {}\n", trace_));
  if (run_.together())
    put(fmt::format("clocks of other processes are known to {}\n", human_seconds(run_.together()->clock_error())));
  return code;
}

}  // namespace piper
