// Rows that are sorted by expert go to the devices that have their experts, and come back: how many there are of each
// is known when it runs. The counts are gathered first; then rows go in rounds, through buffers that the plan has.
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <map>

#include "plan/routed_rows.h"
#include "runtime/executors/flat_views.h"

namespace piper {
namespace {

/// The chunk whose rows are exchanged, on this device.
struct Region {
  Region(const Preparation& prepare, OpId index) {
    const PlannedOp& op = prepare.op(index);
    const Communication& communication = prepare.communication(op);
    const std::vector<int> peers = prepare.members(communication);
    members = static_cast<int>(peers.size());
    me = static_cast<int>(std::find(peers.begin(), peers.end(), prepare.device) - peers.begin());
    group = prepare.group(op, peers);
    shards.routed() = members;
    shards.buffer = communication.buffer;
    find_chunk(prepare, op, communication);
    const ComputationForm form = prepare.computations.form(chunk, Pass::F);
    for (const std::string& value : form.reads)
      if (value != ends && room == 0) room = prepare.computations.value(value, samples, shards).sizes[0];
  }

  int members = 1, me = 0, group = -1;
  ShardCounts shards;
  std::string chunk, ends;  // ends: the value that says where the rows of each expert end
  int64_t samples = 0;
  int64_t room = 0;  // rows of the buffer

 private:
  void find_chunk(const Preparation& prepare, const PlannedOp& op, const Communication& communication) {
    std::vector<std::string> known = {prepare.name(op.label)};  // a gather's own
    for (const BufferId buffer : op.reads) known.push_back(prepare.name(prepare.buffer(buffer).label));
    for (const PlanWork& work : prepare.plan.works) {
      if (work.buffer == 0 || work.shards.routed() != communication.over) continue;
      const ComputationForm form = prepare.computations.form(prepare.plan.names[work.name], Pass::F);
      if (!form.routed_by || std::ranges::find(known, *form.routed_by) == known.end()) continue;
      chunk = prepare.plan.names[work.name];
      ends = *form.routed_by;
      samples = work.samples;
      return;
    }
    throw std::runtime_error("nothing is computed on the rows of an exchange");
  }
};

/// What the gather of counts has left: the ends of all members, then those in this device's buffer.
RoutedRows rows_of(const Region& region, const at::Tensor& gathered) {
  const at::Tensor here = gathered.cpu();
  const int64_t own = here.numel() / (region.members * region.members + 1);  // experts of one device
  return {{here.const_data_ptr<int32_t>(), static_cast<size_t>(here.numel() - own)}, region.members, region.room};
}

/// Brings values to experts and back, round by round.
class RowMover {
 public:
  RowMover(const Preparation& prepare, Region region, std::string value, CommunicationId communication)
      : prepare_(prepare), region_(std::move(region)), communication_(communication) {
    outside_ = prepare.computations.value(value, region_.samples);
    inside_ = prepare.computations.value(value, region_.samples, region_.shards);
  }

  const TensorForm& outside() const { return outside_; }

  /// Rows of `from` to the buffers of their experts; what the buffer has no rows for is zero.
  at::Tensor bring(const RoutedRows& rows, int64_t round, const at::Tensor& from, Frame& frame, int turn) const {
    const at::Tensor message = make_tensor(inside_, frame.device());
    const std::vector<RowRange> arrivals = rows.arrivals(region_.me, round);
    std::vector<at::Tensor> out, in;
    for (int peer = 0; peer < region_.members; ++peer) {
      out.push_back(part(from, rows.sent(region_.me, peer, round)));
      in.push_back(part(message, arrivals[static_cast<size_t>(peer)]));
    }
    exchange(out, in, frame, turn);
    at::Tensor to = make_tensor(inside_, frame.device());
    int64_t filled = 0;
    for (const RowPiece& piece : rows.pieces(region_.me, round)) {
      to.narrow(0, piece.at, piece.count).copy_(message.narrow(0, piece.in_messages, piece.count));
      filled = piece.at + piece.count;
    }
    to.narrow(0, filled, to.size(0) - filled).zero_();
    return to;
  }

  /// Back to where they came from, beside what is there.
  void send_back(const RoutedRows& rows, int64_t round, const at::Tensor& from, at::Tensor& to, Frame& frame,
                 int turn) const {
    const at::Tensor message = make_tensor(inside_, frame.device());
    for (const RowPiece& piece : rows.pieces(region_.me, round))
      message.narrow(0, piece.in_messages, piece.count).copy_(from.narrow(0, piece.at, piece.count));
    const std::vector<RowRange> arrivals = rows.arrivals(region_.me, round);
    std::vector<at::Tensor> out, in;
    for (int peer = 0; peer < region_.members; ++peer) {
      out.push_back(part(message, arrivals[static_cast<size_t>(peer)]));
      in.push_back(part(to, rows.sent(region_.me, peer, round)));
    }
    exchange(out, in, frame, turn);
  }

 private:
  static at::Tensor part(const at::Tensor& of, const RowRange& rows) { return of.narrow(0, rows.first, rows.count); }

  void exchange(const std::vector<at::Tensor>& out, const std::vector<at::Tensor>& in, Frame& frame, int turn) const {
    const auto bytes = [](const at::Tensor& tensor) {
      return std::span<std::byte>(static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes());
    };
    std::vector<std::span<const std::byte>> outwards;
    std::vector<std::span<std::byte>> inwards;
    for (const at::Tensor& tensor : out) outwards.push_back(bytes(tensor));
    for (const at::Tensor& tensor : in) inwards.push_back(bytes(tensor));
    prepare_.communicator.exchange(region_.group, prepare_.sequence(communication_, frame), turn, outwards, inwards);
  }

  Preparation prepare_;
  Region region_;
  CommunicationId communication_;
  TensorForm outside_, inside_;
};

/// Every member's counts to all, and where rows end in this device's buffer in the first round.
class GatherCounts : public Executor {
 public:
  GatherCounts(const Preparation& prepare, OpId index)
      : prepare_(prepare), communication_(prepare.op(index).communication), region_(prepare, index) {
    from_ = buffer_of_value(prepare, prepare.op(index).reads, region_.ends);
    to_ = buffer_of_value(prepare, prepare.op(index).writes, region_.ends);
    elements_ = prepare.buffer(to_).bytes / piper::bytes_of(DType::Int32);
  }

  void run(Frame& frame) override {
    const at::Tensor& from = frame[from_];
    at::Tensor& to = frame[to_];
    to = make_flat(DType::Int32, elements_, frame.device());
    const auto part = static_cast<size_t>(from.nbytes());
    prepare_.communicator.all_gather(region_.group, prepare_.sequence(communication_, frame), {bytes_of(from), part},
                                     {bytes_of(to), part * static_cast<size_t>(region_.members)}, from.nbytes());
    const RoutedRows rows = rows_of(region_, to);
    std::vector<int32_t> ends(static_cast<size_t>(rows.experts_here()));
    rows.ends_in(region_.me, 0, ends);
    const at::Tensor here = at::from_blob(ends.data(), {rows.experts_here()}, at::kInt);
    to.narrow(0, elements_ - rows.experts_here(), rows.experts_here()).copy_(here);
  }

 private:
  Preparation prepare_;
  CommunicationId communication_;
  Region region_;
  BufferId from_, to_;
  int64_t elements_ = 0;
};

/// The first round.
class ExchangeRows : public Executor {
 public:
  ExchangeRows(const Preparation& prepare, OpId index)
      : region_(prepare, index),
        mover_(prepare, region_, prepare.name(prepare.op(index).label), prepare.op(index).communication) {
    const PlannedOp& op = prepare.op(index);
    from_ = buffer_of_value(prepare, op.reads, prepare.name(op.label));
    to_ = buffer_of_value(prepare, op.writes, prepare.name(op.label));
    counts_ = buffer_of_value(prepare, op.reads, region_.ends);
    back_ = prepare.communication(op).exchange == Exchange::Gather;
  }

  void run(Frame& frame) override {
    const RoutedRows rows = rows_of(region_, frame[counts_]);
    at::Tensor& to = frame[to_];
    if (!back_) {
      to = mover_.bring(rows, 0, frame[from_], frame, 0);
      return;
    }
    to = make_tensor(mover_.outside(), frame.device());
    const int64_t held = rows.held(region_.me);
    to.narrow(0, held, to.size(0) - held).zero_();
    mover_.send_back(rows, 0, frame[from_], to, frame, 0);
  }

 private:
  Region region_;
  RowMover mover_;
  BufferId from_, to_, counts_;
  bool back_ = false;
};

/// A pass of the chunk in further rounds.
struct RoundsPass {
  RoundsPass(const Preparation& prepare, const PlannedOp& op, const Region& region, Pass pass)
      : form(prepare.computations.form(region.chunk, pass)) {
    ComputationSite site{region.chunk, pass, region.samples, {}, prepare.device};
    site.shards.buffer = region.shards.buffer;
    const PlanWork& work = prepare.plan.works[op.work];
    for (const ShardRule& rule : shard_rules) {
      if (!work.shards[rule.kind].valid()) continue;
      const std::vector<int> members = prepare.members_of(work.shards[rule.kind]);
      site.shards[rule.kind] = {static_cast<int64_t>(members.size()),
                                std::find(members.begin(), members.end(), prepare.device) - members.begin()};
    }
    for (const std::string& name : form.parameters) parameters.add(flat_view(prepare, op.reads, name), prepare.frame);
    for (const std::string& name : form.gradients) {
      const FlatView gradient = flat_view(prepare, op.writes, name);
      gradients.add(gradient, prepare.frame);
      contributions.add(prepare, gradient);
    }
    computation = prepare.computations.make(site);
  }

  /// Reads and writes what is there by its name.
  void run(std::map<std::string, at::Tensor>& values) {
    std::vector<at::Tensor> reads, writes;
    for (const std::string& value : form.reads) reads.push_back(values.at(value));
    computation->run({reads, parameters.tensors, gradients.tensors, writes, slice, nullptr, nullptr});
    for (size_t i = 0; i < writes.size(); ++i) values[form.writes[i]] = std::move(writes[i]);
  }

  ComputationForm form;
  FlatViews parameters, gradients;
  Contributions contributions;
  SliceKey slice;
  std::unique_ptr<Computation> computation;
};

/// All further rounds: rows there, through the experts, and back. In backward rows of forward come once more.
class Rounds : public Executor {
 public:
  Rounds(const Preparation& prepare, OpId index) : region_(prepare, index) {
    const PlannedOp& op = prepare.op(index);
    const bool backward = op.label.pass != Pass::F && op.label.pass != Pass::R;
    passes_.emplace_back(prepare, op, region_, Pass::F);
    if (backward) passes_.emplace_back(prepare, op, region_, Pass::B);
    result_ = prepare.name(op.label);
    to_ = buffer_of_value(prepare, op.writes, result_);
    counts_ = buffer_of_value(prepare, op.reads, region_.ends);
    movers_.emplace(result_, RowMover(prepare, region_, result_, op.communication));
    for (const BufferId buffer : op.reads) {
      const std::string& value = prepare.name(prepare.buffer(buffer).label);
      if (prepare.buffer(buffer).category != Category::Activations || buffer == counts_ || buffer == to_) continue;
      sources_.emplace_back(value, buffer);
      movers_.emplace(value, RowMover(prepare, region_, value, op.communication));
    }
  }

  void run(Frame& frame) override {
    const RoutedRows rows = rows_of(region_, frame[counts_]);
    frame.rows.count(rows.rounds(), received(rows), further(rows));
    if (rows.rounds() == 1) return;
    for (RoundsPass& pass : passes_) {
      pass.contributions.make(frame);
      pass.parameters.bind(frame);
      pass.gradients.bind(frame);
    }
    int turn = 0;
    for (int64_t round = 1; round < rows.rounds(); ++round) run(rows, round, frame, turn);
    for (RoundsPass& pass : passes_) {
      pass.parameters.unbind();
      pass.gradients.unbind();
    }
  }

 private:
  int64_t received(const RoutedRows& rows) const { return rows.received(region_.me); }
  int64_t further(const RoutedRows& rows) const { return std::max<int64_t>(0, received(rows) - region_.room); }

  void run(const RoutedRows& rows, int64_t round, Frame& frame, int& turn) {
    std::vector<int32_t> ends(static_cast<size_t>(rows.experts_here()));
    rows.ends_in(region_.me, round, ends);
    std::map<std::string, at::Tensor> values;
    values[region_.ends] = at::empty({rows.experts_here()}, at::TensorOptions(frame.device()).dtype(at::kInt));
    values[region_.ends].copy_(at::from_blob(ends.data(), {rows.experts_here()}, at::kInt));
    for (const auto& [value, buffer] : sources_)
      values[value] = movers_.at(value).bring(rows, round, frame[buffer], frame, turn++);
    for (RoundsPass& pass : passes_) pass.run(values);
    movers_.at(result_).send_back(rows, round, values.at(result_), frame[to_], frame, turn++);
  }

  Region region_;
  std::vector<RoundsPass> passes_;
  std::string result_;
  BufferId to_, counts_;
  std::vector<std::pair<std::string, BufferId>> sources_;  // values that are brought, as they were before
  std::map<std::string, RowMover> movers_;
};

}  // namespace

std::unique_ptr<Executor> make_gather_counts(const Preparation& prepare, OpId op) {
  return std::make_unique<GatherCounts>(prepare, op);
}
std::unique_ptr<Executor> make_exchange_rows(const Preparation& prepare, OpId op) {
  return std::make_unique<ExchangeRows>(prepare, op);
}
std::unique_ptr<Executor> make_rounds(const Preparation& prepare, OpId op) {
  return std::make_unique<Rounds>(prepare, op);
}

}  // namespace piper
