// Where the processes of a job find each other without MPI, and agree on who goes on when some are lost.
//
// All come to one process, the host of the rendezvous: the one that has started them. Each says at which door it is
// found, and waits. The host says who has which place: an *epoch* of the job begins, and those in it connect to each
// other.
//
// Whoever cannot go on, because a peer is gone or silent, leaves its World and comes again. Leaving closes its
// connections, so the others notice, and come again too. That is the end of the epoch. The host waits for them for a
// while. Lost are those whose connection to the host has ended, as it does with a process, and those that have not come
// in time; what a process thinks about others does not count. The place of each goes to a spare: a process that has
// come and has no place. Then the next epoch begins, or, if there are too few, the job ends.
//
// So everything is decided by one process, and all in an epoch have the same list. A process that has missed a
// decision, because it was stopped or cut off, knows only an older epoch: the doors of the others stay closed to it
// (`make_tcp_transport`), and so does the host's. It ends.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "comm/tcp/tcp_door.h"

namespace piper {

/// The host has ended the job, or is gone.
struct RendezvousClosed : CommunicationError {
  using CommunicationError::CommunicationError;
};

/// One process's end.
class TcpRendezvous {
 public:
  /// What is done, on a thread of its own, when the host says something that nobody waits for.
  struct Heard {
    std::function<void()> gone;              // it is gone, or counts this process as lost, which takes part in an epoch
    std::function<void(int signal)> signal;  // whoever has started the job wants this process to have that signal
  };
  /// Goes to the host. `number`: of this process among those that were started. Throws CommunicationError.
  TcpRendezvous(int number, const std::string& host_address, Heard heard = {});
  ~TcpRendezvous();

  struct Epoch {
    int number = 0;  // counts them
    int rank = 0;
    int64_t done = 0;                // the most that anybody has said, in this epoch or before
    std::vector<std::string> doors;  // by rank
  };
  /// This process can take part, now or again. Returns when an epoch begins in which it has a place; spares may wait
  /// for as long as the job lasts. `done`: what a loss of all processes would cost, in any unit; whoever takes part in
  /// the epoch hears of it. Throws RendezvousClosed.
  Epoch come(int64_t done = 0);

  /// Where the others find it in every epoch.
  const TcpDoor& door() const { return *door_; }
  /// The job is over, and this process was a spare to the end.
  bool not_needed() const { return not_needed_; }

 private:
  void listen();
  std::string next_line();

  const Heard heard_;
  Socket host_;
  std::optional<TcpDoor> door_;
  bool not_needed_ = false;
  std::mutex mutex_;  // what follows
  std::condition_variable changed_;
  std::deque<std::string> lines_;
  bool waits_ = false;   // somebody, for a line
  bool closed_ = false;  // by the host, or because this process leaves
  std::thread thread_;
};

/// The end of the one who decides. All members are called by one thread.
class TcpRendezvousHost {
 public:
  /// How long it waits for the first epoch, and for those who have not come again after somebody has.
  struct Limits {
    std::chrono::milliseconds first, again;
  };
  /// `host`: a numeric address of this host. Processes 0 to `places` - 1 get the places of the first epoch; so many
  /// `spares` come after them, each within the first limit.
  TcpRendezvousHost(const std::string& host, int places, int spares, Limits limits);

  /// For `TcpRendezvous`.
  std::string address() const { return door_.address(); }

  /// What it has said to all.
  struct Decision {
    int epoch = 0;
    std::vector<int> lost;      // processes that took part in the epoch before, and do not any more
    std::map<int, int> placed;  // ranks that somebody else had, or nobody: the process that has them now
    std::string end;            // not empty: there is no such epoch, and why
  };
  /// Waits until something happens, at most so long, and decides what there is to decide.
  std::optional<Decision> serve(std::chrono::milliseconds longest);
  /// A process has ended. Nothing begins without it, and nobody waits for it.
  void gone(int number, const std::string& how);
  /// The job is over: whoever waits is told so.
  void end(std::string why);
  bool has_place(int number) const { return places_.contains(number); }
  /// A process that has come gets a signal; one that is stopped does not notice. Whether it was told.
  bool pass_on(int signal, int number);
  /// The process id, on its own host, of a process that has come; 0: it has not.
  int process_of(int number) const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Guest {
    Socket socket;
    Clock::time_point since;
    std::string heard;  // not yet a line
    int number = -1;    // below 0: it has not said who it is
    std::string door;
    bool here = false;  // it waits for an epoch
  };

  void let_in();
  void listen_to(Guest& guest);
  void take_line(Guest& guest, const std::string& line);
  void say(Guest& guest, const std::string& text);
  void say_end(Guest& guest);
  std::optional<Decision> decide();
  Decision no_more(Decision decision, const std::string& why);
  Decision begin(Decision decision);
  Guest* guest(int number);

  const TcpDoor door_;
  const int ranks_;
  const Limits limits_;
  const Clock::time_point begun_;
  std::deque<Guest> guests_;
  std::map<int, int> process_ids_;          // of all that have ever come, by number
  std::set<int> awaited_;                   // spares that have not come yet
  std::map<int, int> places_;               // in this epoch: ranks, by process
  int epoch_ = -1;                          // none yet
  int64_t done_ = 0;                        // the most that anybody has said
  std::optional<Clock::time_point> ended_;  // this epoch
  std::optional<std::string> over_;         // why
};

}  // namespace piper
