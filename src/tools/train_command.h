// Training, the measuring of what the simulator needs, and the search for differences: commands that need libtorch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace piper {

/// What they have in common: a configuration, and what the command line says instead of it.
struct TrainInput {
  std::vector<std::string> command_line;  // as it was typed
  std::string config;
  std::string schedule;
  std::string emulate;  // cluster: name or file
  std::optional<int64_t> steps;
  std::optional<uint64_t> seed;
  std::optional<int64_t> devices;
  std::string backend = "local";
  std::string on;  // what computes; empty: as the configuration says
  bool deterministic = false;
  std::string graphs = "none";  // of CUDA
  int threads = 1;              // of every device
  std::string kernels = "eager";
  std::string kernel_cache;  // folder; empty: the usual one
  bool color = false;
};

struct TrainCommand {
  TrainInput input;
  std::string trace, metrics;
  std::string cluster, costs;       // what the compiler orders operations by; empty: the emulated cluster, formulas
  double timeout = 10;              // seconds
  std::string on_fault = "end";     // what is done when other processes are lost; replace: the run goes on with spares
  std::vector<std::string> faults;  // on purpose
  std::string checkpoints;          // folder, and when; empty: as the configuration says
  std::string checkpoint_every;
  std::optional<int64_t> keep, keep_every, shard_size;
  std::string resume;  // `newest`, or a checkpoint; empty: a new run
  std::string init;    // folder of weights; empty: as the configuration says
};
int run(const TrainCommand& command);

struct DiffCommand {
  TrainInput input;
  std::string against;  // schedule; empty: one device that runs the same slices in turn
  std::optional<double> tolerance;
  bool find_nan = false;
  std::string format = "text";
};
int run(const DiffCommand& command);

struct ProfileCommand {
  TrainInput input;
  std::string output;  // a folder
};
int run(const ProfileCommand& command);

/// Compiles the kernels of a run, and does not train.
struct KernelsBuildCommand {
  TrainInput input;
};
int run(const KernelsBuildCommand& command);

}  // namespace piper
