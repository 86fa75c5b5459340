#include "tools/train_command.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/hash.h"
#include "base/invariant.h"
#include "base/read_file.h"
#include "comm/processes/launcher.h"
#include "cost/cost_table.h"
#include "cost/load_cluster.h"
#include "tools/commands.h"
#include "tools/supervise.h"
#include "tools/training/ending.h"
#include "tools/training/load_training.h"
#include "tools/training/recovery.h"
#include "tools/training/reporter.h"
#include "train/devices/join_mpi.h"
#include "train/devices/join_tcp.h"
#include "train/devices/use_gpu.h"
#include "train/loop/plant_fault.h"
#include "train/run_problems.h"

namespace piper {
namespace {

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
                                    std::unique_ptr<TcpRendezvous>& rendezvous, Recovery& recovery) {
  if (input.backend == "local") return std::unique_ptr<World>();
  if (loaded.emulate)
    return error(ErrorCode::E805, {}, "a network is emulated between threads of one process only")
        .help(fmt::format("leave --emulate out, or --backend {}", input.backend));
  say_joining(launched_rank().value_or(0));
  if (input.backend == "mpi") return join_mpi(limit_at_start(timeout));
  if (!rendezvous) {
    PIPER_TRY(rendezvous, find_rendezvous());
  }
  const bool again = recovery.epoch >= 0;
  const auto limit =
      again ? std::chrono::milliseconds(static_cast<int64_t>(1e3 * timeout.least)) : limit_at_start(timeout);
  constexpr int attempts = 5;
  PIPER_TRY(JoinedEpoch joined, join_tcp(*rendezvous, limit, recovery.wanted ? attempts : 0, recovery.states.done));
  recovery.epoch = joined.epoch.number;
  recovery.states.done = joined.epoch.done;
  recovery.times.agreed = static_cast<double>(joined.agreed.time_since_epoch().count()) * 1e-9;
  recovery.times.met = seconds_now();
  return std::move(joined.world);
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

/// The first of those that were wanted here.
std::optional<PlantedFault> planted_here(const TrainCommand& command, int rank) {
  for (const std::string& text : command.faults)
    if (const auto fault = parse_planted_fault(text); fault && fault->rank == rank) return fault;
  return {};
}

constexpr int most_refusals = 3;

/// `number`: of this process among those that were started.
Ending train(const TrainCommand& command, const LoadedTraining& loaded, World* world, int number,
             Recovery& recovery) try {
  const bool color = command.input.color;
  TrainingOptions options;
  std::unique_ptr<Processor> gpu;
  const bool speaks = !world || world->rank() == 0;
  const auto refusal = [&](const Diagnostic& why) {
    // what all of them could do before is refused now because one is lost, perhaps silent
    const bool again = recovery.epoch > 0 && recovery.refusals++ < most_refusals;
    if (world && recovery.wanted && (again || !world->lost().empty()))
      return Ending{run_failed, false, render(why), true};
    if (speaks) report_text(why, color);
    return Ending{recovery.epoch > 0 ? run_failed : refused, speaks, render(why)};
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
    options.identity = identity_of(command.input, loaded, *world, *options.processor);
  }
  if (const auto fault = planted_here(command, number)) {
    if (fault->when == PlantedFault::When::Forming) strike(*fault);
    if (fault->when == PlantedFault::When::Restoring) recovery.fault = fault;
    options.fault = fault;
  }
  if (world && recovery.wanted) {
    auto hosts = hosts_of(*world, options.job.timeout);
    if (!hosts) return refusal(hosts.error());
    recovery.hosts = std::move(*hosts);
    if (!recovery.states.versions[0].own.whole) options.hosts = recovery.hosts;  // otherwise the memory is taken
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
  if (recovery.wanted && recovery.epoch > 0) end_alone(as_diagnostic(problem), command.input.color);
  report_text(as_diagnostic(problem), command.input.color);
  return {run_failed, true};
} catch (const std::exception& problem) {  // in one of several processes: the others wait for it
  if (!world) throw;
  if (recovery.wanted && !world->lost().empty()) return {run_failed, false, std::string(problem.what()) + "\n", true};
  Diagnostic why =
      error(ErrorCode::E801, {}, fmt::format("{} cannot begin: {}", name_of_process(*world), problem.what()));
  if (recovery.wanted && recovery.epoch > 0) end_alone(why, command.input.color);
  report_text(std::move(why).help("the other processes were ended too"), command.input.color);
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
    if (!joined && recovery.epoch >= 0) end_after_losses(recovery, joined.error(), color);
    if (!joined && command.input.backend != "local") end_before(joined.error(), color);
    if (!joined) return report_text(joined.error(), color);
    const std::unique_ptr<World> world = std::move(*joined);
    const int rank = world ? world->rank() : 0;
    const Ending ending =
        train(command, *loaded, world.get(), rendezvous ? launched_rank().value_or(0) : rank, recovery);
    if (ending.goes_on) {
      recovery.why = ending.why;
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
