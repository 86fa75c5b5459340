// Measured costs of computations: a text file that the runtime writes and `--costs` reads.
//
//   piper costs 1
//   layer.0.attention F 4 0.00123      # chunk, pass, samples of a slice on one device, seconds
//   "bucket0.layer.1.wq..layer.0.wq" update 0 0.0004  # a bucket by its first and last parameter
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "model/model_graph.h"

namespace piper {

struct CostTable {
  struct Key {
    std::string name;          // a chunk, or a bucket as the plan calls it
    std::optional<Pass> pass;  // none: the update of a bucket
    int64_t samples = 0;       // 0 for an update
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  std::map<Key, double> seconds;
  SourceRange where;                  // the first line
  std::map<Key, SourceRange> places;  // of the lines that were read
  friend bool operator==(const CostTable& a, const CostTable& b) { return a.seconds == b.seconds; }
};

/// Malformed lines, NaN, times that are negative or longer than any, unknown passes and repeated keys are errors with their place.
Result<CostTable> parse_cost_table(const SourceFilePtr& file);
std::string print(const CostTable& table);

/// E105: a cost of a chunk or of parameters that the model does not have.
Checked check_names(const CostTable& table, const ModelGraph& model);

/// Recomputation costs what forward costs, unless the table says otherwise.
std::optional<double> find(const CostTable& table, std::string_view name, std::optional<Pass> pass, int64_t samples);
/// What find finds; if nothing, E411.
Result<double> measured_seconds(const CostTable& table, std::string_view name, std::optional<Pass> pass,
                                int64_t samples);

}  // namespace piper
