#include "tools/train_options.h"

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdlib>
#include <memory>

#include "tools/doctor_command.h"
#include "tools/launch_command.h"
#include "tools/number_option.h"
#include "tools/on_choice.h"
#include "tools/train_command.h"
#include "train/checkpoint_config.h"
#include "train/planted_fault.h"

namespace piper {
namespace {

void add_input(CLI::App& app, TrainInput& input, const std::string& steps) {
  app.add_option("CONFIG", input.config, "Configuration (.toml): model, step, optimizer, data, run")->required();
  app.add_option("--schedule", input.schedule, "Schedule file, instead of the configuration's");
  app.add_option("--steps", input.steps, steps)->check(whole_number(1, 1'000'000'000'000));
  app.add_option("--seed", input.seed, "Seed of weights, data and dropout, instead of the configuration's")
      ->check(whole_number(0, INT64_MAX));
  app.add_option("--devices", input.devices, "Refuse a schedule with another number of devices")
      ->check(whole_number(1, 1'000'000));
  app.add_option("--on", input.on,
                 "Where to compute: cpu, or cuda: the GPU of this machine, which all devices share; with several "
                 "processes each has its own")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_flag("--deterministic", input.deterministic, "On a GPU: the same bits in every run, at some cost");
  app.add_option("--emulate", input.emulate,
                 "Delay messages as the links of this cluster would: a shipped one, or a file (.toml)");
  app.add_option("--threads", input.threads, "Threads of every device inside one operator")
      ->check(whole_number(1, 1024))
      ->capture_default_str();
  app.add_flag("--color,!--no-color", input.color, "Colours (default: only on a terminal)");
}

void add_kernel_cache(CLI::App& app, TrainInput& input) {
  app.add_option("--kernel-cache", input.kernel_cache, "Folder for compiled kernels (default: ~/.cache/piper/kernels)");
}

void add_kernel_options(CLI::App& app, TrainInput& input) {
  app.add_option("--kernels", input.kernels,
                 "How chunks run: eager, as recorded operators; inductor, compiled by PyTorch's Inductor")
      ->check(CLI::IsMember({"eager", "inductor"}))
      ->capture_default_str();
  add_kernel_cache(app, input);
}

}  // namespace

void add_train(CLI::App& program, std::function<int()>& chosen, const TrainInput& usual) {
  CLI::App* app = program.add_subcommand("train", "Train a model under a schedule");
  TrainCommand nothing;
  nothing.input = usual;
  const auto command = on_choice(*app, chosen, nothing);
  add_input(*app, command->input, "Steps, instead of the configuration's");
  app->add_option(
         "--backend", command->input.backend,
         "Where devices run: local, as threads of this process; mpi, in processes that mpirun started; tcp, in "
         "those of `piper launch --backend tcp`")
      ->check(CLI::IsMember({"local", "mpi", "tcp"}))
      ->capture_default_str();
  app->add_option("--trace", command->trace, "Write when every operation of the last steps ran");
  app->add_option("--metrics", command->metrics, "Write loss and speed of every step, one JSON object per line");
  app->add_option("--cluster", command->cluster,
                  "Cluster that the plan is compiled for, as in `piper simulate`: a shipped one, or a file (.toml)");
  app->add_option("--costs", command->costs, "Measured costs that the plan is compiled for, as in `piper simulate`");
  app->add_option("--timeout", command->timeout, "Seconds that anything may take beyond ten times its expected time")
      ->check(any_number(0.1, 1e6))
      ->capture_default_str();
  app->add_option(
         "--graphs", command->input.graphs,
         "On a GPU: record a CUDA graph of every chunk (chunk), of every sequence of consecutive chunks (step), or "
         "nothing (none)")
      ->check(CLI::IsMember({"none", "chunk", "step"}))
      ->capture_default_str();
  add_kernel_options(*app, command->input);
  app->add_option("--checkpoints", command->checkpoints,
                  "Folder for checkpoints; the last step is always saved, also when a signal ends the run");
  app->add_option("--checkpoint-every", command->checkpoint_every, "Steps or time between checkpoints: 500, 10min")
      ->check([](const std::string& text) {
        return parse_interval(text) ? "" : "a number of steps, or a time such as 90s, 10min, 2h or 1d";
      });
  app->add_option("--keep", command->keep, "Keep only this many of the newest checkpoints (default: all)")
      ->check(whole_number(1, 1'000'000'000));
  app->add_option("--keep-every", command->keep_every, "With --keep: also keep those whose step is a multiple of this")
      ->check(whole_number(1, 1'000'000'000'000));
  add_size(*app, "--shard-size", "Largest size of a file of a checkpoint (default: 5GB)", "500MB or 2GiB",
           [command](int64_t bytes) { command->shard_size = bytes; });
  app->add_option("--init", command->init,
                  "Begin with the weights in this folder: a model folder of transformers, or a checkpoint");
  app->add_flag("--resume{newest}", command->resume,
                "Resume from the newest sound checkpoint of the folder; --resume=CHECKPOINT: from that one");
  app->add_option("--on-fault", command->on_fault,
                  "When other processes are lost: end; replace: go on with those that are left and the spares of "
                  "`piper launch --spares`")
      ->check(CLI::IsMember({"end", "replace"}))
      ->capture_default_str();
  app->add_option("--fault", command->faults, "Fail on purpose, to see how a job ends: KIND:RANK[:OPERATION]")
      ->allow_extra_args(false)
      ->check([](const std::string& text) {
        return parse_planted_fault(text)
                   ? ""
                   : "a fault is KIND:RANK:OPERATION, where KIND is kill, stop, throw, memory, hang "
                     "or plan, and OPERATION a number, joining, forming or restoring: stop:2:137";
      });
  app->footer("Example:\n  piper train examples/train_moe.toml --steps 20 --trace measured.json");
}

void add_launch(CLI::App& program, std::function<int()>& chosen, const TrainInput& usual) {
  CLI::App* app = program.add_subcommand("launch", "Train in several processes, on one host or many");
  LaunchCommand nothing;
  nothing.color = usual.color;
  const auto command = on_choice(*app, chosen, nothing);
  app->add_option("-n,--processes", command->processes, "Number of processes; each gets equally many devices")
      ->required()
      ->check(whole_number(1, 1'000'000));
  app->add_option("--hosts", command->hosts, "Host file, as for mpirun: one host per line (default: all on this host)");
  app->add_option("--interface", command->interface,
                  "Network between hosts: the name of an interface, such as eth0, or addresses, such as 10.0.0.0/8 "
                  "(default: all)");
  app->add_option("--backend", command->backend,
                  "What carries messages: mpi; or tcp, between processes that need no MPI")
      ->check(CLI::IsMember({"mpi", "tcp"}))
      ->capture_default_str();
  app->add_option(
         "--spares", command->spares,
         "With --backend tcp: start so many processes more, each of which takes the place of one that is lost; "
         "the run goes on, and no step is lost")
      ->check(whole_number(0, 1'000'000))
      ->capture_default_str();
  app->add_option("--launcher", command->launcher,
                  "Program that starts processes (default: the one of this build's MPI). With --backend tcp: what runs "
                  "a command on another host (default: ssh)");
  app->add_option(
         "--restarts", command->restarts,
         "Restart a failed job at most this many times, from its newest checkpoint, and without the hosts that "
         "caused the failure if --hosts has more than are needed")
      ->check(whole_number(0, 1'000'000))
      ->capture_default_str();
  app->add_option("TRAIN", command->train, "Arguments of `piper train`: CONFIG and options")->required();
  app->positionals_at_end();
  app->prefix_command();
  app->get_option("--interface")->needs(app->get_option("--hosts"));
  app->parse_complete_callback([command, app] {
    if (command->backend != "tcp" && command->spares > 0)
      throw CLI::ValidationError("--spares", "goes with --backend tcp");
    if (command->processes == 1 && command->spares > 0)
      throw CLI::ValidationError("--spares", "needs -n 2 or more: nobody else has what one process holds");
    if (command->backend != "tcp") return;
    if (app->count("--interface") > 0) throw CLI::ValidationError("--interface", "goes with --backend mpi");
    if (app->count("--launcher") > 0 && command->hosts.empty())
      throw CLI::ValidationError("--launcher", "goes with --backend mpi, or with --hosts");
  });
  app->footer("Example:\n  piper launch -n 2 examples/train_moe.toml --steps 20");
}

void add_doctor(CLI::App& program, std::function<int()>& chosen, const TrainInput& usual) {
  CLI::App* app = program.add_subcommand("doctor", "Show what this machine has, and what would not work on it");
  DoctorCommand nothing;
  nothing.command_line = usual.command_line;
  nothing.color = usual.color;
  const auto command = on_choice(*app, chosen, nothing);
  CLI::Option* hosts =
      app->add_option("--hosts", command->hosts,
                      "Host file, one host per line: examine each of them, and measure the links between them");
  app->add_option("--interface", command->interface, "Network between hosts, as for `piper launch`")->needs(hosts);
  app->add_option("--launcher", command->launcher, "Program that starts processes, as for `piper launch`")
      ->needs(hosts);
  app->add_option("--backend", command->backend,
                  "What to examine: local, this host; mpi, the hosts of all processes that mpirun started")
      ->check(CLI::IsMember({"local", "mpi"}))
      ->capture_default_str()
      ->excludes(hosts);
  app->add_option("--format", command->format, "Output format: text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  app->add_flag("--color,!--no-color", command->color, "Colours (default: only on a terminal)");
  app->footer("Examples:\n  piper doctor\n  piper doctor --hosts hosts --format json");
}

void add_diff(CLI::App& program, std::function<int()>& chosen, const TrainInput& usual) {
  CLI::App* app = program.add_subcommand("diff", "Find the first value in which a schedule differs from one device");
  const auto command = on_choice(*app, chosen, DiffCommand{usual, {}, {}, false, "text"});
  TrainInput& input = command->input;
  app->add_option("CONFIG", input.config, "Configuration (.toml), as for `piper train`")->required();
  app->add_option("--schedule", input.schedule, "Schedule file, instead of the configuration's");
  CLI::Option* against = app->add_option("--against", command->against,
                                         "Another schedule (default: one device that runs the same slices in turn)");
  app->add_option("--steps", input.steps, "Number of steps to compare, at most (default: 2)")
      ->check(CLI::Range(int64_t{1}, int64_t{1'000'000}));
  app->add_option("--seed", input.seed, "Seed of weights, data and dropout, instead of the configuration's");
  app->add_option("--tolerance", command->tolerance,
                  "Allowed difference relative to the norm (default: float64 1e-12, float32 1e-5, bfloat16 2e-2)")
      ->check([](const std::string& text) {
        char* end = nullptr;
        const double number = std::strtod(text.c_str(), &end);
        return *end == 0 && number >= 0 && std::isfinite(number) ? ""
                                                                 : "a tolerance is a number from 0 on, such as 1e-6";
      });
  app->add_flag("--find-nan", command->find_nan, "Compare nothing: find the first value that is not finite")
      ->excludes(against)
      ->excludes(app->get_option("--tolerance"));
  app->add_option("--threads", input.threads, "Threads of every device inside one operator")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app->add_option("--format", command->format, "Output format: text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  app->add_flag("--color,!--no-color", input.color, "Colours (default: only on a terminal)");
  app->footer(
      "Examples:\n  piper diff examples/train_moe.toml\n"
      "  piper diff examples/train_moe.toml --schedule mine.piper --against examples/train_dualpipev.piper\n"
      "  piper diff examples/train_moe.toml --find-nan --steps 100");
}

void add_profile(CLI::App& program, std::function<int()>& chosen, const TrainInput& usual) {
  CLI::App* app =
      program.add_subcommand("profile", "Measure computations and messages, so that the simulator can predict a run");
  const auto command = on_choice(*app, chosen, ProfileCommand{usual, {}});
  add_input(*app, command->input, "Steps that are measured, after one that is not (default: 5)");
  app->add_option("-o,--output", command->output, "Folder for the model, its costs and the cluster")->required();
  app->add_option("--graphs", command->input.graphs,
                  "On a GPU: record a CUDA graph of every chunk (chunk), or nothing (none)")
      ->check(CLI::IsMember({"none", "chunk"}))
      ->capture_default_str();
  add_kernel_options(*app, command->input);
  app->footer("Example:\n  piper profile examples/train_moe.toml -o profile");
}

void add_kernels(CLI::App& program, std::function<int()>& chosen, const TrainInput& usual) {
  CLI::App* app = program.add_subcommand("kernels", "Build compiled kernels of chunks");
  app->require_subcommand(1);
  CLI::App* build = app->add_subcommand("build", "Compile the kernels of a run, without training");
  TrainInput compiled = usual;
  compiled.kernels = "inductor";
  TrainInput& input = on_choice(*build, chosen, KernelsBuildCommand{compiled})->input;
  build->add_option("CONFIG", input.config, "Configuration (.toml), as for `piper train`")->required();
  build->add_option("--schedule", input.schedule, "Schedule file, instead of the configuration's");
  build->add_option("--on", input.on, "Where the run will compute: cpu, or cuda: the GPU of this machine")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  build->add_option("--threads", input.threads, "Threads of every device inside one kernel")
      ->check(whole_number(1, 1024))
      ->capture_default_str();
  add_kernel_cache(*build, input);
  build->add_flag("--color,!--no-color", input.color, "Colours (default: only on a terminal)");
  build->footer("Example:\n  piper kernels build examples/train_moe.toml");
}

}  // namespace piper
