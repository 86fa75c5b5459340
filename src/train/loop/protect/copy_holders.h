// Which processes have copies of what another one holds.
#pragma once

#include <string>
#include <vector>

namespace piper {

/// What is lost at once: a host, or, where all processes are on one, a process. By rank, numbered.
std::vector<int> lost_together(const std::vector<std::string>& hosts);

/// So many ranks on, modulo their number, is the process that has the first copy; as many further on the one with the
/// second. As many as possible are lost apart from the process; the nearest of equally good ones. 0: there are too few
/// processes.
int distance_of_copies(const std::vector<int>& lost_together, int copies);

}  // namespace piper
