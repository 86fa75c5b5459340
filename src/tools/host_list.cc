#include "tools/host_list.h"

#include <fmt/format.h>
#include <netdb.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/read_file.h"

namespace piper {
namespace {

constexpr std::string_view blanks = " \t\r";
constexpr std::string_view slots = "slots=";

Host read_host(const SourceFilePtr& file, size_t begin, std::string_view line) {
  const size_t end = std::min(line.find_first_of(" \t\r:"), line.size());
  Host host{std::string(line.substr(0, end)), {}, {file, static_cast<int>(begin), static_cast<int>(begin + end)}};
  size_t number = line.find(slots);
  if (number != std::string_view::npos) number += slots.size();
  if (end < line.size() && line[end] == ':') number = end + 1;
  if (number < line.size())
    host.processes = line.substr(number, std::min(line.find_first_not_of("0123456789", number), line.size()) - number);
  return host;
}

Checked check_known(const Host& host) {
  addrinfo* addresses = nullptr;
  const int problem = getaddrinfo(host.name.c_str(), nullptr, nullptr, &addresses);
  if (addresses) freeaddrinfo(addresses);
  if (problem == 0) return Ok{};
  return error(ErrorCode::E805, host.where,
               fmt::format("there is no host \"{}\": {}", host.name, gai_strerror(problem)))
      .help("write a name that `getent hosts NAME` finds, or an address");
}

}  // namespace

Result<std::vector<Host>> read_hosts(const std::string& path) {
  PIPER_TRY(const SourceFilePtr file, read_file(path, "the list of hosts"));
  const std::string_view text = file->text;
  std::vector<Host> hosts;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    line = line.substr(0, line.find('#'));
    if (const size_t first = line.find_first_not_of(blanks); first != std::string_view::npos) {
      hosts.push_back(read_host(file, begin + first, line.substr(first)));
      PIPER_CHECK(check_known(hosts.back()));
    }
    begin = end + 1;
  }
  if (!hosts.empty()) return hosts;
  return error(ErrorCode::E805, {file, 0, 0}, "the list of hosts is empty")
      .help("write a host a line, as in `node3 slots=4`");
}

ListOfHosts::ListOfHosts(const std::vector<Host>& hosts)
    : path_((std::filesystem::temp_directory_path() / fmt::format("piper-hosts-{}", getpid())).string()) {
  std::ofstream out(path_);
  for (const Host& host : hosts)
    out << host.name << (host.processes.empty() ? "" : fmt::format(" slots={}", host.processes)) << "\n";
}

ListOfHosts::~ListOfHosts() {
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

}  // namespace piper
