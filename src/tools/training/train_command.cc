#include "tools/train_command.h"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>

#include "base/files_in_use.h"
#include "base/hash.h"
#include "base/invariant.h"
#include "base/read_file.h"
#include "base/time_text.h"
#include "base/write_file.h"
#include "comm/processes/launcher.h"
#include "cost/cost_table.h"
#include "cost/load_cluster.h"
#include "tools/commands.h"
#include "tools/supervise.h"
#include "tools/training/load_training.h"
#include "tools/training/recovery.h"
#include "tools/training/run_checkpoints.h"
#include "trace/chrome.h"
#include "train/devices/join_mpi.h"
#include "train/devices/join_tcp.h"
#include "train/devices/use_gpu.h"
#include "train/loop/flight_record.h"
#include "train/loop/measured.h"
#include "train/loop/plant_fault.h"
#include "train/loop/protect/state_keeper.h"
#include "train/progress.h"
#include "train/run_problems.h"
#include "train/step_times.h"

namespace piper {
namespace {

volatile std::sig_atomic_t asked_by = 0, terminated = 0;  // the signal that asked for the end; SIGTERM came

/// While it lives, the first Ctrl-C (or SIGTERM, which launchers make of it, or SIGUSR1, of `piper launch`) only asks
/// for the end; the second ends the program at once.
class WatchInterrupts {
 public:
  WatchInterrupts()
      : interrupt_(std::signal(SIGINT, note)),
        terminate_(std::signal(SIGTERM, note)),
        user_(std::signal(SIGUSR1, note)) {}
  ~WatchInterrupts() {
    std::signal(SIGINT, interrupt_);
    std::signal(SIGTERM, terminate_);
    std::signal(SIGUSR1, user_);
  }

 private:
  static void note(int which) {
    asked_by = which;
    if (which == SIGTERM) terminated = 1;
    std::signal(which, SIG_DFL);
  }
  void (*interrupt_)(int);
  void (*terminate_)(int);
  void (*user_)(int);
};

/// What the plan is compiled for, so that it is the plan of a simulation with the same options.
Checked read_costs(const TrainCommand& command, TrainingOptions& options) {
  if (!command.cluster.empty()) {
    PIPER_TRY(options.cluster, load_cluster(command.cluster));
  }
  if (!command.costs.empty()) {
    PIPER_TRY(const SourceFilePtr file, read_file(command.costs, "cost table"));
    PIPER_TRY(options.costs, parse_cost_table(file));
  }
  return Ok{};
}

/// The processes of the job, or none if this one is all.
Result<std::unique_ptr<World>> join(const TrainInput& input, const LoadedTraining& loaded, const Timeouts& timeout,
                                    std::unique_ptr<TcpRendezvous>& rendezvous, const Recovery& recovery) {
  if (input.backend == "local") return std::unique_ptr<World>();
  if (loaded.emulate)
    return error(ErrorCode::E805, {}, "a network is emulated between threads of one process only")
        .help(fmt::format("leave --emulate out, or --backend {}", input.backend));
  say_joining(launched_rank().value_or(0));
  if (input.backend == "mpi") return join_mpi(limit_at_start(timeout));
  if (!rendezvous) {
    PIPER_TRY(rendezvous, find_rendezvous());
  }
  const auto limit =
      recovery.failed ? std::chrono::milliseconds(static_cast<int64_t>(1e3 * timeout.least)) : limit_at_start(timeout);
  constexpr int attempts = 5;
  return join_tcp(*rendezvous, limit, recovery.wanted ? attempts : 0);
}

/// What the processes of a job must have in common.
Identity identity_of(const TrainInput& input, const LoadedTraining& loaded, const World& world,
                     const Processor& processor) {
  StableHash text;
  text.add(loaded.file->text);
  Identity out = identity_of(world, processor, joins_gpus(), loaded.config.run.seed);
  out.emplace_back("the hash of the configuration", fmt::format("{:016x}", text.value()));
  out.emplace_back("the number of steps", fmt::format("{}", loaded.config.run.steps));
  out.emplace_back("the number of threads", fmt::format("{}", input.threads));
  out.emplace_back("what chunks run as", input.kernels);
  return out;
}

/// How a run has ended.
struct Ending {
  int code = fine;
  bool said = true;      // this process has said why, if it failed
  std::string why = {};  // if it has not: what it would say, for others say more
  bool goes_on = false;  // this process is well, but others are lost

  bool failed() const { return code != fine && code < by_signal; }
};

/// In a job of several processes that has failed: who has the most to say does so first, and is then the end of all.
/// Where nobody has, because that one is gone or stopped, the others do.
void say_why(const Ending& ending) {
  std::fflush(stdout);
  if (!ending.said) {
    std::this_thread::sleep_for(std::chrono::seconds(10));
    std::fputs(ending.why.c_str(), stderr);
  }
  say_end(ending.code);
  std::fflush(stderr);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));  // for what was said to be on its way
}
[[noreturn]] void end_together(World& world, const Ending& ending) {
  say_why(ending);
  world.end_everywhere(ending.code);
  std::_Exit(ending.code);
}
/// Before there is a world. A call of MPI may wait for the others and never return.
[[noreturn]] void end_before(const Diagnostic& problem, bool color) {
  const bool speaks = Launcher().first_here();
  if (speaks) report_text(problem, color);
  say_why({refused, speaks, render(problem)});
  std::_Exit(refused);
}

/// Others were lost, and nobody takes their places.
[[noreturn]] void end_after_losses(const Recovery& recovery, const Diagnostic& problem, bool color) {
  const bool speaks = Launcher().first_here();
  if (speaks) {
    std::fputs(recovery.why.c_str(), stderr);
    report_text(problem, color);
  }
  say_why({run_failed, speaks, recovery.why + render(problem)});
  std::_Exit(run_failed);
}

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

/// Looks often, on a thread of its own, whether the launcher wants this process to end. It may do so because another
/// one is gone, and kills soon.
class OnTerminate {
 public:
  explicit OnTerminate(std::function<void()> act) : act_(std::move(act)), thread_([this] { look(); }) {}
  ~OnTerminate() {
    ended_ = true;
    thread_.join();
  }

 private:
  void look() {
    while (!ended_ && !terminated) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    if (terminated) act_();
  }
  std::function<void()> act_;
  std::atomic<bool> ended_ = false;
  std::thread thread_;
};

/// Takes a run in this process to its end and reports it: the only one, or one of several, of which rank 0 speaks.
class Reporter {
 public:
  Reporter(const TrainCommand& command, const LoadedTraining& loaded, Training& training, World* world,
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

  Ending run() {
    try {
      run_.begin();
      checkpoints_.emplace(config_.run.checkpoints, training_, color_);
      if (auto ready = checkpoints_->begin(); !ready) {
        if (speaks_) report_text(ready.error(), color_);
        return {run_failed, speaks_, render(ready.error())};
      }
      std::optional<OnTerminate> on_terminate;
      if (keeps_record()) {
        std::remove(record_name().c_str());  // of an earlier run
        on_terminate.emplace([this] { leave_record("the launcher ended this process"); });
      }
      auto went_on = go_on();
      if (!went_on) {
        if (speaks_) report_text(went_on.error(), color_);
        return {run_failed, speaks_, render(went_on.error())};
      }
      int code = speaks_ ? prepare_files(*went_on) : fine;
      if (code == fine && config_.init && !*went_on)
        if (auto begun = initialize(); !begun)
          return {speaks_ ? report_text(begun.error(), color_) : refused, speaks_, render(begun.error())};
      if (code == fine && !resume_.empty() && !*went_on)
        if (auto resumed = checkpoints_->resume(resume_); !resumed)
          return {speaks_ ? report_text(resumed.error(), color_) : refused, speaks_, render(resumed.error())};
      if (code == fine && keeper_) keeper_->keep(training_.progress());
      if (code == fine) code = take_steps();
      if (code == fine) code = finish();
      on_terminate.reset();
      const Ending ending{code, true};
      if (!ending.failed() && keeps_record()) std::remove(record_name().c_str());
      return ending;
    } catch (const RunError& problem) {
      return failed(problem);
    } catch (const CommunicationError& problem) {
      return failed(as_run_error(training_, problem));
    }
  }

 private:
  bool keeps_record() const { return world_ && metrics_file_; }
  std::string record_name() const { return fmt::format("{}.rank{}.flight", metrics_file_->path, world_->rank()); }

  /// What this process did last, next to the metrics: others may be gone, so nobody collects it.
  void leave_record(const std::string& reason) {
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
  Result<bool> go_on() {
    if (!world_ || !recovery_.wanted || world_->ranks() == 1) return false;
    keeper_.emplace(run_, recovery_.states);
    const double planned = seconds_now();
    PIPER_TRY(const std::optional<StatePosition> progress, keeper_->restore());
    if (!progress) return false;
    training_.go_on_after(*progress);
    last_.step = progress->step - 1;
    last_.loss = progress->loss;
    if (!speaks_) return true;
    put(fmt::format("goes on after step {}", progress->step));
    if (recovery_.failed && recovery_.met_again)
      put(fmt::format(": {} until all had met again, {} for plan and devices, {} for what they held",
                      human_seconds(*recovery_.met_again - *recovery_.failed),
                      human_seconds(planned - *recovery_.met_again), human_seconds(seconds_now() - planned)));
    put("\n");
    std::fflush(stdout);
    return true;
  }

  /// Whether it is others that are lost. This process goes on with those that are left, or, where it cannot, ends so
  /// that they go on without it.
  bool goes_on_after(const RunError& problem) {
    if (!world_ || !recovery_.wanted || problem.problem == RunProblem::NotFinite) return false;
    const bool by_others =
        problem.problem == RunProblem::Elsewhere || problem.problem == RunProblem::Stalled || !world_->lost().empty();
    if (by_others && !training_.job().stuck()) {
      world_->leave();
      return true;
    }
    report_failure(training_, problem, color_);
    std::fflush(nullptr);
    std::_Exit(run_failed);
  }

  Ending failed(const RunError& problem) {
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
  Checked initialize() {
    PIPER_TRY(const std::vector<std::string> notes, training_.initialize_from(config_.init->path));
    if (!speaks_) return Ok{};
    put(fmt::format("begins with the weights in {}\n", config_.init->path));
    for (const std::string& note : notes) put(fmt::format("  {}\n", note));
    std::fflush(stdout);
    return Ok{};
  }

  /// A long run is not lost because of a name.
  int prepare_files(bool goes_on) {
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

  int take_steps() {
    const WatchInterrupts watching;
    ProgressLine progress(stderr, progress_style(stderr), config_.run.steps);
    const auto show = [&](const StepMetrics& step) -> Checked {
      progress.show(step, seconds_now());
      if (report_.events) PIPER_CHECK(report_.events->add(step.step, scalars_of(step), wall_clock_seconds()));
      return report_.metrics ? report_.metrics->add(step) : Ok{};
    };
    constexpr int save_asked = 1 << 10;  // beyond all signals
    if (speaks_) say_step(run_.steps());
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
      const int asked = run_.greatest(asked_by + (checkpoints_->due_by_time() ? save_asked : 0));
      stopped_by_ = std::max(stopped_by_, asked % save_asked);
      checkpoints_->after_step(asked >= save_asked);
      if (keeper_ && training_.between_updates()) keeper_->keep(training_.progress());
      if (stopped_by_ == 0 && training_.evaluates_now())
        if (auto written = evaluate(progress); !written) return report_unwritable(written.error(), color_);
    }
    progress.finish();
    if (auto saved = checkpoints_->finish(); !saved) return run_failed;
    return fine;
  }

  Checked evaluate(ProgressLine& progress) {
    const EvaluationMetrics found = training_.evaluate();
    if (!speaks_) return Ok{};
    progress.finish();
    std::fputs(print_line(found).c_str(), stderr);
    if (report_.events) PIPER_CHECK(report_.events->add(found.steps, scalars_of(found), wall_clock_seconds()));
    return report_.metrics ? report_.metrics->add(found) : Ok{};
  }

  int finish() {
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

  int64_t wanted() const { return config_.run.steps; }

  const LoadedTraining& loaded_;
  const TrainConfig& config_;
  Training& training_;
  TrainingRun& run_;
  World* const world_;
  Recovery& recovery_;
  RunReport& report_;
  const bool speaks_, color_;
  const std::string resume_;
  const std::string trace_;
  const std::optional<NamedFile> metrics_file_;
  std::mutex recording_;
  std::optional<RunCheckpoints> checkpoints_;
  std::optional<StateKeeper> keeper_;
  StepMetrics last_;    // step
  int stopped_by_ = 0;  // a signal, here or in another process
};

/// What the command line says about checkpoints, instead of the configuration.
Checked take_options(const TrainCommand& command, CheckpointConfig& checkpoints) {
  if (!command.checkpoints.empty()) checkpoints.folder = NamedFile{command.checkpoints, {}};
  if (const auto every = parse_interval(command.checkpoint_every)) checkpoints.every = *every;
  if (command.keep) checkpoints.keep = *command.keep;
  if (command.keep_every) checkpoints.keep_every = *command.keep_every;
  if (command.shard_size) checkpoints.shard_size = *command.shard_size;
  const std::pair<const char*, bool> given[] = {{"--checkpoint-every", !command.checkpoint_every.empty()},
                                                {"--keep", command.keep.has_value()},
                                                {"--keep-every", command.keep_every.has_value()},
                                                {"--shard-size", command.shard_size.has_value()}};
  for (const auto& [option, is_given] : given)
    if (is_given && !checkpoints.folder)
      return error(ErrorCode::E105, {}, fmt::format("{} means nothing without a folder for checkpoints", option))
          .help("name one: --checkpoints DIR, or checkpoints in [run]");
  if (checkpoints.keep_every > 0 && checkpoints.keep == 0)
    return error(ErrorCode::E105, {}, "--keep-every means nothing without --keep: all checkpoints stay")
        .help("for example --keep 3");
  return Ok{};
}

std::optional<PlantedFault> planted_here(const TrainCommand& command, int rank) {
  const auto fault = parse_planted_fault(command.fault);
  return fault && fault->rank == rank ? fault : std::nullopt;
}

/// `number`: of this process among those that were started.
Ending train(const TrainCommand& command, const LoadedTraining& loaded, World* world, int number,
             Recovery& recovery) try {
  const bool color = command.input.color;
  TrainingOptions options;
  std::unique_ptr<Processor> gpu;
  const bool speaks = !world || world->rank() == 0;
  const auto refusal = [&](const Diagnostic& why) {
    if (world && recovery.wanted && !world->lost().empty()) return Ending{run_failed, false, render(why), true};
    return Ending{speaks ? report_text(why, color) : refused, speaks, render(why)};
  };
  if (loaded.config.run.on == RunOn::Cuda) {
    auto found = use_gpu({.deterministic = loaded.config.run.deterministic,
                          .graphs = graphs_named(command.input.graphs),
                          .times_in_graphs = !command.trace.empty() || loaded.config.run.trace,
                          .world = world,
                          .timeout = timeouts_of(command.timeout)});
    if (!found) return refusal(found.error());
    gpu = std::move(*found);
    options.processor = gpu.get();
  }
  options.job.timeout = timeouts_of(command.timeout);
  options.job.run.recorded_steps = 3;
  options.emulate = loaded.emulate;
  options.threads = command.input.threads;
  options.kernels = kernels_of(command.input, speaks ? "" : name_of_process(*world) + ": ");
  if (auto read = read_costs(command, options); !read) return {report_text(read.error(), color), true};
  if (world) {
    options.world = world;
    options.survives = recovery.wanted && !recovery.states.versions[0].has_own;  // otherwise the memory is taken
    options.identity = identity_of(command.input, loaded, *world, *options.processor);
  }
  if (const auto fault = planted_here(command, number)) {
    if (fault->when == PlantedFault::When::Forming) strike(*fault);
    options.fault = fault;
  }
  auto made = Training::make(loaded.file, loaded.config, loaded.schedule, options);
  if (!made) return refusal(made.error());
  const Ending ending = Reporter(command, loaded, **made, world, recovery).run();
  if (world && ending.failed() && !ending.goes_on)
    end_together(*world, ending);  // while threads are stuck nothing can be destroyed
  return ending;
} catch (const RunError& problem) {  // before the first step
  if (recovery.wanted && (problem.problem == RunProblem::Elsewhere || !world->lost().empty()))
    return {run_failed, false, render(as_diagnostic(problem)), true};
  if (problem.problem == RunProblem::Elsewhere) return {run_failed, false, render(as_diagnostic(problem))};
  report_text(as_diagnostic(problem), command.input.color);
  return {run_failed, true};
} catch (const std::exception& problem) {  // in one of several processes: the others wait for it
  if (!world) throw;
  if (recovery.wanted && !world->lost().empty()) return {run_failed, false, std::string(problem.what()) + "\n", true};
  report_text(error(ErrorCode::E801, {}, fmt::format("{} cannot begin: {}", name_of_process(*world), problem.what()))
                  .help("the other processes were ended too"),
              command.input.color);
  return {dynamic_cast<const InternalError*>(&problem) ? our_bug : run_failed, true};
}

}  // namespace

int run(const TrainCommand& command) {
  const bool color = command.input.color;
  if (command.input.backend != "local") say_begin();
  auto loaded = load(command.input);
  if (!loaded) return report_text(loaded.error(), color);
  if (const auto taken = take_options(command, loaded->config.run.checkpoints); !taken)
    return report_text(taken.error(), color);
  if (command.on_fault == "replace" && command.input.backend != "tcp")
    return report_text(error(ErrorCode::E105, {}, "--on-fault replace goes with --backend tcp")
                           .help("start the job with piper launch --backend tcp --spares 1"),
                       color);
  if (!command.init.empty()) loaded->config.init = NamedFile{command.init, {}};
  if (const auto fault = planted_here(command, launched_rank().value_or(0));
      fault && fault->when == PlantedFault::When::Joining)
    strike(*fault);
  std::unique_ptr<TcpRendezvous> rendezvous;
  Recovery recovery;
  recovery.wanted = command.on_fault == "replace";
  while (true) {
    auto joined = join(command.input, *loaded, timeouts_of(command.timeout), rendezvous, recovery);
    if (!joined && rendezvous && rendezvous->not_needed()) return code_for_launcher(fine);
    if (!joined && recovery.failed) end_after_losses(recovery, joined.error(), color);
    if (!joined && command.input.backend != "local") end_before(joined.error(), color);
    if (!joined) return report_text(joined.error(), color);
    recovery.met_again = seconds_now();
    const std::unique_ptr<World> world = std::move(*joined);
    const int rank = world ? world->rank() : 0;
    const Ending ending =
        train(command, *loaded, world.get(), rendezvous ? launched_rank().value_or(0) : rank, recovery);
    if (ending.goes_on) {
      recovery.why = ending.why;
      recovery.failed = seconds_now();
      world->leave();
      continue;
    }
    if (world && ending.failed()) end_together(*world, ending);
    if (!world) return ending.code;
    if (rank == 0) say_end(ending.code);
    return code_for_launcher(ending.code);
  }
}

}  // namespace piper
