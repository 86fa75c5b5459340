// A captured model as the runtime sees it.
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <tuple>

#include "capture/capture.h"
#include "runtime/computation.h"

namespace piper {

class CapturedComputations : public Computations {
 public:
  /// `model` outlives it. `initial` fills model buffers that passes write: each device has its own. All tensors are at
  /// `place`.
  CapturedComputations(const CapturedModel& model,
                       std::function<void(const std::string& name, at::Tensor& whole)> initial,
                       c10::Device place = c10::kCPU);

  ComputationForm form(std::string_view name, Pass pass) const override;
  std::unique_ptr<Computation> make(const ComputationSite& site) override;
  TensorForm value(std::string_view name, int64_t samples, const ShardCounts& shards = {}) const override;
  int64_t sample_dim(std::string_view value) const override;
  ExchangeForm exchange(std::string_view value, int64_t samples, int64_t parts, bool inwards) const override;
  ParameterForm parameter(std::string_view name) const override;

  /// Names of operators with which devices here take turns (capture/program/one_at_a_time.h).
  const std::set<std::string>& one_at_a_time() const { return one_at_a_time_; }

  /// A model buffer that passes write: the copy of one device, and the first sample of the batch that it ever sees.
  struct State {
    at::Tensor tensor;
    int64_t first_sample = std::numeric_limits<int64_t>::max();
  };
  /// As the device has it that runs the first slice of those here; undefined if none writes it.
  State find_state(const std::string& name) const;
  /// Those that a device has, by name.
  std::vector<std::pair<std::string, at::Tensor>> states_of(int device) const;
  /// A tensor like any buffer or parameter of the model, without its values.
  at::Tensor like(const std::string& name) const { return on_host(name); }
  /// Sets all copies.
  void set_states(const std::function<void(const std::string& name, at::Tensor& whole)>& fill);

 private:
  ChunkId chunk(std::string_view name) const;
  ValueId value_id(std::string_view name) const;
  const GraphTensor& tensor(std::string_view name) const;
  at::Tensor state(const ComputationSite& site, const std::string& name);
  at::Tensor on_host(const std::string& buffer) const;

  const CapturedModel& model_;
  const ModelGraph& graph_;
  std::function<void(const std::string& name, at::Tensor& whole)> initial_;
  c10::Device place_;
  std::map<std::tuple<int, Pass, int64_t, ShardCounts>, std::shared_ptr<const ChunkProgram>> programs_;
  std::map<std::pair<int, std::string>, State> states_;  // by device and name
  std::set<std::string> one_at_a_time_;
  std::map<std::string, ChunkId, std::less<>> chunks_;
  std::map<std::string, ValueId, std::less<>> values_;
  std::map<std::string, ParameterId, std::less<>> parameters_;
  std::map<std::string, TensorId, std::less<>> tensors_;  // of parameters and buffers, in the first slice
};

}  // namespace piper
