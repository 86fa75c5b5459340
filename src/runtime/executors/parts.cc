// Values of which devices that share samples have a part each, along one dimension: made of sums, joined, taken, passed
// on.
#include "runtime/executor.h"

namespace piper {
namespace {

struct Parts {
  Parts(const Preparation& prepare, OpId index, bool inwards)
      : prepare_(prepare), communication_(prepare.op(index).communication) {
    const PlannedOp& op = prepare.op(index);
    const Communication& communication = prepare.communication(op);
    const std::vector<int> members = prepare.members(communication);
    group_ = prepare.group(op, members);
    parts_ = static_cast<int64_t>(members.size());
    mine_ = std::find(members.begin(), members.end(), prepare.device) - members.begin();
    from_ = op.reads[0];
    to_ = op.writes[0];
    form_ = prepare.computations.exchange(prepare.name(op.label), prepare.samples_over(communication), parts_, inwards);
  }
  static std::span<std::byte> all(const at::Tensor& tensor) { return {bytes_of(tensor), tensor.nbytes()}; }
  at::Tensor& make(Frame& frame) const { return frame[to_] = make_tensor(form_.after, frame.device()); }

  Preparation prepare_;
  CommunicationId communication_;
  int group_ = -1;
  int64_t parts_ = 1, mine_ = 0;
  BufferId from_, to_;
  ExchangeForm form_;
};

/// Each device has a part of a sum, and gets its part of the whole.
class SumIntoParts : public Executor, Parts {
 public:
  SumIntoParts(const Preparation& prepare, OpId op) : Parts(prepare, op, true) {}
  void run(Frame& frame) override {
    const at::Tensor& from = frame[from_];
    const at::Tensor& to = make(frame);
    prepare_.communicator.reduce_scatter(group_, prepare_.sequence(communication_, frame), all(from), form_.run_before,
                                         all(to), data_type(to.scalar_type()), Communicator::Into::Replace);
  }
};

class JoinParts : public Executor, Parts {
 public:
  JoinParts(const Preparation& prepare, OpId op) : Parts(prepare, op, false) {}
  void run(Frame& frame) override {
    const at::Tensor& from = frame[from_];
    prepare_.communicator.all_gather(group_, prepare_.sequence(communication_, frame), all(from), all(make(frame)),
                                     form_.run_after);
  }
};

/// Of what everybody has.
class LocalSlice : public Executor, Parts {
 public:
  LocalSlice(const Preparation& prepare, OpId op) : Parts(prepare, op, true) {}
  void run(Frame& frame) override {
    const at::Tensor& from = frame[from_];
    const at::Tensor& to = make(frame);
    const int64_t run = form_.run_before / from.element_size(), runs = to.numel() / run;
    to.as_strided({runs, run}, {run, 1}).copy_(from.as_strided({runs, run}, {parts_ * run, 1}, mine_ * run));
  }
};

/// What a device has of a value is passed on along the axis, as it is.
class Shift : public Executor {
 public:
  Shift(const Preparation& prepare, OpId index)
      : prepare_(prepare),
        communication_(prepare.op(index).communication),
        group_(prepare.group(prepare.op(index))),
        by_(prepare.communication(prepare.op(index)).by),
        from_(prepare.op(index).reads[0]),
        to_(prepare.op(index).writes[0]) {}
  void run(Frame& frame) override {
    const at::Tensor& from = frame[from_];
    at::Tensor& to = frame[to_];
    to = make_tensor({from.scalar_type(), from.sizes().vec(), from.strides().vec()}, frame.device());
    prepare_.communicator.shift(group_, prepare_.sequence(communication_, frame), by_, {bytes_of(from), from.nbytes()},
                                {bytes_of(to), to.nbytes()});
  }

 private:
  Preparation prepare_;
  CommunicationId communication_;
  int group_, by_;
  BufferId from_, to_;
};

}  // namespace

std::unique_ptr<Executor> make_shift(const Preparation& prepare, OpId op) {
  return std::make_unique<Shift>(prepare, op);
}
std::unique_ptr<Executor> make_sum_into_parts(const Preparation& prepare, OpId op) {
  return std::make_unique<SumIntoParts>(prepare, op);
}
std::unique_ptr<Executor> make_join_parts(const Preparation& prepare, OpId op) {
  return std::make_unique<JoinParts>(prepare, op);
}
std::unique_ptr<Executor> make_local_slice(const Preparation& prepare, OpId op) {
  return std::make_unique<LocalSlice>(prepare, op);
}

}  // namespace piper
