// Lower bounds: no step of a candidate is faster, or needs less memory, than these say. They are made of the compiler's
// own costs of one microbatch, so that what is bounded away needs no compiling.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <tuple>

#include "search/layout.h"
#include "search/microbatch.h"
#include "search/pipeline_clock.h"
#include "search/problem.h"
#include "timelines/library.h"

namespace piper {

struct Bound {
  double seconds = 0;
  int64_t bytes = 0;  // of the fullest device
  bool fits = true;   // no device is known to have too little memory
};

/// What a pipeline rank does at least until its last backward pass.
struct RankBound {
  double end = 0;
  ActivationPeak activations;
  int64_t dense = 0, experts = 0, undivided = 0;  // elements of parameters, as of instances
  struct LastBackward {
    double start = 0;  // of the pass that completes the gradients of a stage
    int64_t dense = 0, experts = 0;
  };
  std::vector<LastBackward> stages;

  /// One of its stages, whose last backward begins then.
  void add(const InstanceMemory& stage, double start);
};
/// The timeline run with the least times of its passes.
struct PipelineBound {
  double seconds = 0;
  std::vector<RankBound> ranks;
  Layout layout;
  int64_t largest_parameter = 0;
};

/// A bounded cache: keeps what belongs to the last `most` to twice as many keys that were asked for, and makes the rest
/// again.
template <class Key, class Value>
struct Remembered {
  size_t most;
  std::map<Key, Value> now = {}, before = {};
};

/// Bounds of the candidates of one problem, which outlives it. What candidates have in common is computed once; any
/// thread may ask.
class Bounds {
 public:
  explicit Bounds(const Problem& problem);

  /// What was asked for so far, in seconds of one usual core: counted from sizes, whatever threads did it.
  double work() const { return 1e-6 * static_cast<double>(microseconds_.load()); }
  /// Of the model, as it is.
  int64_t chunks() const { return chunks_; }

  /// Of all candidates with this mesh: that of the form that computes least.
  Result<double> mesh(const Candidate& candidate);
  /// Of all with this form. Refused where the compiler refuses them all.
  Result<double> form(const Candidate& candidate);
  /// Some rank of every pipeline of this form may hold what the form keeps of one microbatch.
  bool may_fit(const Candidate& candidate);
  /// Of all with this pipeline, from sums: of the ways to replicate it that may fit, or of all if none may. E314: the
  /// timeline has no such sizes.
  Result<Bound> pipeline(const Candidate& candidate);
  /// Of all with this pipeline, by running its timeline.
  Result<std::shared_ptr<const PipelineBound>> clock(const Candidate& candidate);
  /// Of the candidate itself.
  Bound replication(const Candidate& candidate, const PipelineBound& pipeline) const;

  /// Where stages begin so that the slowest is as fast as possible, each on the devices of its rank; empty if that is
  /// the even division.
  Result<std::vector<int>> balanced_cuts(const Candidate& candidate);

 private:
  using RankKey = std::tuple<std::array<int, 3>, std::string, std::array<bool, 4>>;
  using MicrobatchKey = std::pair<RankKey, int64_t>;
  using RankResult = std::shared_ptr<const Result<std::shared_ptr<RankDag>>>;
  using LayoutKey = std::tuple<std::array<int, 5>, std::array<Axis, 3>>;
  using MicrobatchResult = std::shared_ptr<const Result<Microbatch>>;
  /// The same for all orders of axes that lay experts and tensor parallelism on the same links.
  struct Stages {
    std::vector<StageSeconds> seconds;  // on the slowest kind of device of their ranks
    std::vector<StageMemory> memory;
    int64_t sent = 0;  // from stage to stage, at least
  };
  using StagesPtr = std::shared_ptr<const Stages>;
  /// What each stage is made of: the microbatch with recomputation, and the one without in the stages that have none.
  struct Made {
    MicrobatchResult first, rest;
    std::shared_ptr<const CommunicationSeconds> of_first, of_rest;
    int recomputed = 0;         // stages
    std::vector<size_t> kinds;  // of device that sets the pace of each stage
    const Microbatch& microbatch(size_t stage) const { return is_first(stage) ? **first : **rest; }
    const CommunicationSeconds& communication(size_t stage) const { return is_first(stage) ? *of_first : *of_rest; }
    bool is_first(size_t stage) const { return static_cast<int>(stage) < recomputed; }
  };
  using MadeKey = std::tuple<MicrobatchResult, MicrobatchResult, int, ByAxis<int>, std::vector<size_t>>;
  using StagesKey = std::pair<MadeKey, std::vector<int>>;
  using CommunicationKey = std::pair<MicrobatchResult, ByAxis<int>>;
  using TimelineKey = std::tuple<std::string, int, int, int>;
  using TimesKey = std::tuple<StagesPtr, TimelineKey, double>;

  Result<std::vector<ActivationPeak>> activations(const Candidate& candidate, const Stages& stages);
  MadeKey key_of(const Made& made, const Candidate& candidate);
  Result<PipelineBound> sums(const Candidate& candidate);
  RankResult rank(const Candidate& candidate);
  MicrobatchResult microbatch(const Candidate& candidate);
  std::shared_ptr<const Layout> layout(const Candidate& candidate);
  std::shared_ptr<const CommunicationSeconds> communication(const MicrobatchResult& microbatch, const Layout& layout);
  Result<Made> made(const Candidate& candidate);
  Result<StagesPtr> stages(const Candidate& candidate);
  Result<std::shared_ptr<const Timeline>> timeline(const Candidate& candidate);

  double chunks_of(const Candidate& candidate) const {
    return static_cast<double>(divides_layers(candidate) ? parts_ : chunks_);
  }
  /// Adds to the work: `count` times so many microseconds.
  void count(double microseconds, double count) const;
  /// The first time that such a thing is asked for.
  template <class Key>
  bool is_new(std::set<Key>& seen, const Key& key);

  const Problem& problem_;
  int64_t chunks_ = 1, parts_ = 1;  // of the model, as it is and with layers in parts
  mutable std::atomic<int64_t> microseconds_ = 0;
  std::mutex mutex_;
  std::set<RankKey> seen_ranks_;
  std::set<MicrobatchKey> seen_microbatches_;
  // layers and forms make them large: as many as take some hundred megabytes for the largest models
  Remembered<RankKey, RankResult> ranks_{48};
  Remembered<MicrobatchKey, MicrobatchResult> microbatches_{300};
  Remembered<CommunicationKey, std::shared_ptr<const CommunicationSeconds>> communications_{600};
  Remembered<StagesKey, StagesPtr> stages_{4000};
  Remembered<MadeKey, std::shared_ptr<const std::vector<int>>> cuts_{4000};
  Remembered<TimelineKey, std::shared_ptr<const Result<Timeline>>> timelines_{32};
  Remembered<TimesKey, std::shared_ptr<const PipelineTimes>> times_{2000};
  Remembered<LayoutKey, std::shared_ptr<const Layout>> layouts_{100'000};
  std::vector<Spreads> spreads_;  // by number: those of layouts
};

}  // namespace piper
