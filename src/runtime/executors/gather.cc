// Every device hands its range of a bucket to the others: weights and directions for a while, or weights and gradients
// in place.
#include "base/invariant.h"
#include "runtime/executor.h"

namespace piper {
namespace {

class AllGather : public Executor {
 public:
  AllGather(const Preparation& prepare, OpId index)
      : prepare_(prepare), communication_(prepare.op(index).communication), group_(prepare.group(prepare.op(index))) {
    const PlannedOp& op = prepare.op(index);
    const PlanBucket* bucket = prepare.bucket(op.label);
    invariant(bucket, "a gather is about a bucket");
    part_ = *part_of(prepare.plan, *bucket, prepare.device);
    to_ = op.writes[0];
    from_ = op.reads.empty() || prepare.buffer(to_).persistent ? to_ : op.reads[0];
    const bool gradients = prepare.buffer(from_).category == Category::Gradients;
    dtype_ = gradients ? bucket->gradients : bucket->weights;
    mine_ = gradients && from_ != to_ ? part_.range() : part_.owned();  // directions of all that it updates
    elements_ = prepare.buffer(to_).bytes / piper::bytes_of(dtype_);
  }

  void run(Frame& frame) override {
    if (from_ != to_) frame[to_] = make_flat(dtype_, elements_, frame.device());
    const at::Tensor &from = frame[from_], &to = frame[to_];
    const int64_t size = piper::bytes_of(dtype_);
    prepare_.communicator.all_gather(
        group_, prepare_.sequence(communication_, frame),
        {bytes_of(from) + offset_in(part_, from.numel(), mine_) * size, static_cast<size_t>(mine_.count * size)},
        {bytes_of(to), to.nbytes()}, mine_.count * size);
  }

 private:
  Preparation prepare_;
  CommunicationId communication_;
  int group_;
  BucketPart part_;
  BufferId from_, to_;
  DType dtype_ = DType::Float32;
  ElementRange mine_;
  int64_t elements_ = 0;  // that are gathered
};

}  // namespace

std::unique_ptr<Executor> make_all_gather(const Preparation& prepare, OpId op) {
  if (prepare.communication(prepare.op(op)).buffer > 0) return make_gather_counts(prepare, op);
  if (prepare.find(prepare.op(op).writes, Category::Activations)) return make_join_parts(prepare, op);
  return std::make_unique<AllGather>(prepare, op);
}

}  // namespace piper
