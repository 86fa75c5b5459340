// Which rank runs which stage for which microbatch, read off a timeline.
#pragma once

#include <vector>

#include "timelines/timeline.h"

namespace piper {

/// The timeline is valid: every stage and microbatch has a rank.
class RankTable {
 public:
  explicit RankTable(const Timeline& timeline);

  int stages() const { return stages_; }
  int microbatches() const { return microbatches_; }
  size_t size() const { return ranks_.size(); }
  size_t index(int stage, int microbatch) const {
    return static_cast<size_t>(stage) * static_cast<size_t>(microbatches_) + static_cast<size_t>(microbatch);
  }
  int rank(int stage, int microbatch) const { return ranks_[index(stage, microbatch)]; }

 private:
  int stages_ = 0, microbatches_ = 0;
  std::vector<int> ranks_;
};

}  // namespace piper
