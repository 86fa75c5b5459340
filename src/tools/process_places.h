// On which hosts the processes of a job are started that meet by TCP.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "tools/host_list.h"

namespace piper {

/// By the number of the process: a host's name. Hosts are filled in their order, each with as many as it says (one, if
/// it does not say). Spares get the places that are left, then one on each host in turn, the last host first. E805:
/// there are too few places.
Result<std::vector<std::string>> places_on(const std::vector<Host>& hosts, int processes, int spares);

/// This host, under one of its names.
bool is_this_host(const std::string& name);

/// The numeric address at which another host reaches this one. E805: there is no way to it.
Result<std::string> address_for(const std::string& other);

/// The command line of another host's shell that runs a program there, in the current folder of this process, with
/// these variables. Whatever the shell reads first from its input is the value of `secret`, a variable that nobody else
/// should see.
std::string remote_command(const std::vector<std::string>& line,
                           const std::vector<std::pair<std::string, std::string>>& variables,
                           const std::string& secret);

}  // namespace piper
