// Attention whose keys and values come from one device after the other: ring attention.
//
// Step s has the keys and values of the device s before its own; what it finds is merged with what the steps before it
// have found (`merge`), by the logarithms of their sums of exponentials. In backward every step has the merged result,
// so that its gradients are terms of sums; those of keys and values travel with them, and the last ones go home.
#pragma once

#include <string>
#include <vector>

#include "model/analytic/attention_chunk.h"

namespace piper {

/// Where its chunks go, and what they work on.
struct RingPlace {
  std::string prefix;  // layer.0.attention
  std::vector<ScopeTag> scopes;
  Heads heads;
};

class RingAttention {
 public:
  /// Names all values; the chunk that makes queries, keys and values comes before those of the ring.
  RingAttention(ChunkWriter& writer, RingPlace place);

  const Flow& queries() const { return queries_; }
  const Flow& keys() const { return keys_; }  // and values
  const Flow& attended() const { return attended_; }
  void add_chunks();

 private:
  struct Step {
    ValueId out, sums;                // of this step's keys and values
    ValueId for_queries, for_keys;    // gradients
    ValueId merged_out, merged_sums;  // of all keys until here
    ValueId merged_for_queries, merged_for_keys;
  };
  int last() const { return writer_.ring() - 1; }
  ValueId result(const std::string& name, DType dtype) const;
  ValueId sums(const std::string& name) const;
  ValueId gradient(const std::string& name, DType dtype, bool keys) const;
  ChunkDraft draft(const char* kind, int step) const;
  WorkTally tally(const ChunkDraft& draft) const;
  void attend(int step);
  void merge(int step);

  ChunkWriter& writer_;
  RingPlace place_;
  int64_t query_heads_, key_heads_, key_width_;
  Flow queries_, keys_, attended_;
  std::vector<Step> steps_;
};

}  // namespace piper
