// Sums of gradients over devices: whole buckets, ranges of them, and pieces that several groups hold.
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>

#include "base/invariant.h"
#include "runtime/executor.h"

namespace piper {
namespace {

/// What all reductions of a bucket have in common.
struct Reduction {
  Reduction(const Preparation& p, OpId index)
      : prepare(p),
        communication(p.op(index).communication),
        gradients(*p.find(p.op(index).writes, Category::Gradients)) {
    const PlanBucket* bucket = prepare.bucket(prepare.op(index).label);
    invariant(bucket, "a reduction is about a bucket");
    dtype = bucket->gradients;
    size = piper::bytes_of(dtype);
    part = *part_of(prepare.plan, *bucket, prepare.device);
  }
  /// A range of the bucket in a buffer that holds all of it, or this copy's range.
  std::span<std::byte> range(const at::Tensor& buffer, ElementRange range) const {
    return {bytes_of(buffer) + offset_in(part, buffer.numel(), range) * size, static_cast<size_t>(range.count * size)};
  }
  static std::span<std::byte> all(const at::Tensor& buffer) { return {bytes_of(buffer), buffer.nbytes()}; }

  Preparation prepare;
  CommunicationId communication;
  BufferId gradients;
  DType dtype;
  int64_t size;
  BucketPart part;
};

class AllReduce : public Executor, Reduction {
 public:
  AllReduce(const Preparation& prepare, OpId op) : Reduction(prepare, op), group_(prepare.group(prepare.op(op))) {}
  void run(Frame& frame) override {
    prepare.communicator.all_reduce(group_, prepare.sequence(communication, frame), all(frame[gradients]),
                                    data_type(dtype));
  }

 private:
  int group_;
};

/// Of what a slice contributes, added to the sum so far; or of the sums of the whole step, in place.
class ReduceScatter : public Executor, Reduction {
 public:
  ReduceScatter(const Preparation& prepare, OpId op)
      : Reduction(prepare, op),
        group_(prepare.group(prepare.op(op))),
        contribution_(prepare.find(prepare.op(op).reads, Category::Communication)) {}
  void run(Frame& frame) override {
    const at::Tensor &from = frame[contribution_.value_or(gradients)], &to = frame[gradients];
    const std::span<std::byte> mine = range(to, part.owned());
    prepare.communicator.reduce_scatter(group_, prepare.sequence(communication, frame), all(from),
                                        static_cast<int64_t>(mine.size()), mine, data_type(dtype),
                                        contribution_ ? Communicator::Into::Add : Communicator::Into::Replace);
  }

 private:
  int group_;
  std::optional<BufferId> contribution_;
};

/// The owners of each piece, one of every group, add up what the groups have.
class ReducePieces : public Executor, Reduction {
 public:
  ReducePieces(const Preparation& prepare, OpId op) : Reduction(prepare, op) {
    for (const OwnedPiece& piece : owned_pieces(prepare.plan, *prepare.bucket(prepare.op(op).label)))
      if (std::find(piece.owners.begin(), piece.owners.end(), prepare.device) != piece.owners.end())
        pieces_.push_back({prepare.group(prepare.op(op), piece.owners), piece.range});
  }
  void run(Frame& frame) override {
    // pieces of one process group come one after the other, so that they may share the number
    for (const auto& [group, piece] : pieces_)
      prepare.communicator.all_reduce(group, prepare.sequence(communication, frame), range(frame[gradients], piece),
                                      data_type(dtype));
  }

 private:
  std::vector<std::pair<int, ElementRange>> pieces_;
};

/// A value of which each device has a part of the sum.
class SumParts : public Executor {
 public:
  SumParts(const Preparation& prepare, OpId index)
      : prepare_(prepare), communication_(prepare.op(index).communication) {
    const PlannedOp& op = prepare.op(index);
    group_ = prepare.group(op);
    from_ = op.reads[0];
    to_ = op.writes[0];
    if (prepare.communication(op).maximum) how_ = Combine::Max;
  }
  void run(Frame& frame) override {
    const at::Tensor& part = frame[from_];
    at::Tensor& sum = frame[to_];
    sum = at::empty_like(part);
    sum.copy_(part);
    prepare_.communicator.all_reduce(group_, prepare_.sequence(communication_, frame), {bytes_of(sum), sum.nbytes()},
                                     data_type(sum.scalar_type()), how_);
  }

 private:
  Preparation prepare_;
  CommunicationId communication_;
  int group_ = -1;
  BufferId from_, to_;
  Combine how_ = Combine::Sum;
};

/// The step's scalars, which every update needs.
class ReduceScalars : public Executor {
 public:
  ReduceScalars(const Preparation& prepare, OpId op)
      : prepare_(prepare),
        communication_(prepare.op(op).communication),
        group_(prepare.group(prepare.op(op))),
        buffer_(prepare.op(op).writes[0]),
        local_(prepare, prepare.op(op).reads) {}
  void run(Frame& frame) override {
    const StepScalars sums = local_.sum(frame);
    std::vector<double> values = {sums.loss, sums.squares};
    values.insert(values.end(), sums.parameter_squares.begin(), sums.parameter_squares.end());
    const at::Tensor here = at::from_blob(values.data(), {std::ssize(values)}, c10::kDouble);
    at::Tensor& buffer = frame[buffer_];
    buffer = make_flat(DType::Float64, here.numel(), frame.device());
    buffer.copy_(here);
    prepare_.communicator.all_reduce(group_, prepare_.sequence(communication_, frame),
                                     {bytes_of(buffer), buffer.nbytes()}, DataType::Float64);
    here.copy_(buffer);
    frame.scalars = {values[0], values[1], {values.begin() + 2, values.end()}};
    frame.scalars_known = true;
  }

 private:
  Preparation prepare_;
  CommunicationId communication_;
  int group_;
  BufferId buffer_;
  LocalScalars local_;
};

}  // namespace

LocalScalars::LocalScalars(const Preparation& prepare, const std::vector<BufferId>& reads)
    : processor_(prepare.processor) {
  for (const BufferId buffer : reads)
    if (prepare.buffer(buffer).category == Category::Activations &&
        rank_with_same_data(prepare.plan, prepare.device) == 0)
      losses_.push_back({buffer, std::max(prepare.buffer(buffer).label.slice, 0)});
  for (const BufferId b : prepare.program.buffers.ids()) {
    const PlanBuffer& buffer = prepare.program.buffers[b];
    if (!buffer.persistent || buffer.category != Category::Gradients || !prepare.index.used[b]) continue;
    const PlanBucket* bucket = prepare.bucket(buffer.label);
    const BucketPart part = *part_of(prepare.plan, *bucket, prepare.device);
    if (!part.counts()) continue;
    const int64_t elements = buffer.bytes / piper::bytes_of(bucket->gradients);
    gradients_.push_back({b, bucket->gradients, offset_in(part, elements, part.range()), part.range().count});
  }
  find_sized(prepare);
}

std::vector<NameId> sized_parameters(const Plan& plan, const StepConfig& step) {
  std::vector<NameId> out;
  if (step.optimizer != Optimizer::Adafactor) return out;
  for (const PlanBucket& bucket : plan.buckets)
    if (bucket.matrices)
      for (const PlanParameter& parameter : bucket.parameters) out.push_back(parameter.name);
  return out;
}

void LocalScalars::find_sized(const Preparation& prepare) {
  const auto buffer_of = [&](const PlanBucket& bucket, Category category) {
    for (const BufferId b : prepare.program.buffers.ids())
      if (const PlanBuffer& buffer = prepare.program.buffers[b];
          buffer.persistent && buffer.category == category && buffer.label.name == bucket.name)
        return b;
    internal_error("a device has the weights and the state of its buckets");
  };
  parameters_ = sized_parameters(prepare.plan, prepare.step).size();
  size_t number = 0;
  if (parameters_ == 0) return;
  for (const PlanBucket& bucket : prepare.plan.buckets) {
    if (!bucket.matrices) continue;
    const size_t first = number;
    number += bucket.parameters.size();
    const auto part = part_of(prepare.plan, bucket, prepare.device);
    if (!part || !part->counts()) continue;
    const ElementTypes types = element_types(prepare.step, bucket.weights);
    const ElementRange range = part->range();
    const BufferId buffer = buffer_of(bucket, types.master ? Category::Optimizer : Category::Weights);
    const DType dtype = types.master.value_or(bucket.weights);
    // the master copy comes first where there are no moments, and has the elements that the device updates
    const int64_t offset =
        types.master ? 0 : offset_in(*part, prepare.buffer(buffer).bytes / piper::bytes_of(dtype), range);
    int64_t begin = 0;
    for (size_t p = 0; p < bucket.parameters.size(); ++p) {
      const int64_t from = std::max(begin, range.begin),
                    to = std::min(begin + bucket.parameters[p].elements, range.end());
      begin += bucket.parameters[p].elements;
      if (from < to)
        sized_.push_back({first + p, buffer, dtype, (offset + from - range.begin) * piper::bytes_of(dtype), to - from});
    }
  }
}

StepScalars LocalScalars::sum(Frame& frame) const {
  std::vector<at::Tensor> scalars;  // of every loss, with its metrics
  for (const Loss& loss : losses_)
    for (const at::Tensor& number : frame[loss.buffer].flatten().unbind()) scalars.push_back(number);
  std::vector<ElementSpan> elements;
  for (const Counted& counted : gradients_)
    elements.push_back({counted.dtype,
                        bytes_of(frame[counted.buffer]) + counted.offset * piper::bytes_of(counted.dtype),
                        counted.count});
  for (const Sized& sized : sized_)
    elements.push_back({sized.dtype, bytes_of(frame[sized.buffer]) + sized.first_byte, sized.count});
  const std::vector<double> values = processor_.read(scalars, elements);
  StepScalars out;
  out.parameter_squares.resize(parameters_);
  auto next = values.begin();
  for (const Loss& loss : losses_) {
    SliceLoss of{loss.slice, *next, {next + 1, next + frame[loss.buffer].numel()}};
    next += frame[loss.buffer].numel();
    out.loss += of.loss;
    frame.losses.push_back(std::move(of));
  }
  for (size_t i = 0; i < gradients_.size(); ++i) out.squares += *next++;
  for (const Sized& sized : sized_) out.parameter_squares[sized.parameter] += *next++;
  return out;
}

std::unique_ptr<Executor> make_all_reduce(const Preparation& prepare, OpId op) {
  if (prepare.find(prepare.op(op).writes, Category::Gradients)) return std::make_unique<AllReduce>(prepare, op);
  if (prepare.find(prepare.op(op).writes, Category::Activations)) return std::make_unique<SumParts>(prepare, op);
  return std::make_unique<ReduceScalars>(prepare, op);
}
std::unique_ptr<Executor> make_reduce_scatter(const Preparation& prepare, OpId op) {
  if (prepare.find(prepare.op(op).writes, Category::Activations)) return make_sum_into_parts(prepare, op);
  return std::make_unique<ReduceScatter>(prepare, op);
}
std::unique_ptr<Executor> make_reduce_pieces(const Preparation& prepare, OpId op) {
  return std::make_unique<ReducePieces>(prepare, op);
}

}  // namespace piper
