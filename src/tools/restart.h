// A job that has failed is started again: from its newest checkpoint, without the hosts that are to blame.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "tools/host_list.h"
#include "tools/supervise.h"

namespace piper {

/// What `piper train` gets when the job is started again: the same, and --resume.
std::vector<std::string> resuming(const std::vector<std::string>& train);

/// Whether the arguments of `piper train`, or the configuration that they name, say where checkpoints are.
bool saves_checkpoints(const std::vector<std::string>& train);

/// A line for people about a job that has failed and is not started again: the newest of its checkpoints. Empty: it
/// saves none.
std::string newest_checkpoint(const std::vector<std::string>& train);

/// Hosts without those to blame; all of them where too few would be left for so many processes.
std::vector<Host> without(const std::vector<Host>& hosts, const std::set<std::string>& blamed, int processes);

/// How long the job stood still, phase by phase, and how many steps are taken again.
std::string describe_restart(int restart, int restarts, const Supervised& failed, const Supervised& again);

}  // namespace piper
