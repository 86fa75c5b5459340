// A captured slice in the numbering of the model graph: what of it may not depend on the number of samples, and what
// may.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "capture/capture.h"

namespace piper {

struct PassForm {
  std::vector<int> reads, writes;  // values
  std::vector<std::string> parameters, gradients;
  bool state = false;
  friend bool operator==(const PassForm&, const PassForm&) = default;
};

/// Equal for all sizes of slices.
struct ShapeSignature {
  struct FormOfChunk {
    std::string name;
    std::array<std::optional<PassForm>, 4> passes;
    bool sequence_sharded = false;
    std::vector<int> all_tokens = {};  // values
    bool causal = false;
    std::optional<int> routed_by = {};  // a value
    friend bool operator==(const FormOfChunk&, const FormOfChunk&) = default;
  };
  std::vector<std::string> values;
  std::vector<FormOfChunk> chunks;
  friend bool operator==(const ShapeSignature&, const ShapeSignature&) = default;
};

struct PassAmounts {
  int64_t flops = 0, moved = 0, streamed = 0, kernels = 0, temporaries = 0;
  std::vector<MatrixProduct> products;
  std::map<ShardCounts, int64_t> divided;  // temporaries by how its region is divided
};

/// A dimension as the model graph shows it: labelled ones stand alone.
struct LabelledSize {
  int64_t size = 1;
  std::string label;
  std::vector<int64_t> blocks = {};  // that it consists of, if it is several
  bool implied = false;  // stands beside a label, where a product of other factors can be: not shown if it is always 1
};

struct SignedSlice {
  ShapeSignature form;
  std::vector<TensorId> base;                                   // by value
  std::vector<std::vector<LabelledSize>> dims;                  // by value
  std::map<std::string, std::vector<LabelledSize>> parameters;  // dims of those that have labels
  std::vector<Partial> partial;                                 // by value
  std::set<std::string> partial_parameters;                     // whose gradients are
  std::vector<std::array<PassAmounts, 4>> amounts;              // by chunk
};
SignedSlice form_of(const CapturedSlice& slice, const std::vector<std::array<PassAmounts, 4>>& amounts);

/// The model graph that is exact for the first `exact` slices; all have the same form.
Result<ModelGraph> graph_of(const CaptureOptions& options, const std::vector<CapturedSlice>& slices,
                            const std::vector<SignedSlice>& formed, size_t exact);

}  // namespace piper
