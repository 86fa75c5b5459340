// What a training run is besides its model: the sections [optimizer], [lr_schedule], [data], [evaluation] and [run] of
// a configuration. All keys: docs/training.md.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
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

/// What a schedule of the learning rate counts.
enum class LrUnit { Steps, Tokens };

/// How the learning rate changes over the run; by default it is constant.
struct LrSchedule {
  LrShape shape = LrShape::Cosine;
  LrUnit unit = LrUnit::Steps;  // of the three that follow
  int64_t warmup = 0;           // until the peak
  int64_t total = 0;            // until the lowest rate; 0: the whole run
  int64_t decay = 0;            // wsd: how much of it falls; 0: a fifth of what follows the warmup
  double min_lr_ratio = 1;      // share of the peak that is left in the end
};

/// What computes.
enum class RunOn {
  Cpu,
  Cuda,  // its GPU, which all devices share
};

enum class OnNan {
  Stop,  // end the run before the weights are touched
  Skip,  // leave the weights as they are and continue
};

struct RunConfig {
  int64_t steps = 100;
  uint64_t seed = 0;
  std::optional<NamedFile> schedule;
  std::optional<int64_t> devices;        // as many as the schedule declares if not given
  std::optional<NamedFile> emulate;      // a cluster: messages take the time that its links say
  std::optional<NamedFile> trace;        // written
  std::optional<NamedFile> metrics;      // written
  std::optional<NamedFile> tensorboard;  // a folder, for event files
  CheckpointConfig checkpoints;
  OnNan on_nan = OnNan::Stop;
  RunOn on = RunOn::Cpu;
  bool deterministic = false;         // on a GPU: the same bits in every run
  std::optional<int64_t> loss_block;  // tokens for which logits are made at a time; 0: for all
  std::optional<bool> fewest_saved;   // what backward can make again by pointwise calls is not saved
};

/// Texts that are continued at every evaluation.
struct PromptConfig {
  std::vector<std::string> texts;
  std::vector<SourceRange> places;
  int64_t max_new_tokens = 32;         // after each
  double temperature = 0;              // 0: the likeliest token
  std::optional<NamedFile> tokenizer;  // of data that are tokens; none: tokens are bytes
};

/// When and on what the run is evaluated.
struct EvaluationConfig {
  int64_t every = 0;    // steps; 0: at the end only
  int64_t batches = 1;  // of the size of a step's
  DataConfig data;
  bool own_data = false;  // otherwise that of the run: the samples after those of its steps
  std::optional<PromptConfig> prompts;
};

struct TrainConfig {
  std::optional<NamedFile> init;  // folder of weights that the run begins with; `init` of [model]
  OptimizerSettings optimizer;    // `learning_rate` is the peak, `kind` as [step] says
  std::vector<ParameterGroup> groups;
  std::vector<SourceRange> group_places;  // of their patterns
  std::set<size_t> frozen_groups;         // their parameters are not trained
  bool decay_matrices_only = false;       // no weight decay of norms, biases and embeddings
  int64_t accumulate = 1;                 // steps whose gradients make one update
  std::optional<double> clip;             // the largest norm that all gradients together keep
  std::optional<double> clip_value;       // the largest absolute value of one
  LrSchedule rate;
  DataConfig data;
  std::optional<EvaluationConfig> evaluation;
  RunConfig run;
};

/// Anything wrong is E111 at the key or value it is about. [model] and [step] are left to parse_config.
Result<TrainConfig> parse_train_config(const SourceFilePtr& file);

/// Where a step is in a run.
struct RunPosition {
  int64_t step = 0;            // from 0
  int64_t tokens = 0;          // before it
  int64_t tokens_of_step = 1;  // in it, and in every one after it
};
/// Linear up to the peak, then as the shape says down to the lowest rate.
double learning_rate(const TrainConfig& config, const RunPosition& at);

}  // namespace piper
