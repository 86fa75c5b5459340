// Runs a pass of a chunk on the device's part of a slice.
#include <fmt/format.h>

#include <algorithm>

#include "base/invariant.h"
#include "runtime/executors/flat_views.h"

namespace piper {
namespace {

class Run : public Executor {
 public:
  Run(const Preparation& prepare, OpId index) : processor_(prepare.processor), branch_(prepare.branch) {
    const PlannedOp& op = prepare.op(index);
    const PlanWork& work = prepare.plan.works[op.work];
    ComputationSite site{prepare.name(op.label), *work.pass, work.samples, {}, prepare.device};
    place_slice(prepare, op, work, site);
    const ComputationForm form = prepare.computations.form(site.name, site.pass);
    for (const std::string& value : form.reads) {
      if (form.routed_by == value && work.buffer > 0) find_ends(prepare, value, reads_.size(), site);
      reads_.push_back(buffer_of_value(prepare, op.reads, value));
      if (!prepare.index.written[reads_.back()])
        inputs_.push_back({reads_.back(), value, slice_.first_sample, prepare.computations.value(value, work.samples)});
    }
    for (const std::string& value : form.writes) writes_.push_back(buffer_of_value(prepare, op.writes, value));
    for (const std::string& name : form.parameters) parameters_.add(flat_view(prepare, op.reads, name), prepare.frame);
    for (const std::string& name : form.gradients) {
      const FlatView gradient = flat_view(prepare, op.writes, name);
      gradients_.add(gradient, prepare.frame);
      contributions_.add(prepare, gradient);
    }
    for (const BufferId buffer : writes_) planned_bytes_.push_back(prepare.buffer(buffer).bytes);
    computation_ = prepare.computations.make(site);
    if (prepare.processor.graphs() == Graphs::Chunk) recorded_ = prepare.processor.make_graph();
  }

  int64_t operators() const override { return computation_->operators(); }
  bool can_be_recorded() const override { return computation_->can_be_recorded(); }
  void renew(Frame& frame) override { renew_seeds(frame); }
  std::vector<FrameInput> inputs() const override { return inputs_; }

  void run(Frame& frame) override {
    if (frame.settings().step == 0) warm_up();
    for (const FrameInput& input : inputs_) frame.load_input(input);
    for (const BufferId buffer : reads_) read_tensors_.push_back(frame[buffer]);
    if (ends_) show_ends();
    parameters_.bind(frame);
    contributions_.make(frame);
    gradients_.bind(frame);
    slice_.seed = frame.settings().seed;
    compute(frame);
    if (frame.settings().step == 0) check_bytes(write_tensors_);
    for (size_t i = 0; i < writes_.size(); ++i) frame[writes_[i]] = std::move(write_tensors_[i]);
    read_tensors_.clear();
    write_tensors_.clear();
    parameters_.unbind();
    gradients_.unbind();
  }

 private:
  void warm_up() {
    processor_.warm_up();
    if (!branch_) return;
    branch_->mark(0);
    for (size_t lane = 0; lane < Branch::lanes; ++lane) branch_->launch(lane, 0, [&] { processor_.warm_up(); });
    branch_->join();
  }
  void renew_seeds(Frame& frame) {
    slice_.seed = frame.settings().seed;
    const std::vector<uint64_t> seeds = computation_->seeds(slice_);
    if (seeds.empty()) return;
    if (!seeds_) seeds_ = processor_.make_seeds(seeds.size());
    seeds_->set(seeds);
  }

  void by_operators(bool recording) {
    computation_->run({read_tensors_, parameters_.tensors, gradients_.tensors, write_tensors_, slice_,
                       recording && seeds_ ? &seeds_->words() : nullptr, branch_});
  }
  /// Operator by operator, or as it was recorded with tensors at the same places.
  void compute(Frame& frame) {
    if (frame.recording) return by_operators(true);
    if (!recorded_ || !computation_->can_be_recorded() || !recorded_->ready()) return by_operators(false);
    const std::vector<const void*> now_at = places();
    renew_seeds(frame);
    if (recorded_at_.empty()) {
      if (!recorded_->record([&] { by_operators(true); })) {
        recorded_.reset();
        write_tensors_.clear();
        return by_operators(false);
      }
      recorded_at_ = now_at;
      recorded_writes_ = write_tensors_;
    } else if (now_at != recorded_at_) {
      return by_operators(false);
    }
    recorded_->launch();
    write_tensors_ = recorded_writes_;
  }
  std::vector<const void*> places() const {
    std::vector<const void*> out = {nullptr};  // never empty
    for (const auto* tensors : {&read_tensors_, &parameters_.tensors, &gradients_.tensors})
      for (const at::Tensor& tensor : *tensors) out.push_back(tensor.const_data_ptr());
    return out;
  }

  /// Where the rows of experts end in this device's buffer stands behind the same of all devices.
  void find_ends(const Preparation& prepare, const std::string& value, size_t read, const ComputationSite& site) {
    ends_ = read;
    experts_here_ = prepare.computations.value(value, site.samples, site.shards.counts()).sizes[0];
  }
  void show_ends() {
    at::Tensor& ends = read_tensors_[*ends_];
    ends = ends.narrow(0, ends.numel() - experts_here_, experts_here_);
  }

  void place_slice(const Preparation& prepare, const PlannedOp& op, const PlanWork& work, ComputationSite& site) {
    const DeviceList& group = prepare.plan.groups[work.group];
    const auto first_sample = [&](int device) {
      const auto position = std::find(group.begin(), group.end(), device) - group.begin();
      const int64_t parts = static_cast<int64_t>(group.size()) / prepare.plan.devices_per_sample();
      return (std::max(op.label.slice, 0) * parts + position / prepare.plan.devices_per_sample()) * work.samples;
    };
    slice_.first_sample = site.first_sample = first_sample(prepare.device);
    site.shards.buffer = work.buffer;
    for (const ShardRule& rule : shard_rules) {
      if (!work.shards[rule.kind].valid()) continue;
      const std::vector<int> members = prepare.members_of(work.shards[rule.kind]);
      site.shards[rule.kind] = {static_cast<int64_t>(members.size()),
                                std::find(members.begin(), members.end(), prepare.device) - members.begin()};
      if (rule.gathered.empty()) continue;
      for (const int member : members) slice_.gathered_samples.push_back(first_sample(member));
    }
  }

  void check_bytes(const std::vector<at::Tensor>& writes) const {
    for (size_t i = 0; i < writes.size(); ++i)
      if (static_cast<int64_t>(writes[i].storage().nbytes()) != planned_bytes_[i])
        internal_error(fmt::format("output {} has {} bytes, the plan says {}", i, writes[i].storage().nbytes(),
                                   planned_bytes_[i]));
  }

  Processor& processor_;
  Branch* const branch_;
  SliceKey slice_;
  std::vector<BufferId> reads_, writes_;
  std::optional<size_t> ends_;  // of the reads: where the rows of each expert end, if devices divide those
  int64_t experts_here_ = 0;
  std::vector<int64_t> planned_bytes_;
  std::vector<FrameInput> inputs_;
  FlatViews parameters_, gradients_;
  Contributions contributions_;
  std::vector<at::Tensor> read_tensors_, write_tensors_;  // empty between steps; kept for their memory
  std::unique_ptr<Computation> computation_;
  std::unique_ptr<CudaGraph> recorded_;
  std::vector<const void*> recorded_at_;  // empty: not yet
  std::vector<at::Tensor> recorded_writes_;
  std::unique_ptr<RecordedSeeds> seeds_;  // made when something random is recorded
};

}  // namespace

std::unique_ptr<Executor> make_run(const Preparation& prepare, OpId op) {
  return std::make_unique<Run>(prepare, op);
}

}  // namespace piper
