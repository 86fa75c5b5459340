// Divides a value among devices along one dimension and gathers their slices along another, or the reverse.
#include <algorithm>

#include "runtime/executor.h"

namespace piper {
namespace {

class AllToAll : public Executor {
 public:
  AllToAll(const Preparation& prepare, OpId index)
      : prepare_(prepare), communication_(prepare.op(index).communication) {
    const PlannedOp& op = prepare.op(index);
    const Communication& communication = prepare.communication(op);
    const std::vector<int> members = prepare.members(communication);
    group_ = prepare.group(op, members);
    from_ = op.reads[0];
    to_ = op.writes[0];
    form_ =
        prepare.computations.exchange(prepare.name(op.label), prepare.samples_over(communication),
                                      static_cast<int64_t>(members.size()), communication.exchange == Exchange::Divide);
  }

  void run(Frame& frame) override {
    const at::Tensor& from = frame[from_];
    at::Tensor& to = frame[to_];
    to = make_tensor(form_.after, frame.device());
    prepare_.communicator.all_to_all(group_, prepare_.sequence(communication_, frame), {bytes_of(from), from.nbytes()},
                                     form_.run_before, {bytes_of(to), to.nbytes()}, form_.run_after);
  }

 private:
  Preparation prepare_;
  CommunicationId communication_;
  int group_ = -1;
  BufferId from_, to_;
  ExchangeForm form_;
};

}  // namespace

std::unique_ptr<Executor> make_all_to_all(const Preparation& prepare, OpId op) {
  if (prepare.communication(prepare.op(op)).buffer > 0) return make_exchange_rows(prepare, op);
  return std::make_unique<AllToAll>(prepare, op);
}

}  // namespace piper
