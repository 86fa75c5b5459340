#include "comm/mpi/mpi_transport.h"

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <thread>
#include <utility>

#include "comm/communicator.h"

namespace piper {
namespace {

constexpr int note_tag = 0;
constexpr size_t notes_expected = 16;  // receives that are always posted

std::string text_of(int error) {
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  return MPI_Error_string(error, text, &length) == MPI_SUCCESS ? std::string(text, static_cast<size_t>(length))
                                                               : "error " + std::to_string(error);
}

void check(int error, const std::string& what) {
  if (error != MPI_SUCCESS) throw CommunicationError("MPI cannot " + what + ": " + text_of(error));
}
void check(int error, const char* what, int rank) {
  if (error != MPI_SUCCESS) check(error, what + std::to_string(rank));
}

/// Settings that matter, unless somebody has made them: read by Open MPI when it starts, unknown to others.
void prefer_settings() {
  setenv("OMPI_MCA_mpi_yield_when_idle", "0",
         0);                                   // whoever backs off need not yield: it would come after what computes
  setenv("OMPI_MCA_btl_tcp_flags", "0x1", 0);  // plain sends; with puts both directions of a link take turns
  // Pieces go at once, since their receives are there: a reply to a question whether they may would queue behind the
  // pieces of the other direction.
  const std::string piece = std::to_string(Transport::longest_piece + 4096);  // with Open MPI's headers
  for (const char* limit : {"eager_limit", "rndv_eager_limit", "max_send_size"})
    setenv((std::string("OMPI_MCA_btl_tcp_") + limit).c_str(), piece.c_str(), 0);
}

/// All processes of the job are on this host, as Open MPI's launcher says.
bool on_one_host() {
  const char *all = std::getenv("OMPI_COMM_WORLD_SIZE"), *here = std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  return all && here && std::strcmp(all, here) == 0;
}

/// Then messages go through memory, and no process listens at a port that strangers could reach.
void prefer_memory() {
  setenv("OMPI_MCA_pml", "ob1", 0);
  setenv("OMPI_MCA_btl", "self,vader", 0);
}

/// MPI_Comm_dup, but it does not spin: a peer may need the core.
MPI_Comm duplicate(MPI_Comm communicator) {
  MPI_Comm out = MPI_COMM_NULL;
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Comm_idup(communicator, &out, &request), "join");
  for (int done = 0;;) {
    check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "join");
    if (done) return out;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

/// What a request of MPI is about.
struct Slot {
  enum class Kind { NoteIn, NoteOut, PieceIn, PieceOut } kind;
  int rank = 0;
  int use = 0;
  void* piece = nullptr;
  size_t bytes = 0;                // of the piece
  std::vector<std::byte> control;  // NoteIn, NoteOut
};

struct Mpi {
  MPI_Comm communicator = MPI_COMM_NULL;
  bool initialised_here = false, finished = false;
  std::vector<MPI_Request> requests;
  std::vector<Slot> slots;                   // of the requests
  size_t others = 0;                         // slots that are not NoteIn
  std::vector<std::vector<std::byte>> read;  // memory of the control messages of the last poll: reused in the next
  std::vector<int64_t> sent, came;           // control messages, by rank
  struct Held {
    std::vector<std::byte> memory;
    Transport::Event event;
  };
  std::map<std::pair<int, int64_t>, Held>
      held;  // control messages that MPI reported before an earlier one, by rank and number
  std::vector<int> indices;
  std::vector<MPI_Status> statuses;

  /// As many as always; those that are held do not count.
  void expect_notes() {
    while (requests.size() - others < notes_expected) {
      if (read.empty()) read.emplace_back(Transport::longest_control + sizeof(int64_t));
      expect_note(std::move(read.back()));
      read.pop_back();
    }
    read.clear();
  }
  void expect_note(std::vector<std::byte> memory) {
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Irecv(memory.data(), static_cast<int>(memory.size()), MPI_BYTE, MPI_ANY_SOURCE, note_tag, communicator,
                    &request),
          "receive");
    keep(request, {.kind = Slot::Kind::NoteIn, .control = std::move(memory)});
  }
  void keep(MPI_Request request, Slot slot) {
    if (slot.kind != Slot::Kind::NoteIn) ++others;
    requests.push_back(request);
    slots.push_back(std::move(slot));
  }
  Slot take(size_t index) {
    Slot slot = std::move(slots[index]);
    if (slot.kind != Slot::Kind::NoteIn) --others;
    if (index + 1 < slots.size()) {
      slots[index] = std::move(slots.back());
      requests[index] = requests.back();
    }
    slots.pop_back();
    requests.pop_back();
    return slot;
  }
};

class MpiTransport : public Transport {
 public:
  MpiTransport();
  ~MpiTransport() override;
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  int highest_tag() const override { return highest_tag_; }
  const std::string& library() const override { return library_; }

  void send_control(int to, std::vector<std::byte> control, int use) override;
  void send_piece(int to, int tag, std::span<const std::byte> data, void* piece) override;
  void receive_piece(int from, int tag, std::span<std::byte> data, void* piece) override;
  void cancel_receives(const void* piece) override;
  void poll(std::vector<Event>& events) override;
  bool busy() const override { return mpi_.others > 0; }
  void finish() override { mpi_.finished = true; }
  void abort(int code) override { MPI_Abort(mpi_.communicator, code); }

 private:
  Mpi mpi_;
  int rank_ = 0, ranks_ = 1, highest_tag_ = 0;
  std::string library_;
};

MpiTransport::MpiTransport() {
  int initialised = 0, provided = MPI_THREAD_SINGLE;
  check(MPI_Initialized(&initialised), "start");
  if (initialised) {
    check(MPI_Query_thread(&provided), "start");
    if (provided < MPI_THREAD_MULTIPLE)
      throw CommunicationError(
          "MPI was initialised for calls of one thread only; initialise it with MPI_THREAD_MULTIPLE");
  } else {
    prefer_settings();
    if (on_one_host()) prefer_memory();
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "start");
    mpi_.initialised_here = true;
    if (provided < MPI_THREAD_FUNNELED) throw CommunicationError("this MPI cannot be used in a program with threads");
  }
  if (mpi_.initialised_here) MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);  // MPICH reports some there
  mpi_.communicator = duplicate(MPI_COMM_WORLD);
  check(MPI_Comm_set_errhandler(mpi_.communicator, MPI_ERRORS_RETURN), "join");
  MPI_Comm_rank(mpi_.communicator, &rank_);
  MPI_Comm_size(mpi_.communicator, &ranks_);
  int* tag = nullptr;
  int found = 0;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &tag, &found);
  highest_tag_ = found ? *tag : 32767;  // what the standard promises
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  library_.assign(text, static_cast<size_t>(length));
  library_ = library_.substr(0, library_.find('\n'));
  mpi_.sent.resize(static_cast<size_t>(ranks_));
  mpi_.came.resize(static_cast<size_t>(ranks_));
}

MpiTransport::~MpiTransport() {
  if (!mpi_.finished) return;
  for (size_t i = 0; i < mpi_.requests.size(); ++i) {
    MPI_Cancel(&mpi_.requests[i]);
    MPI_Wait(&mpi_.requests[i], MPI_STATUS_IGNORE);
  }
  MPI_Comm_free(&mpi_.communicator);
  if (mpi_.initialised_here) MPI_Finalize();
}

void MpiTransport::send_control(int to, std::vector<std::byte> control, int use) {
  if (control.size() > longest_control) throw std::length_error("a control is too long");
  const int64_t sequence = mpi_.sent[static_cast<size_t>(to)]++;
  const auto bytes = std::as_bytes(std::span(&sequence, 1));
  control.insert(control.end(), bytes.begin(), bytes.end());
  MPI_Request request = MPI_REQUEST_NULL;
  check(
      MPI_Isend(control.data(), static_cast<int>(control.size()), MPI_BYTE, to, note_tag, mpi_.communicator, &request),
      "send to rank ", to);
  mpi_.keep(request, {.kind = Slot::Kind::NoteOut, .rank = to, .use = use, .control = std::move(control)});
}

void MpiTransport::send_piece(int to, int tag, std::span<const std::byte> data, void* piece) {
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Isend(data.data(), static_cast<int>(data.size()), MPI_BYTE, to, tag, mpi_.communicator, &request),
        "send to rank ", to);
  mpi_.keep(request, {.kind = Slot::Kind::PieceOut, .rank = to, .piece = piece, .bytes = data.size(), .control = {}});
}

void MpiTransport::receive_piece(int from, int tag, std::span<std::byte> data, void* piece) {
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Irecv(data.data(), static_cast<int>(data.size()), MPI_BYTE, from, tag, mpi_.communicator, &request),
        "receive from rank ", from);
  mpi_.keep(request, {.kind = Slot::Kind::PieceIn, .rank = from, .piece = piece, .bytes = data.size(), .control = {}});
}

void MpiTransport::cancel_receives(const void* piece) {
  for (size_t i = 0; i < mpi_.slots.size(); ++i)
    if (mpi_.slots[i].kind == Slot::Kind::PieceIn && mpi_.slots[i].piece == piece) MPI_Cancel(&mpi_.requests[i]);
}

void MpiTransport::poll(std::vector<Event>& events) {
  Mpi& mpi = mpi_;
  mpi.expect_notes();
  int count = 0;
  mpi.indices.resize(mpi.requests.size());
  mpi.statuses.resize(mpi.requests.size());
  const int error = MPI_Testsome(static_cast<int>(mpi.requests.size()), mpi.requests.data(), &count, mpi.indices.data(),
                                 mpi.statuses.data());
  if (error != MPI_SUCCESS && error != MPI_ERR_IN_STATUS) check(error, "make progress");
  if (count == MPI_UNDEFINED || count == 0) return;

  struct Done {
    size_t index;
    MPI_Status status;
  };
  std::vector<Done> done;
  for (int i = 0; i < count; ++i)
    done.push_back({static_cast<size_t>(mpi.indices[static_cast<size_t>(i)]), mpi.statuses[static_cast<size_t>(i)]});
  std::sort(done.begin(), done.end(), [](const Done& a, const Done& b) { return a.index > b.index; });

  for (Done& item : done) {  // the highest index first: `take` moves only what lies behind
    Slot slot = mpi.take(item.index);
    Event event{.kind = Event::Kind::PieceDone,
                .rank = slot.rank,
                .control = {},
                .piece = slot.piece,
                .bytes = slot.bytes,
                .use = slot.use,
                .problem = {}};
    if (error == MPI_ERR_IN_STATUS && item.status.MPI_ERROR != MPI_SUCCESS)
      event.problem = text_of(item.status.MPI_ERROR);
    switch (slot.kind) {
      case Slot::Kind::NoteIn: {
        if (!event.problem.empty()) throw CommunicationError("MPI lost a message: " + event.problem);
        int size = 0;
        MPI_Get_count(&item.status, MPI_BYTE, &size);
        event.kind = Event::Kind::ControlCame;
        event.rank = item.status.MPI_SOURCE;
        const auto bytes = static_cast<size_t>(size) - sizeof(int64_t);
        int64_t sequence = 0;
        std::memcpy(&sequence, slot.control.data() + bytes, sizeof sequence);
        event.control = std::span(slot.control).first(bytes);
        mpi.held[{event.rank, sequence}] = {std::move(slot.control), std::move(event)};
        break;
      }
      case Slot::Kind::NoteOut:
        event.kind = Event::Kind::ControlSent;
        events.push_back(std::move(event));
        break;
      case Slot::Kind::PieceIn: {
        int cancelled = 0;
        MPI_Test_cancelled(&item.status, &cancelled);
        if (cancelled) event.kind = Event::Kind::PieceCancelled;
        [[fallthrough]];
      }
      case Slot::Kind::PieceOut:
        events.push_back(std::move(event));
    }
  }
  for (auto next = mpi.held.begin(); next != mpi.held.end();) {
    int64_t& expected = mpi.came[static_cast<size_t>(next->first.first)];
    if (next->first.second != expected) {
      ++next;
      continue;
    }
    ++expected;
    mpi.read.push_back(std::move(next->second.memory));
    events.push_back(std::move(next->second.event));
    next = mpi.held.erase(next);
  }
}

}  // namespace

std::unique_ptr<Transport> make_mpi_transport() {
  return std::make_unique<MpiTransport>();
}

}  // namespace piper
