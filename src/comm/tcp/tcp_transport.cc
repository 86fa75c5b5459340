#include "comm/tcp/tcp_transport.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <utility>

#include "comm/communicator.h"
#include "comm/tcp/tcp_connections.h"

namespace piper {
namespace {

constexpr int note_tag = 0;
constexpr size_t sent_at_once = 16;               // control messages and pieces, by one call
constexpr size_t read_at_once = size_t{2} << 20;  // bytes of a connection, before the others have their turn
constexpr int highest_tcp_tag = 0x7FFFFFFF;

/// In front of every control message and piece.
struct Header {
  int32_t tag = note_tag;
  uint32_t bytes = 0;
};

struct Outgoing {
  Header header;
  std::vector<std::byte> control;
  std::span<const std::byte> data;  // the control message, or the caller's memory
  void* piece = nullptr;
  int use = 0;
  size_t sent = 0;  // of header and data
};

struct Expected {
  std::span<std::byte> data;
  void* piece = nullptr;
};

struct Peer {
  Socket socket;
  std::deque<Outgoing> out;
  // what is coming
  Header header;
  size_t header_bytes = 0, body_bytes = 0;  // of them are here
  std::vector<std::byte> control;
  Expected body;
  std::map<int, std::deque<Expected>> expected;  // by tag
};

class TcpTransport : public Transport {
 public:
  TcpTransport(int rank, std::vector<Socket> sockets) : rank_(rank), peers_(sockets.size()) {
    for (size_t i = 0; i < peers_.size(); ++i) peers_[i].socket = std::move(sockets[i]);
  }

  int rank() const override { return rank_; }
  int ranks() const override { return static_cast<int>(peers_.size()); }
  int highest_tag() const override { return highest_tcp_tag; }
  const std::string& library() const override { return library_; }

  void send_control(int to, std::vector<std::byte> control, int use) override {
    if (control.size() > longest_control) throw std::length_error("a control is too long");
    Outgoing out{.header = {note_tag, static_cast<uint32_t>(control.size())},
                 .control = std::move(control),
                 .data = {},
                 .use = use};
    out.data = out.control;
    start(to, std::move(out));
  }
  void send_piece(int to, int tag, std::span<const std::byte> data, void* piece) override {
    start(to, {.header = {tag, static_cast<uint32_t>(data.size())}, .control = {}, .data = data, .piece = piece});
  }
  void receive_piece(int from, int tag, std::span<std::byte> data, void* piece) override {
    peers_[static_cast<size_t>(from)].expected[tag].push_back({data, piece});
  }
  void cancel_receives(const void* piece) override {
    for (size_t from = 0; from < peers_.size(); ++from)
      for (auto& [tag, list] : peers_[from].expected)
        std::erase_if(list, [&](const Expected& expected) {
          if (expected.piece != piece) return false;
          happened_.push_back(event(Event::Kind::PieceCancelled, from, expected.data.size(), expected.piece));
          return true;
        });
    forget_empty();
  }

  void poll(std::vector<Event>& events) override {
    read_.clear();
    std::vector<pollfd> asked;
    std::vector<size_t> of;
    for (size_t i = 0; i < peers_.size(); ++i)
      if (const Peer& peer = peers_[i]; peer.socket.is_open()) {
        asked.push_back({.fd = peer.socket.number(),
                         .events = static_cast<short>(POLLIN | (peer.out.empty() ? 0 : POLLOUT)),
                         .revents = 0});
        of.push_back(i);
      }
    if (::poll(asked.data(), asked.size(), 0) > 0)
      for (size_t i = 0; i < asked.size(); ++i) {
        if (asked[i].revents & POLLOUT) send_on(of[i]);
        if (asked[i].revents & (POLLIN | POLLHUP | POLLERR)) read_from(of[i]);
      }
    events.insert(events.end(), std::make_move_iterator(happened_.begin()), std::make_move_iterator(happened_.end()));
    happened_.clear();
  }

  bool busy() const override {
    return std::any_of(peers_.begin(), peers_.end(),
                       [](const Peer& peer) { return !peer.out.empty() || !peer.expected.empty() || peer.body.piece; });
  }

  void finish() override {}
  void abort(int code) override {  // the others have been told
    std::fflush(nullptr);
    std::_Exit(code);
  }

 private:
  static Event event(Event::Kind kind, size_t rank, size_t bytes, void* piece = nullptr, int use = 0) {
    return {.kind = kind,
            .rank = static_cast<int>(rank),
            .control = {},
            .piece = piece,
            .bytes = bytes,
            .use = use,
            .problem = {}};
  }

  void start(int to, Outgoing out) {
    Peer& peer = peers_[static_cast<size_t>(to)];
    peer.out.push_back(std::move(out));
    if (peer.out.size() == 1) send_on(static_cast<size_t>(to));
  }

  void sent(size_t to, const Outgoing& out) {
    happened_.push_back(out.piece ? event(Event::Kind::PieceDone, to, out.data.size(), out.piece)
                                  : event(Event::Kind::ControlSent, to, 0, nullptr, out.use));
  }

  /// As much as the connection takes.
  void send_on(size_t to) {
    Peer& peer = peers_[to];
    while (!peer.out.empty() && peer.socket.is_open()) {
      std::array<iovec, 2 * sent_at_once> parts;
      size_t count = 0;
      for (size_t i = 0; i < std::min(sent_at_once, peer.out.size()); ++i) {
        Outgoing& out = peer.out[i];
        if (out.sent < sizeof(Header))
          parts[count++] = {reinterpret_cast<char*>(&out.header) + out.sent, sizeof(Header) - out.sent};
        const size_t done = out.sent - std::min(out.sent, sizeof(Header));
        parts[count++] = {const_cast<std::byte*>(out.data.data()) + done, out.data.size() - done};
      }
      msghdr message{};
      message.msg_iov = parts.data();
      message.msg_iovlen = count;
      const ssize_t taken = sendmsg(peer.socket.number(), &message, MSG_NOSIGNAL);
      if (taken < 0 && (errno == EAGAIN || errno == EINTR)) return;
      if (taken < 0) return lose(to, std::strerror(errno));
      for (auto left = static_cast<size_t>(taken); !peer.out.empty();) {
        Outgoing& out = peer.out.front();
        const size_t now = std::min(left, sizeof(Header) + out.data.size() - out.sent);
        out.sent += now;
        left -= now;
        if (out.sent < sizeof(Header) + out.data.size()) break;
        sent(to, out);
        peer.out.pop_front();
      }
    }
    if (!peer.socket.is_open()) drop(to);
  }

  void read_from(size_t from) {
    Peer& peer = peers_[from];
    for (size_t total = 0; total < read_at_once && peer.socket.is_open();) {
      const bool in_header = peer.header_bytes < sizeof(Header);
      std::byte* const into = in_header ? reinterpret_cast<std::byte*>(&peer.header) + peer.header_bytes
                                        : peer.body.data.data() + peer.body_bytes;
      const size_t wanted = in_header ? sizeof(Header) - peer.header_bytes : peer.body.data.size() - peer.body_bytes;
      const ssize_t come = recv(peer.socket.number(), into, wanted, 0);
      if (come < 0 && (errno == EAGAIN || errno == EINTR)) return;
      if (come <= 0) return lose(from, come == 0 ? "it has closed the connection" : std::strerror(errno));
      total += static_cast<size_t>(come);
      if (in_header) {
        peer.header_bytes += static_cast<size_t>(come);
        if (peer.header_bytes == sizeof(Header)) begin_body(from);
      } else {
        peer.body_bytes += static_cast<size_t>(come);
      }
      if (peer.header_bytes == sizeof(Header) && peer.body_bytes == peer.body.data.size()) end_body(from);
    }
  }

  void begin_body(size_t from) {
    Peer& peer = peers_[from];
    peer.body_bytes = 0;
    if (peer.header.tag == note_tag) {
      if (peer.header.bytes > longest_control) throw CommunicationError("a control is too long");
      peer.control.resize(peer.header.bytes);
      peer.body = {peer.control, nullptr};
      return;
    }
    const auto found = peer.expected.find(peer.header.tag);
    if (found == peer.expected.end() || found->second.front().data.size() != peer.header.bytes)
      throw CommunicationError("rank " + std::to_string(from) + " sends what was not asked for");
    peer.body = found->second.front();
    found->second.pop_front();
    if (found->second.empty()) peer.expected.erase(found);
  }

  void end_body(size_t from) {
    Peer& peer = peers_[from];
    if (peer.header.tag == note_tag) {
      read_.push_back(std::move(peer.control));
      Event came = event(Event::Kind::ControlCame, from, 0);
      came.control = read_.back();
      happened_.push_back(std::move(came));
    } else {
      happened_.push_back(event(Event::Kind::PieceDone, from, peer.body.data.size(), peer.body.piece));
    }
    peer.body = {};
    peer.header_bytes = peer.body_bytes = 0;
    peer.control.clear();
  }

  void lose(size_t rank, const std::string& problem) {
    peers_[rank].socket.close();
    Event gone = event(Event::Kind::Gone, rank, 0);
    gone.problem = problem;
    happened_.push_back(std::move(gone));
    drop(rank);
  }
  /// Whoever has left needs nothing more.
  void drop(size_t to) {
    for (const Outgoing& out : peers_[to].out) sent(to, out);
    peers_[to].out.clear();
  }

  void forget_empty() {
    for (Peer& peer : peers_) std::erase_if(peer.expected, [](const auto& entry) { return entry.second.empty(); });
  }

  const int rank_;
  const std::string library_ = "TCP";
  std::vector<Peer> peers_;                   // by rank
  std::vector<Event> happened_;               // since the last poll
  std::vector<std::vector<std::byte>> read_;  // control messages of the last poll
};

}  // namespace

std::unique_ptr<Transport> make_tcp_transport(int rank, const TcpDoor& door, const std::vector<std::string>& doors,
                                              std::chrono::milliseconds timeout, int epoch) {
  return std::make_unique<TcpTransport>(rank, connect_all(rank, door, doors, timeout, epoch));
}

}  // namespace piper
