// Bounds::replication: what ZeRO, reductions, gathers and updates add to the bound of a pipeline.
#include <algorithm>

#include "ir/local_size.h"
#include "search/bound.h"

namespace piper {
namespace {

constexpr double of_replication = 2.5;  // microseconds of a core, for each rank

/// What replication adds to the bound of a pipeline.
class ReplicationBound {
 public:
  ReplicationBound(const Problem& problem, const Candidate& candidate, const PipelineBound& pipeline)
      : cluster_(problem.cluster),
        step_(problem.step),
        candidate_(candidate),
        pipeline_(pipeline),
        measured_(problem.costs.has_value()) {}

  Bound bound() const {
    Bound out;
    double update = 0;
    for (size_t r = 0; r < pipeline_.ranks.size(); ++r) {
      const RankBound& rank = pipeline_.ranks[r];
      out.seconds = std::max(out.seconds, reduced(rank));
      update = std::max(update, updated(rank, r));
      const int64_t bytes = this->bytes(rank);
      out.bytes = std::max(out.bytes, bytes);
      for (const size_t kind : pipeline_.layout.kinds[r])
        if (const auto& memory = cluster_.kinds[kind].memory; memory && bytes > *memory) out.fits = false;
    }
    out.seconds += update;
    return out;
  }

 private:
  /// Elements of one device that ZeRO leaves of so many, if it divides them from this level on.
  double left(int64_t dense, int64_t experts, int from_level) const {
    if (candidate_.zero < from_level) return static_cast<double>(dense + experts);
    return static_cast<double>(dense) / replicas(candidate_) + static_cast<double>(experts) / candidate_.dp;
  }

  int64_t bytes(const RankBound& rank) const {
    const double weights = left(rank.dense, rank.experts, 3) * static_cast<double>(bytes_of(step_.weights));
    const double gradients = left(rank.dense, rank.experts, 2) * static_cast<double>(bytes_of(step_.gradients));
    const double optimizer =
        left(rank.dense, rank.experts, 1) * static_cast<double>(optimizer_bytes(step_, step_.weights, step_.optimizer));
    const int zero = replicas(candidate_) > 1 ? candidate_.zero : 0;
    return static_cast<int64_t>(weights + gradients + optimizer) +
           std::max(rank.activations.any, rank.activations.with_whole[whole_index(zero, candidate_.dp > 1)]);
  }

  /// Of all buckets together: each at most as large as a bucket may be, or as one parameter is.
  double communicated(int64_t dense, int64_t experts, CollectiveKind kind, DType dtype) const {
    const int64_t largest = std::max(candidate_.bucket, pipeline_.largest_parameter * bytes_of(step_.gradients)) /
                            bytes_of(step_.gradients) * bytes_of(dtype);
    const auto seconds = [&](const Spreads& spreads, int64_t elements) {
      const int64_t bytes = elements * bytes_of(dtype);
      if (bytes == 0) return 0.0;
      if (bytes <= largest) return least_seconds(cluster_, spreads, kind, bytes);
      return static_cast<double>(bytes) / static_cast<double>(largest) *
             least_seconds(cluster_, spreads, kind, largest);
    };
    return seconds(pipeline_.layout.dense, dense) + seconds(pipeline_.layout.experts, experts);
  }

  /// When the last gradients of a rank are reduced: one reduction after the other, none before its gradients are there.
  double reduced(const RankBound& rank) const {
    const CollectiveKind kind = candidate_.zero == 0 ? CollectiveKind::AllReduce : CollectiveKind::ReduceScatter;
    std::vector<RankBound::LastBackward> stages = rank.stages;
    std::ranges::sort(stages, [](const auto& a, const auto& b) { return a.start > b.start; });
    double all = 0, end = rank.end;
    int64_t dense = 0, experts = 0;
    for (const auto& stage : stages) {  // a bucket may hold parameters of several stages
      dense += stage.dense, experts += stage.experts;
      all = communicated(dense, experts, kind, step_.gradients);
      end = std::max(end, stage.start + all);
    }
    if (candidate_.zero < 2) return end;
    return std::max(end, candidate_.microbatches * all);
  }

  /// Until the parameters are updated, and gathered if ZeRO has divided the update.
  double updated(const RankBound& rank, size_t r) const {
    const int64_t equal = rank.undivided - rank.undivided / candidate_.tp;  // equal copies may divide an update
    const auto elements = static_cast<int64_t>(left(rank.dense - equal, rank.experts, 1));
    const DeviceWork work = update_work(step_, step_.weights, elements);
    double slowest = 0;
    for (const size_t k : pipeline_.layout.kinds[r]) {
      const DeviceKind& kind = cluster_.kinds[k];
      slowest = std::max(slowest, compute_seconds(kind, step_.weights, work) - kind.launch);
    }
    if (measured_) slowest = 0;
    if (candidate_.zero == 0 || candidate_.zero == 3) return slowest;
    return std::max(slowest, communicated(rank.dense, rank.experts, CollectiveKind::AllGather, step_.weights));
  }

  const Cluster& cluster_;
  const StepConfig& step_;
  const Candidate& candidate_;
  const PipelineBound& pipeline_;
  bool measured_;
};

}  // namespace

Bound Bounds::replication(const Candidate& candidate, const PipelineBound& pipeline) const {
  count(of_replication, candidate.pp);
  return ReplicationBound(problem_, candidate, pipeline).bound();
}

}  // namespace piper
