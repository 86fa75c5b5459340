// The two ends of a transfer. Groups of different size cut the samples of a slice differently: a device then sends to,
// or gets from, several others.
#include <algorithm>

#include "runtime/executor.h"

namespace piper {
namespace {

/// What is exchanged with one peer: a range of the value's dimension of samples.
struct Piece {
  int peer;
  int64_t begin, size;  // along the dimension; size 0: the whole value
};

class Transfer : public Executor {
 public:
  Transfer(const Preparation& prepare, OpId index)
      : prepare_(prepare), communication_(prepare.op(index).communication) {
    const PlannedOp& op = prepare.op(index);
    const Communication& communication = prepare.communication(op);
    const bool sends = op.kind == OpKind::Send;
    const DeviceList& from = prepare.plan.groups[communication.from];
    const DeviceList& to = prepare.plan.groups[communication.to];
    const DeviceList &mine = sends ? from : to, &theirs = sends ? to : from;
    const auto position = std::find(mine.begin(), mine.end(), prepare.device) - mine.begin();
    const std::string& value = prepare.name(op.label);
    buffer_ = sends ? op.reads[0] : op.writes[0];
    const int64_t samples = samples_of(prepare, communication);
    const int devices_per_sample = prepare.plan.devices_per_sample();
    const int64_t my_parts = static_cast<int64_t>(mine.size()) / devices_per_sample;
    form_ = prepare.computations.value(value, samples / my_parts, communication.shards);
    if (mine.size() == theirs.size()) {
      pieces_ = {{theirs[static_cast<size_t>(position)], 0, 0}};
      return;
    }
    dim_ = prepare.computations.sample_dim(value);
    const int64_t per_sample = form_.sizes[static_cast<size_t>(dim_)] * my_parts / samples;
    int64_t begin = 0;
    for (const TransferPiece& piece :
         transfer_pieces(static_cast<int>(position), mine, theirs, samples, devices_per_sample)) {
      pieces_.push_back({piece.peer, begin * per_sample, piece.samples * per_sample});
      begin += piece.samples;
    }
  }

 protected:
  /// Samples of one slice, on the whole group.
  static int64_t samples_of(const Preparation& prepare, const Communication& communication) {
    int64_t samples = 0;
    for (const PlanWork& work : prepare.plan.works)
      if (work.pass && (work.group == communication.from || work.group == communication.to))
        samples = work.samples * static_cast<int64_t>(prepare.plan.groups[work.group].size()) /
                  prepare.plan.devices_per_sample();
    return samples;
  }
  int64_t sequence(const Frame& frame) const { return prepare_.sequence(communication_, frame); }
  at::Tensor part(const at::Tensor& value, const Piece& piece) const {
    return piece.size == 0 ? value : value.narrow(dim_, piece.begin, piece.size);
  }

  Preparation prepare_;
  CommunicationId communication_;
  BufferId buffer_;
  int64_t dim_ = 0;
  TensorForm form_;
  std::vector<Piece> pieces_;
};

/// The bytes of what is contiguous, or a dense whole.
std::span<std::byte> span_of(const at::Tensor& tensor) {
  return {bytes_of(tensor), tensor.nbytes()};
}

class Send : public Transfer {
 public:
  using Transfer::Transfer;
  void run(Frame& frame) override {
    kept_.clear();
    for (const Piece& piece : pieces_) {
      at::Tensor data = part(frame[buffer_], piece);
      if (piece.size > 0) data = data.contiguous();
      prepare_.communicator.send(piece.peer, sequence(frame), span_of(data));
      if (piece.size > 0 && prepare_.processor.memory_belongs_to_streams()) kept_.push_back(data);
    }
  }

 private:
  std::vector<at::Tensor> kept_;  // copies that the receiver reads when it comes to it: until the next step
};

class Receive : public Transfer {
 public:
  using Transfer::Transfer;
  void run(Frame& frame) override {
    at::Tensor& value = frame[buffer_];
    value = make_tensor(form_, frame.device());
    for (const Piece& piece : pieces_) {
      at::Tensor place = part(value, piece);
      at::Tensor data = piece.size > 0 ? place.contiguous() : place;
      prepare_.communicator.receive(piece.peer, sequence(frame), span_of(data));
      if (!data.is_same(place) && data.data_ptr() != place.data_ptr()) place.copy_(data);
    }
  }
};

}  // namespace

std::unique_ptr<Executor> make_send(const Preparation& prepare, OpId op) {
  return std::make_unique<Send>(prepare, op);
}
std::unique_ptr<Executor> make_receive(const Preparation& prepare, OpId op) {
  return std::make_unique<Receive>(prepare, op);
}

}  // namespace piper
