// The command line of training.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace piper {

struct TrainInput;

/// Adds the command to the program. If the user chooses it, `chosen` becomes what runs it and returns the exit code.
/// `usual`: what holds if the user says nothing else.
void add_train(CLI::App& program, std::function<int()>& chosen, const TrainInput& usual);
/// `launch` becomes the launcher of MPI, which starts `train` in several processes.
void add_launch(CLI::App& program, std::function<int()>& chosen, const TrainInput& usual);
/// What there is here, or on all hosts of a job.
void add_doctor(CLI::App& program, std::function<int()>& chosen, const TrainInput& usual);
void add_diff(CLI::App& program, std::function<int()>& chosen, const TrainInput& usual);
void add_profile(CLI::App& program, std::function<int()>& chosen, const TrainInput& usual);
void add_kernels(CLI::App& program, std::function<int()>& chosen, const TrainInput& usual);

}  // namespace piper
