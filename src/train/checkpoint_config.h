// When and where a run is saved: the keys of [run] about checkpoints, and the options of the same names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "train/data/named_file.h"

namespace piper {

/// After so many steps, or so many seconds; neither: only at the end.
struct CheckpointInterval {
  int64_t steps = 0;
  double seconds = 0;
  friend bool operator==(const CheckpointInterval&, const CheckpointInterval&) = default;
};
/// `500`, or a time: `90s`, `10min`, `2h`, `1d`. Nothing: it is neither.
std::optional<CheckpointInterval> parse_interval(std::string_view text);

struct CheckpointConfig {
  std::optional<NamedFile> folder;  // has a folder for each step that was saved; none: nothing is saved
  CheckpointInterval every;
  int64_t keep = 0;                   // the newest so many stay; 0: all
  int64_t keep_every = 0;             // steps that are multiples stay for good; 0: none
  std::optional<int64_t> shard_size;  // bytes of a file
};

}  // namespace piper
