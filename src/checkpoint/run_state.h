// What `piper.json` says: where a run stands, and the sums of all other files.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/block_sums.h"

namespace piper {

/// Where a run stands. No times, hosts or numbers of processes: the same state gives the same bytes, whoever writes it.
struct RunState {
  std::string program = PIPER_VERSION;  // the version that wrote it
  int64_t step = 0;                     // steps done
  int64_t samples = 0;                  // consumed, in the global order
  int64_t updates = 0;                  // of the optimizer: steps without those it skipped
  uint64_t seed = 0;
  double learning_rate = 0;  // of the last step
  double loss = 0;           // of the last step
  uint64_t plan = 0;         // its hash
  std::string configuration;
  std::map<std::string, std::string> extra;  // whatever else a trainer keeps

  friend bool operator==(const RunState&, const RunState&) = default;
};

struct FileSums {
  std::string name;
  int64_t bytes = 0;
  BlockSums blocks;

  friend bool operator==(const FileSums&, const FileSums&) = default;
};

struct PiperJson {
  RunState state;
  std::vector<FileSums> files;

  friend bool operator==(const PiperJson&, const PiperJson&) = default;
};

constexpr std::string_view piper_json_file = "piper.json";
constexpr int64_t checkpoint_format = 1;

/// Doubles come back bit-equal. The last member is the CRC-32 of the file itself, its eight digits taken as zeros.
std::string print(const PiperJson& json);

/// `file`: its name in errors. E901: another format or version. E902: a byte changed, or something is missing.
Result<PiperJson> parse_piper_json(const std::string& file, std::string_view text);

}  // namespace piper
