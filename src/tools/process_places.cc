#include "tools/process_places.h"

#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

#include "comm/tcp/tcp_door.h"

namespace piper {
namespace {

/// For a shell.
std::string for_shell(const std::string& word) {
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

Diagnostic no_way_to(const std::string& host, const std::string& why) {
  return error(ErrorCode::E805, {}, fmt::format("host \"{}\" cannot be reached: {}", host, why))
      .help("write a name that `getent hosts NAME` finds, or an address");
}

}  // namespace

Result<std::vector<std::string>> places_on(const std::vector<Host>& hosts, int processes, int spares) {
  std::vector<std::string> out;
  const auto wanted = static_cast<size_t>(processes + spares);
  for (const Host& host : hosts)
    for (int slot = 0; slot < slots_of(host) && out.size() < wanted; ++slot) out.push_back(host.name);
  if (out.size() < static_cast<size_t>(processes))
    return error(ErrorCode::E805, hosts.front().where,
                 fmt::format("the hosts take {} process{}, and the job has {}", out.size(), out.size() == 1 ? "" : "es",
                             processes))
        .help("write how many each takes, as in `node3 slots=4`");
  for (size_t turn = 0; out.size() < wanted; ++turn) out.push_back(hosts[hosts.size() - 1 - turn % hosts.size()].name);
  return out;
}

bool is_this_host(const std::string& name) {
  std::array<char, 256> own{};
  gethostname(own.data(), own.size() - 1);
  return name == own.data() || name == "localhost" || name == "127.0.0.1";
}

/// The system knows from which of its addresses it would send there. Nothing is sent.
Result<std::string> address_for(const std::string& other) {
  addrinfo hints{}, *addresses = nullptr;
  hints.ai_socktype = SOCK_DGRAM;
  if (const int problem = getaddrinfo(other.c_str(), "9", &hints, &addresses); problem != 0)
    return no_way_to(other, gai_strerror(problem));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> first(addresses, freeaddrinfo);
  const Socket socket(::socket(first->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  std::array<char, NI_MAXHOST> out{};
  if (!socket.is_open() || connect(socket.number(), first->ai_addr, first->ai_addrlen) != 0 ||
      getsockname(socket.number(), reinterpret_cast<sockaddr*>(&own), &length) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&own), length, out.data(), out.size(), nullptr, 0, NI_NUMERICHOST) != 0)
    return no_way_to(other, std::strerror(errno));
  return std::string(out.data());
}

std::string remote_command(const std::vector<std::string>& line,
                           const std::vector<std::pair<std::string, std::string>>& variables,
                           const std::string& secret) {
  std::string out = fmt::format("cd {} && IFS= read -r {} && export {} && exec env",
                                for_shell(std::filesystem::current_path().string()), secret, secret);
  for (const auto& [name, value] : variables) out += fmt::format(" {}={}", name, for_shell(value));
  for (const std::string& word : line) out += " " + for_shell(word);
  return out;
}

}  // namespace piper
