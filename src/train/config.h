// What a training run is besides its model: the sections [optimizer], [lr_schedule], [data] and [run] of a
// configuration. All keys: docs/training.md.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "runtime/optimizer/optimizer.h"
#include "train/checkpoint_config.h"
#include "train/data/token_source.h"

namespace piper {

/// How the learning rate falls after the warmup.
enum class LrShape {
  Constant,
  Linear,
  Cosine,       // along half a cosine
  InverseRoot,  // with the root of the number of steps
  Wsd,          // constant, then linear during the last `decay` steps: warmup, stable, decay
};

/// How the learning rate changes over the steps; as it stands, not at all.
struct LrSchedule {
  LrShape shape = LrShape::Cosine;
  int64_t warmup = 0;       // steps until the peak
  int64_t total = 0;        // steps until the lowest rate; 0: those of the run
  int64_t decay = 0;        // wsd: how many of these fall
  double min_lr_ratio = 1;  // share of the peak that is left in the end
};

/// What computes.
enum class RunOn {
  Cpu,   // the processors of this machine
  Cuda,  // its GPU, which all devices share
};

enum class OnNan {
  Stop,  // end the run before the weights are touched
  Skip,  // leave the weights as they are and go on
};

struct RunConfig {
  int64_t steps = 100;
  uint64_t seed = 0;
  std::optional<NamedFile> schedule;
  std::optional<int64_t> devices;    // as many as the schedule declares if not given
  std::optional<NamedFile> emulate;  // a cluster: messages take the time that its links say
  std::optional<NamedFile> trace;    // written
  std::optional<NamedFile> metrics;  // written
  CheckpointConfig checkpoints;
  OnNan on_nan = OnNan::Stop;
  RunOn on = RunOn::Cpu;
  bool deterministic = false;  // on a GPU: the same bits in every run
};

struct TrainConfig {
  std::optional<NamedFile> init;  // folder of weights that the run begins with; `init` of [model]
  OptimizerSettings optimizer;    // `learning_rate` is the peak, `kind` as [step] says
  std::vector<ParameterGroup> groups;
  std::vector<SourceRange> group_places;  // of their patterns
  std::optional<double> clip;             // the largest norm that all gradients together keep
  std::optional<double> clip_value;       // the largest absolute value of one
  LrSchedule rate;
  DataConfig data;
  RunConfig run;
};

/// Anything wrong is E111 at the key or value it is about. [model] and [step] are left to parse_config.
Result<TrainConfig> parse_train_config(const SourceFilePtr& file);

/// Linear up to the peak, then as the shape says down to the lowest rate. Steps count from 0.
double learning_rate(const TrainConfig& config, int64_t step);

}  // namespace piper
