// Ways out of an error that were tried: what a hint names compiles.
#pragma once

#include "compile/compile.h"

namespace piper {

/// The problem that compiling has found, with what would mend it: a batch that divides (E213), changes of the schedule
/// with which it fits, and their peaks (E405). What cannot be tried, or does not help, is not said. Of any other
/// problem nothing changes.
Diagnostic with_tried_hints(Diagnostic problem, const std::shared_ptr<const ModelGraph>& model,
                            const Schedule& schedule, const CompileOptions& options);

/// compile, with hints: for who shows the error to somebody.
Result<Compiled> compile_with_hints(const std::shared_ptr<const ModelGraph>& model, const Schedule& schedule,
                                    const CompileOptions& options);

/// E405: the plan does not fit on the cluster of the options, which it may have been compiled without.
Checked check_capacity_with_hints(const Compiled& compiled, const Schedule& schedule, const CompileOptions& options);

}  // namespace piper
