#include "comm/tcp/tcp_rendezvous.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <sstream>
#include <utility>

#include "comm/tcp/tcp_connections.h"

// Lines of text. From a process: `process NUMBER SECRET PID` once, then `here DONE DOOR` whenever it can take part.
// From the host: `epoch NUMBER RANK RANKS DONE` and a line with the door of each rank, or `end WHY`, to spares `end`;
// and at any time `signal NUMBER`.

namespace piper {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto longest_silence = std::chrono::seconds(5);  // between somebody's coming in and saying who it is
constexpr auto to_reach_host = std::chrono::seconds(60);
constexpr size_t longest_line = 1024;
constexpr std::string_view signal_word = "signal ";
constexpr size_t most_strangers = 256;

/// The address of this host on the network that leads to the other end.
std::string own_address(const Socket& socket) {
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  std::array<char, NI_MAXHOST> host{};
  if (getsockname(socket.number(), reinterpret_cast<sockaddr*>(&own), &length) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&own), length, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST) != 0)
    throw CommunicationError("this process does not know its own address");
  return host.data();
}

/// The other end may be cut off without a word: then the connection ends after half a minute.
void notice_silence(const Socket& socket) {
  const auto set = [&](int level, int what, int value) {
    setsockopt(socket.number(), level, what, &value, sizeof value);
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 15);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 30'000);
}

/// False: the other end is gone, or takes nothing.
bool send_all(const Socket& socket, std::string_view text, int flags) {
  while (!text.empty()) {
    const ssize_t sent = ::send(socket.number(), text.data(), text.size(), flags | MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    text.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

/// The first line of the text, which loses it; none: it has no whole one.
std::optional<std::string> take_first_line(std::string& text) {
  const size_t end = text.find('\n');
  if (end == std::string::npos) return {};
  std::string line = text.substr(0, end);
  text.erase(0, end + 1);
  return line;
}

}  // namespace

// ---- One process's end

TcpRendezvous::TcpRendezvous(int number, const std::string& host_address, Heard heard) : heard_(std::move(heard)) {
  const DoorAddress host = parse_address(host_address);
  host_ = connect_to("the launcher", host, Clock::now() + to_reach_host);
  const timeval none{};  // a spare waits for long
  setsockopt(host_.number(), SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none);
  notice_silence(host_);
  door_.emplace(own_address(host_));
  send_all(
      host_,
      "process " + std::to_string(number) + " " + std::to_string(host.secret) + " " + std::to_string(getpid()) + "\n",
      0);
  thread_ = std::thread([this] { listen(); });
}

TcpRendezvous::~TcpRendezvous() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  shutdown(host_.number(), SHUT_RDWR);
  thread_.join();
}

void TcpRendezvous::listen() {
  std::string heard;
  while (true) {
    std::array<char, 4096> bytes{};
    const ssize_t count = recv(host_.number(), bytes.data(), bytes.size(), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    heard.append(bytes.data(), static_cast<size_t>(count));
    while (auto line = take_first_line(heard)) {
      if (line->starts_with(signal_word)) {
        if (heard_.signal) heard_.signal(std::atoi(line->c_str() + signal_word.size()));
        continue;
      }
      const std::lock_guard lock(mutex_);
      lines_.push_back(*std::move(line));
      changed_.notify_all();
    }
  }
  std::unique_lock lock(mutex_);
  const bool unexpected = !closed_ && !waits_ && lines_.empty();
  closed_ = true;
  changed_.notify_all();
  lock.unlock();
  if (unexpected && heard_.gone) heard_.gone();
}

std::string TcpRendezvous::next_line() {
  std::unique_lock lock(mutex_);
  waits_ = true;
  changed_.wait(lock, [&] { return closed_ || !lines_.empty(); });
  waits_ = false;
  if (lines_.empty()) throw RendezvousClosed("the launcher has ended the connection");
  std::string line = std::move(lines_.front());
  lines_.pop_front();
  return line;
}

TcpRendezvous::Epoch TcpRendezvous::come(int64_t done) {
  send_all(host_, "here " + std::to_string(done) + " " + door_->address() + "\n", 0);
  std::istringstream line(next_line());
  std::string word;
  line >> word >> std::ws;
  if (word != "epoch") {
    word.clear();
    std::getline(line, word);
    not_needed_ = word.empty();
    const std::lock_guard lock(mutex_);
    closed_ = true;  // what follows is of no interest
    throw RendezvousClosed(not_needed_ ? "this process is not needed" : word);
  }
  Epoch out;
  int ranks = 0;
  line >> out.number >> out.rank >> ranks >> out.done;
  for (int rank = 0; rank < ranks; ++rank) out.doors.push_back(next_line());
  return out;
}

// ---- The host's

TcpRendezvousHost::TcpRendezvousHost(const std::string& host, int places, int spares, Limits limits)
    : door_(host), ranks_(places), limits_(limits), begun_(Clock::now()) {
  for (int number = places; number < places + spares; ++number) awaited_.insert(number);
  const int socket = door_.socket().number();
  fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK);
}

std::optional<TcpRendezvousHost::Decision> TcpRendezvousHost::serve(std::chrono::milliseconds longest) {
  std::vector<pollfd> asked = {{.fd = door_.socket().number(), .events = POLLIN, .revents = 0}};
  for (const Guest& guest : guests_) asked.push_back({.fd = guest.socket.number(), .events = POLLIN, .revents = 0});
  if (poll(asked.data(), asked.size(), static_cast<int>(longest.count())) > 0)
    for (size_t i = 1; i < asked.size(); ++i)
      if (asked[i].revents != 0) listen_to(guests_[i - 1]);
  let_in();
  for (Guest& guest : guests_)
    if (guest.number < 0 && Clock::now() > guest.since + longest_silence) guest.socket.close();
  std::erase_if(guests_, [](const Guest& guest) { return !guest.socket.is_open(); });
  return decide();
}

void TcpRendezvousHost::let_in() {
  while (true) {
    Socket socket(accept4(door_.socket().number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.is_open()) return;
    const auto is_stranger = [](const Guest& guest) { return guest.number < 0; };
    if (static_cast<size_t>(std::ranges::count_if(guests_, is_stranger)) == most_strangers)
      guests_.erase(std::ranges::find_if(guests_, is_stranger));
    guests_.push_back({.socket = std::move(socket), .since = Clock::now(), .heard = {}, .door = {}});
  }
}

void TcpRendezvousHost::listen_to(Guest& guest) {
  std::array<char, longest_line> bytes{};
  const ssize_t count = recv(guest.socket.number(), bytes.data(), bytes.size(), 0);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) return guest.socket.close();
  guest.heard.append(bytes.data(), static_cast<size_t>(count));
  while (const auto line = take_first_line(guest.heard)) take_line(guest, *line);
  if (guest.heard.size() > longest_line) guest.socket.close();
}

/// Closes the connection of whoever is not one of the job.
void TcpRendezvousHost::take_line(Guest& from, const std::string& line) {
  std::istringstream in(line);
  std::string word;
  in >> word >> std::ws;
  if (from.number >= 0) {
    int64_t done = 0;
    in >> done >> std::ws;
    done_ = std::max(done_, done);
    std::getline(in, from.door);
    from.here = true;
    awaited_.erase(from.number);
    if (over_) say_end(from);
    return;
  }
  int number = -1, process = 0;
  uint64_t secret = 0;
  in >> number >> secret >> process;
  if (word != "process" || !in || secret != door_.secret() || number < 0 || guest(number)) return from.socket.close();
  from.number = number;
  process_ids_[number] = process;
  notice_silence(from.socket);
}

/// It waits and reads: the text fits into what the connection takes at once, or it is cut off.
void TcpRendezvousHost::say(Guest& guest, const std::string& text) {
  if (!send_all(guest.socket, text, 0)) guest.socket.close();
}

TcpRendezvousHost::Guest* TcpRendezvousHost::guest(int number) {
  const auto found = std::ranges::find_if(guests_, [&](const Guest& guest) { return guest.number == number; });
  return found == guests_.end() ? nullptr : &*found;
}

std::optional<TcpRendezvousHost::Decision> TcpRendezvousHost::decide() {
  if (over_) return {};
  Decision decision{.epoch = epoch_ + 1, .lost = {}, .placed = {}, .end = {}};
  if (epoch_ < 0) {
    for (int number = 0; number < ranks_; ++number)
      if (const Guest* const first = guest(number); !first || !first->here)
        return Clock::now() > begun_ + limits_.first
                   ? std::optional(no_more(decision, "process " + std::to_string(number) + " does not come"))
                   : std::nullopt;
    for (int number = 0; number < ranks_; ++number) decision.placed[number] = number;
    return begin(std::move(decision));
  }
  const auto is_here = [&](const auto& place) {
    const Guest* const member = guest(place.first);
    return member && member->here;
  };
  if (std::ranges::none_of(places_, is_here)) return {};
  if (!ended_) ended_ = Clock::now();
  std::vector<int> vacant;
  for (const auto& place : places_) {
    if (is_here(place)) continue;
    if (guest(place.first) && Clock::now() < *ended_ + limits_.again) return {};
    decision.lost.push_back(place.first);
    vacant.push_back(place.second);
  }
  std::ranges::sort(vacant);
  std::vector<int> spares;
  for (const Guest& other : guests_)
    if (other.here && !places_.contains(other.number)) spares.push_back(other.number);
  std::ranges::sort(spares);
  if (spares.size() < vacant.size() && !awaited_.empty() && Clock::now() < begun_ + limits_.first) return {};
  if (spares.size() < vacant.size())
    return no_more(decision, std::to_string(vacant.size()) + (vacant.size() == 1 ? " process is" : " processes are") +
                                 " lost, and there " + (spares.size() == 1 ? "is " : "are ") +
                                 std::to_string(spares.size()) + (spares.size() == 1 ? " spare" : " spares"));
  for (size_t i = 0; i < vacant.size(); ++i) decision.placed[vacant[i]] = spares[i];
  return begin(std::move(decision));
}

TcpRendezvousHost::Decision TcpRendezvousHost::no_more(Decision decision, const std::string& why) {
  end(why);
  decision.end = why;
  return decision;
}

void TcpRendezvousHost::gone(int number, const std::string& how) {
  awaited_.erase(number);
  if (epoch_ < 0 && number < ranks_ && !over_) end("process " + std::to_string(number) + " is gone: " + how);
}

bool TcpRendezvousHost::pass_on(int signal, int number) {
  Guest* const to = guest(number);
  if (to) say(*to, std::string(signal_word) + std::to_string(signal) + "\n");
  return to != nullptr;
}

int TcpRendezvousHost::process_of(int number) const {
  const auto found = process_ids_.find(number);
  return found == process_ids_.end() ? 0 : found->second;
}

void TcpRendezvousHost::end(std::string why) {
  over_ = std::move(why);
  for (Guest& waiting : guests_)
    if (waiting.here) say_end(waiting);
}

/// A spare need not know why.
void TcpRendezvousHost::say_end(Guest& guest) {
  const bool spare = guest.number >= ranks_ && !places_.contains(guest.number);
  say(guest, spare ? "end\n" : "end " + *over_ + "\n");
}

TcpRendezvousHost::Decision TcpRendezvousHost::begin(Decision decision) {
  for (const int number : decision.lost) {
    places_.erase(number);
    std::erase_if(guests_, [&](const Guest& lost) { return lost.number == number; });
  }
  for (const auto& [rank, number] : decision.placed) places_[number] = rank;
  std::map<int, std::string> doors;  // by rank
  for (const auto& [number, rank] : places_) doors[rank] = guest(number)->door + "\n";
  epoch_ = decision.epoch;
  ended_.reset();
  for (const auto& [number, rank] : places_) {
    std::string text = "epoch " + std::to_string(epoch_) + " " + std::to_string(rank) + " " + std::to_string(ranks_) +
                       " " + std::to_string(done_) + "\n";
    for (const auto& [other, door] : doors) text += door;
    Guest& member = *guest(number);
    member.here = false;
    say(member, text);
  }
  return decision;
}

}  // namespace piper
