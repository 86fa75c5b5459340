// The commands of the program. Each is a plain struct of options and a function that runs it and returns the exit code.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "compile/compile.h"
#include "model/analytic/step_overrides.h"
#include "plan/checkpoint_memory.h"
#include "search/hints.h"
#include "timelines/library.h"

namespace piper {

/// 0 fine, 1 the input is refused, 2 usage, 3 the run failed, 70 an internal error; a signal has ended it: 128 and its
/// number, as shells have it.
enum ExitCode { fine = 0, refused = 1, usage = 2, run_failed = 3, our_bug = 70, by_signal = 128 };

/// What all commands that compile have in common.
struct CompileInput {
  std::string model;
  std::string schedule;
  std::string timeline;                   // a file whose orders the step follows
  std::vector<std::string> instead = {};  // directives that take the place of the schedule's
  std::string cluster;                    // name or file; empty: unspecified accelerators
  std::string costs;                      // file; empty: by formula
  bool evaluation = false;                // the plan of an evaluation instead of that of a step
  StepOverrides step;
  std::string format = "text";
  bool color = false;
  int columns = 100;
};

struct CompileCommand {
  CompileInput input;
  std::string emit = "plan";
  std::optional<int> device;
  std::vector<std::string> dump_after;
  bool time_passes = false;
};
int run(const CompileCommand& command);

struct CheckCommand {
  CompileInput input;
  std::string kernels = "eager";               // how chunks will run
  bool checkpoint = false;                     // also the memory of the hosts that saving takes
  std::optional<int> processes = {};           // that save; none: one for each device
  std::vector<std::string> command_line = {};  // from the name of the program on
};
int run(const CheckCommand& command);

struct ExplainCommand {
  CompileInput input;
  std::string node;
};
int run(const ExplainCommand& command);

struct ScheduleCommand {
  std::string name;
  std::string from;  // a file instead of a name
  TimelineRequest request;
  std::string costs;      // as written: F=1,I=1,W=1,comm=0
  std::string placement;  // by name; empty: the timeline's
  std::string backward = "split";
  std::string format = "timeline";
  bool communication = false;  // sends and receives between the passes
  bool list = false;
  bool color = false;
  int columns = 100;
  std::optional<int> width;  // pixels of a picture
};
int run(const ScheduleCommand& command);

/// What steps are compiled from besides their model.
struct LoadedInput {
  Schedule schedule;
  Cluster cluster;  // unspecified accelerators if the input names none
};
Result<LoadedInput> load_input(const CompileInput& input);

/// A compiled step, and the cluster it is for. A plan that does not fit can still be looked at.
struct CompiledInput {
  Compiled compiled;
  Cluster cluster;
  std::optional<CostTable> costs;
  Schedule schedule = {};
  PlanFor plan_for = PlanFor::Training;

  Checked fits() const;  // E405, with what would help
};
/// Loads everything the input names and compiles it.
Result<CompiledInput> compile_input(const CompileInput& input, const CompileOptions& options = {});
/// The same, where some of it is loaded.
Result<CompiledInput> compile_input(const CompileInput& input, const LoadedInput& loaded,
                                    const CompileOptions& options = {});
/// Of a model, and perhaps of a run.
bool is_configuration(const CompileInput& input);
/// Devices with all the memory that is asked for: whether a plan fits is said when all else is shown.
Cluster without_limits(Cluster cluster);
/// What training makes of a configuration, with the captured model.
struct TrainingAnswer {
  std::optional<Compiled> compiled = {};    // nothing: the model has an analytic form only, or nobody could be asked
  std::optional<Compiled> evaluation = {};  // if the configuration has one
  bool asked = true;                        // there is libtorch, or nothing to ask
};
Result<TrainingAnswer> ask_training(const CheckCommand& command, const LoadedInput& loaded);
/// Its sizes are those of a run with compiled kernels.
inline bool compiles_kernels(const CheckCommand& command) {
  return command.kernels == "inductor";
}
/// Goes on as the program that has libtorch, if it can be asked and is not this one.
void ask_with_libtorch(const CheckCommand& command);
/// Prints the diagnostic as the input's format wants it; the exit code.
int report(const CompileInput& input, const Diagnostic& problem);
int report(const std::string& format, bool color, const Diagnostic& problem);
int report_text(const Diagnostic& problem, bool color);
/// To the standard output.
void put(const std::string& text);

/// The summary of a compiled step as JSON; fields are documented in docs/json.md. `saved`: by process, where that is
/// wanted.
std::string summary_json(const Compiled& compiled, const std::vector<EqualCopies>& saved = {},
                         const std::vector<Hint>& hints = {});

}  // namespace piper
