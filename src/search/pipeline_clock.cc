#include "search/pipeline_clock.h"

#include <algorithm>

#include "base/invariant.h"

namespace piper {
namespace {

struct Done {
  double end = 0;
  int rank = -1;
};

PassSeconds seconds_of(const StageSeconds& stage, Pass pass) {
  switch (pass) {
    case Pass::F:
      return stage.forward;
    case Pass::BI:
      return stage.input;
    case Pass::BW:
      return {stage.weights, stage.weights};
    case Pass::B:
    case Pass::R:
      return stage.backward;
  }
  return {};
}

/// What is left to do when the gradient has come; recomputation does not need it.
double after_gradient(const StageSeconds& stage, Pass pass) {
  if (pass == Pass::B) return stage.after_gradient;
  return pass == Pass::BI ? stage.input_after : 0;
}

class PipelineRun {
 public:
  PipelineRun(const Timeline& timeline, const std::vector<StageSeconds>& stages, double transfer)
      : timeline_(timeline), stages_(stages), transfer_(transfer) {
    for (const auto& row : timeline.ranks)
      for (const TimelineCell& cell : row)
        for (const auto& op : {std::optional(cell.first), cell.second})
          if (op) microbatches_ = std::max(microbatches_, static_cast<size_t>(op->microbatch) + 1);
    forward_.resize(stages.size() * microbatches_);
    backward_.resize(forward_.size());
    out_.end.assign(timeline.ranks.size(), 0);
    out_.last_backward.resize(timeline.ranks.size());
    rows_.resize(timeline.ranks.size());
  }

  PipelineTimes run() && {
    bool moved = true;
    while (moved) {
      moved = false;
      for (size_t r = 0; r < rows_.size(); ++r)
        while (rows_[r].cell < timeline_.ranks[r].size() && advance(r)) moved = true;
    }
    for (size_t r = 0; r < rows_.size(); ++r)
      invariant(rows_[r].cell == timeline_.ranks[r].size(), "a valid timeline runs to its end");
    return std::move(out_);
  }

 private:
  /// The cell that a rank is at: parts that have run, and when.
  struct Row {
    size_t cell = 0;
    std::array<std::optional<double>, 2> start, end;
  };

  size_t index(int stage, int microbatch) const {
    return static_cast<size_t>(stage) * microbatches_ + static_cast<size_t>(microbatch);
  }

  std::optional<double> arrival(const Done& input, int rank) const {
    if (input.rank < 0) return std::nullopt;
    return input.end + (input.rank == rank ? 0 : transfer_);
  }

  /// When the input of a pass is there, if it is known already.
  std::optional<double> ready(const TimelineOp& op, int rank) const {
    const size_t here = index(op.stage, op.microbatch);
    if (op.pass == Pass::F) return op.stage == 0 ? 0.0 : arrival(forward_[index(op.stage - 1, op.microbatch)], rank);
    if (op.pass == Pass::BW) return arrival(backward_[here], rank);
    const auto own = arrival(forward_[here], rank);
    if (!own || op.stage + 1 == static_cast<int>(stages_.size())) return own;
    const auto gradient = arrival(backward_[index(op.stage + 1, op.microbatch)], rank);
    return gradient ? std::optional(std::max(*own, *gradient)) : std::nullopt;
  }

  /// Runs what can run of the cell; true if something could.
  bool advance(size_t r) {
    Row& row = rows_[r];
    const TimelineCell& cell = timeline_.ranks[r][row.cell];
    bool moved = false;
    for (size_t part = 0; part < (cell.second ? 2u : 1u); ++part) {
      if (row.end[part]) continue;
      const TimelineOp& op = part == 0 ? cell.first : *cell.second;
      const auto input = ready(op, static_cast<int>(r));
      if (!input) continue;
      const StageSeconds& stage = stages_[static_cast<size_t>(op.stage)];
      const PassSeconds seconds = seconds_of(stage, op.pass);
      row.start[part] = op.pass == Pass::B || op.pass == Pass::BI ? out_.end[r] : std::max(out_.end[r], *input);
      row.end[part] = std::max(*row.start[part] + (cell.second ? seconds.chain : seconds.alone()),
                               *input + after_gradient(stage, op.pass));
      finish(op, r, std::max(out_.end[r], *input), *row.end[part]);
      moved = true;
    }
    if (!row.end[0] || (cell.second && !row.end[1])) return moved;
    double end = *row.end[0];
    if (cell.second)
      end = std::max(
          {end, *row.end[1], std::min(*row.start[0], *row.start[1]) + compute(cell.first) + compute(*cell.second)});
    out_.end[r] = end;
    row = {row.cell + 1, {}, {}};
    return true;
  }

  double compute(const TimelineOp& op) const {
    return seconds_of(stages_[static_cast<size_t>(op.stage)], op.pass).compute;
  }

  void finish(const TimelineOp& op, size_t r, double start, double end) {
    if (op.pass != Pass::F && op.pass != Pass::BI) out_.last_backward[r][op.stage] = start;
    if (op.pass == Pass::BW) return;
    (op.pass == Pass::F ? forward_ : backward_)[index(op.stage, op.microbatch)] = {end, static_cast<int>(r)};
  }

  const Timeline& timeline_;
  const std::vector<StageSeconds>& stages_;
  double transfer_;
  size_t microbatches_ = 0;
  std::vector<Done> forward_, backward_;
  std::vector<Row> rows_;
  PipelineTimes out_;
};

}  // namespace

PipelineTimes run_pipeline(const Timeline& timeline, const std::vector<StageSeconds>& stages, double transfer) {
  return PipelineRun(timeline, stages, transfer).run();
}

namespace {

/// What a pass adds to what its rank keeps, or takes away.
int64_t change(const InstanceMemory& stage, Pass pass) {
  switch (pass) {
    case Pass::F:
      return stage.kept;
    case Pass::B:
    case Pass::R:
      return -stage.kept;
    case Pass::BI:
      return stage.handed - (stage.kept - stage.kept_for_weights);
    case Pass::BW:
      return -(stage.handed + stage.kept_for_weights);
  }
  return 0;
}

/// What ZeRO divides and a chunk of the stage has whole during a pass.
const WholeBytes& whole_during(const InstanceMemory& stage, Pass pass) {
  if (pass == Pass::BW) return stage.made;
  return pass == Pass::B ? stage.both : stage.read;
}

}  // namespace

ActivationPeak peak_activations(const std::vector<TimelineCell>& row, const std::vector<StageMemory>& stages) {
  ActivationPeak peak;
  int64_t kept = 0;
  const auto raise = [&](int64_t least, const WholeBytes& whole) {
    for (size_t w = 0; w < whole.size(); ++w) peak.with_whole[w] = std::max(peak.with_whole[w], least + whole[w]);
  };
  for (const TimelineCell& cell : row) {
    const StageMemory& stage = stages[static_cast<size_t>(cell.first.stage)];
    if (!cell.second && cell.first.pass == Pass::F) peak.any = std::max(peak.any, kept + stage.all.forward);
    if (!cell.second && cell.first.pass == Pass::B) raise(kept, stage.last.backward);
    if (!cell.second && cell.first.pass == Pass::BI) peak.any = std::max(peak.any, kept + stage.last.recomputed);
    int64_t least = kept;  // while the cell runs
    for (const auto& op : {std::optional(cell.first), cell.second}) {
      if (!op) continue;
      const int64_t changed = change(stages[static_cast<size_t>(op->stage)].all, op->pass);
      least += std::min<int64_t>(changed, 0);
      kept += changed;
    }
    for (const auto& op : {std::optional(cell.first), cell.second})
      if (op) raise(least, whole_during(stages[static_cast<size_t>(op->stage)].all, op->pass));
    peak.any = std::max(peak.any, kept);
  }
  return peak;
}

}  // namespace piper
