// A wrapper of Computations, for those who change only how they run.
#pragma once

#include "runtime/computation.h"

namespace piper {

/// Forwards everything but `make`.
class PassingComputations : public Computations {
 public:
  explicit PassingComputations(Computations& to) : to_(to) {}

  ComputationForm form(std::string_view name, Pass pass) const override { return to_.form(name, pass); }
  TensorForm value(std::string_view name, int64_t samples, const ShardCounts& shards) const override {
    return to_.value(name, samples, shards);
  }
  int64_t sample_dim(std::string_view value) const override { return to_.sample_dim(value); }
  ExchangeForm exchange(std::string_view value, int64_t samples, int64_t parts, bool inwards) const override {
    return to_.exchange(value, samples, parts, inwards);
  }
  ParameterForm parameter(std::string_view name) const override { return to_.parameter(name); }

 protected:
  Computations& to_;
};

}  // namespace piper
