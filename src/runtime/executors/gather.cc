// Every copy hands its range of a bucket to the others: weights for a while, or weights and gradients in place.
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
    dtype_ = prepare.buffer(to_).category == Category::Gradients ? bucket->gradients : bucket->weights;
  }

  void run(Frame& frame) override {
    if (from_ != to_) frame[to_] = make_flat(dtype_, part_.padded, frame.place());
    const at::Tensor &from = frame[from_], &to = frame[to_];
    const int64_t size = piper::bytes_of(dtype_);
    const ElementRange mine = part_.owned();
    prepare_.communicator.all_gather(
        group_, prepare_.sequence(communication_, frame),
        {bytes_of(from) + offset_in(part_, from.numel(), mine) * size, static_cast<size_t>(mine.count * size)},
        {bytes_of(to), to.nbytes()}, mine.count * size);
  }

 private:
  Preparation prepare_;
  CommunicationId communication_;
  int group_;
  BucketPart part_;
  BufferId from_, to_;
  DType dtype_ = DType::Float32;
};

}  // namespace

std::unique_ptr<Executor> make_all_gather(const Preparation& prepare, OpId op) {
  if (prepare.find(prepare.op(op).writes, Category::Activations)) return make_join_parts(prepare, op);
  return std::make_unique<AllGather>(prepare, op);
}

}  // namespace piper
