// A small model that is trained under one plan, saved, and goes on under another.
#pragma once

#include "train/loop/checkpoint/saved_model.h"
#include "train_loop/combination.h"
#include "train_loop/trained.h"

namespace piper {

/// What it was after the last step.
struct Ended {
  std::vector<double> losses;  // of the steps since it began or went on
  Tensors state;               // weights, moments and master copies
};

/// One part of a run: a plan, and how many steps.
struct RunPart {
  const CapturedModel* captured = nullptr;
  std::shared_ptr<const Plan> plan;
  int64_t steps = 1;
};

RunPart part_of(const Subject& subject, const std::string& schedule, int64_t samples, int64_t steps);
RunPart part_of(const Subject& subject, const Combination& c, int64_t steps);

/// With its first values. `world`: this process among others; none: it is alone.
std::unique_ptr<TrainingRun> begin(const TrainableModel& model, const RunPart& part, const TrainSettings& settings,
                                   World* world = nullptr);
/// Its tensors, in several files.
SavedModel small_files(const TrainableModel& model, TrainingRun& run);

/// Steps from `first` on. `from`: a checkpoint to resume from; empty: the first values. `to`: the folder in which the
/// end is saved; empty: nowhere.
Ended train_part(const TrainableModel& model, const RunPart& part, const TrainSettings& settings, int64_t first,
                 const std::string& from, const std::string& to);

/// The parts one after the other, each from the checkpoint of the one before; what the last one ended with.
Ended train_in_parts(const TrainableModel& model, const std::vector<RunPart>& parts, const TrainSettings& settings,
                     const std::string& folder);

/// The largest relative difference of states and losses, and where.
Difference compare(const Ended& run, const Ended& reference);

}  // namespace piper
