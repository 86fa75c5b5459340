// A region of experts on several devices computes what one device computes that runs the slices in turn; or is refused.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "capture/mixture.h"
#include "capture/step.h"

namespace piper {
namespace {

constexpr uint64_t step_seed = 5;

/// n devices in lockstep: each has a slice and a part of the experts; exchanges are slices of each other's tensors.
class Devices {
 public:
  Devices(const CapturedModel& captured, const MetaModel& weights, const std::vector<at::Tensor>& inputs, int64_t n)
      : captured_(captured), graph_(*captured.graph()), n_(n), values_(static_cast<size_t>(n)), local_(values_) {
    for (const NamedTensor& parameter : weights.parameters) weights_[parameter.name] = parameter.tensor.detach();
    for (const auto& [site, labels] : captured.slices()[0].labels) inside_.insert(site.first);
    for (size_t c = 0; c < graph_.chunks.size(); ++c)
      for (const Pass pass : {Pass::F, Pass::B, Pass::BI})
        if (const PassWork* work = graph_.chunks[c].find(pass))
          for (const ValueId value : work->writes)
            if (inside_.contains(c)) made_inside_.insert(value);
    size_t input = 0;
    for (size_t v = 0; v < graph_.values.size(); ++v)
      if (graph_.values[v].kind == ValueKind::Input) {
        for (int64_t r = 0; r < n; ++r) values_[static_cast<size_t>(r)][ValueId(v)] = inputs[input].narrow(0, r, 1);
        ++input;
      }
  }

  void run(size_t c, Pass pass) {
    const PassWork* work = graph_.chunks[c].find(pass);
    if (!work) return;
    const bool inside = inside_.contains(c);
    for (const ValueId value : work->reads)
      if (inside != made_inside_.contains(value)) exchange(value, inside);
    auto program = captured_.program(ChunkId(c), pass, 1, inside ? ShardCounts(ShardKind::Expert, n_) : ShardCounts());
    if (!program) throw std::runtime_error(render(program.error()));
    for (int64_t r = 0; r < n_; ++r) run_on(r, *work, inside, *program);
  }

  StepResult result() {
    StepResult out;
    for (const auto& [name, parts] : gradients_) {
      if (is_sharded(name)) {
        out.gradients[name] = at::cat(parts, 0);
        continue;
      }
      out.gradients[name] = parts[0];
      for (size_t r = 1; r < parts.size(); ++r) out.gradients[name] = out.gradients[name] + parts[r];
    }
    for (size_t v = 0; v < graph_.values.size(); ++v)
      if (graph_.values[v].kind == ValueKind::Loss)
        for (auto& values : values_) {
          const at::Tensor& loss = values.at(ValueId(v));
          out.loss = out.loss.defined() ? out.loss + loss : loss;
        }
    return out;
  }

 private:
  using Values = std::map<ValueId, at::Tensor>;

  bool is_sharded(const std::string& name) const {
    for (const Parameter& parameter : graph_.parameters)
      if (parameter.name == name) return labelled(parameter.shape, "expert") != nullptr;
    return false;
  }
  int64_t dim_of(ValueId value, std::string_view label) const {
    const Shape& shape = graph_[value].shape;
    for (size_t d = 0; d < shape.size(); ++d)
      if (shape[d].label == label) return static_cast<int64_t>(d);
    throw std::runtime_error(graph_[value].name + " has no dimension " + std::string(label));
  }
  /// Into the region: block j of experts goes to device j, slots are joined in the order of the slices. Out: back.
  void exchange(ValueId value, bool in) {
    if (graph_[value].kind == ValueKind::Input) throw std::runtime_error("an input is not exchanged");
    std::vector<Values>&from = in ? values_ : local_, &to = in ? local_ : values_;
    if (to[0].contains(value)) return;
    const int64_t expert = dim_of(value, "expert"), capacity = dim_of(value, "capacity");
    auto form = captured_.form(value, 1, in ? ShardCounts(ShardKind::Expert, n_) : ShardCounts());
    if (!form) throw std::runtime_error(render(form.error()));
    for (int64_t r = 0; r < n_; ++r) {
      std::vector<at::Tensor> pieces;
      for (const Values& device : from)
        pieces.push_back(device.at(value).chunk(n_, in ? expert : capacity)[static_cast<size_t>(r)]);
      const at::Tensor joined = at::cat(pieces, in ? capacity : expert);
      ASSERT_EQ(joined.sizes(), c10::IntArrayRef(form->sizes));
      to[static_cast<size_t>(r)][value] = at::empty_strided(form->sizes, form->strides, joined.options()).copy_(joined);
    }
  }

  void run_on(int64_t r, const PassWork& work, bool inside, const std::shared_ptr<const ChunkProgram>& program) {
    Values& values = (inside ? local_ : values_)[static_cast<size_t>(r)];
    std::vector<at::Tensor> reads, parameters, gradients, writes;
    for (const ValueId value : work.reads) reads.push_back(values.at(value));
    const auto part = [&](const std::string& name) {
      const at::Tensor& all = weights_.at(name);
      return inside && is_sharded(name) ? all.chunk(n_, 0)[static_cast<size_t>(r)].clone() : all;
    };
    for (const ParameterId id : work.parameters) parameters.push_back(part(graph_[id].name));
    for (const ParameterId id : work.gradients) {
      auto& of_devices = gradients_[graph_[id].name];
      of_devices.resize(static_cast<size_t>(n_));
      at::Tensor& gradient = of_devices[static_cast<size_t>(r)];
      if (!gradient.defined()) gradient = at::zeros_like(part(graph_[id].name), at::MemoryFormat::Contiguous);
      gradients.push_back(gradient);
    }
    RandomKey random{step_seed, r, {}};
    if (inside)
      for (int64_t s = 0; s < n_; ++s) random.gathered_samples.push_back(s);
    ChunkRunner runner(program, inside ? LocalShards(ShardKind::Expert, {n_, r}) : LocalShards());
    runner.run({reads, parameters, {}, gradients, writes, random}, Check::Layouts);
    for (size_t i = 0; i < work.writes.size(); ++i) values[work.writes[i]] = writes[i];
  }

  const CapturedModel& captured_;
  const ModelGraph& graph_;
  int64_t n_;
  std::vector<Values> values_, local_;  // by device: outside and inside the region
  std::map<std::string, at::Tensor> weights_;
  std::map<std::string, std::vector<at::Tensor>> gradients_;
  std::set<size_t> inside_;
  std::set<ValueId> made_inside_;
};

StepResult on_devices(const CapturedModel& captured, const MetaModel& weights, const std::vector<at::Tensor>& inputs,
                      int64_t n, bool halves) {
  Devices devices(captured, weights, inputs, n);
  const size_t count = captured.graph()->chunks.size();
  for (size_t c = 0; c < count; ++c) devices.run(c, Pass::F);
  for (size_t c = count; c-- > 0;) devices.run(c, halves ? Pass::BI : Pass::B);
  if (halves)
    for (size_t c = 0; c < count; ++c) devices.run(c, Pass::BW);
  return devices.result();
}

/// One device that runs the slices in turn.
StepResult in_turn(const CapturedModel& captured, const MetaModel& weights, const std::vector<at::Tensor>& inputs,
                   int64_t n) {
  StepResult sum;
  for (int64_t s = 0; s < n; ++s) {
    const std::vector<at::Tensor> slice = {inputs[0].narrow(0, s, 1), inputs[1].narrow(0, s, 1)};
    StepResult one = captured_step(captured, weights, slice, {step_seed, s, {}}, ReplayedBackward::Whole);
    sum.loss = sum.loss.defined() ? sum.loss + one.loss : one.loss;
    for (auto& [name, gradient] : one.gradients)
      sum.gradients[name] = sum.gradients.contains(name) ? sum.gradients[name] + gradient : gradient;
  }
  return sum;
}

void expect_near(const StepResult& seen, const StepResult& reference) {
  EXPECT_NEAR(seen.loss.item<double>(), reference.loss.item<double>(), 1e-12 * std::abs(reference.loss.item<double>()));
  ASSERT_EQ(seen.gradients.size(), reference.gradients.size());
  for (const auto& [name, gradient] : reference.gradients) {
    const at::Tensor& other = seen.gradients.at(name);
    ASSERT_EQ(other.sizes(), gradient.sizes()) << name;
    const double scale = gradient.abs().max().item<double>();
    EXPECT_LE((other - gradient).abs().max().item<double>(), 1e-12 * scale) << name;
  }
}

class ShardAccepted : public testing::TestWithParam<mixture::Formulation> {};

TEST_P(ShardAccepted, SeveralDevicesEqualOne) {
  for (const int64_t layers : {1, 3})
    for (const int64_t dim : {6, 8}) {  // 8: as many as experts
      if (layers == 3 && dim == 8) continue;
      mixture::Sizes sizes;
      sizes.layers = layers;
      sizes.dim = dim;
      const MetaModel weights = mixture::make(GetParam().name, sizes);
      const CapturedModel captured = mixture::captured(GetParam().name, sizes);
      ASSERT_THAT(captured.unshardable(), testing::IsEmpty()) << render(captured.unshardable()[0]);
      for (const int64_t n : {2, 4, 8}) {
        const auto inputs = mixture::batch(sizes, n);
        const StepResult reference = in_turn(captured, weights, inputs, n);
        expect_near(on_devices(captured, weights, inputs, n, false), reference);
        expect_near(on_devices(captured, weights, inputs, n, true), reference);
      }
    }
}

class ShardRefused : public testing::TestWithParam<mixture::Formulation> {};

TEST_P(ShardRefused, WithTheReason) {
  const CapturedModel captured = mixture::captured(GetParam().name, {});
  ASSERT_FALSE(captured.unshardable().empty());
  const Diagnostic& why = captured.unshardable()[0];
  EXPECT_EQ(why.code, ErrorCode::E308);
  EXPECT_THAT(why.message, testing::HasSubstr(GetParam().refused));
  EXPECT_FALSE(why.helps.empty());
  for (const Value& value : captured.graph()->values) EXPECT_FALSE(labelled(value.shape, "expert")) << value.name;
}

const auto formulation_name = [](const auto& info) { return info.param.name; };
INSTANTIATE_TEST_SUITE_P(Formulations, ShardAccepted, testing::ValuesIn(mixture::accepted()), formulation_name);
INSTANTIATE_TEST_SUITE_P(Formulations, ShardRefused, testing::ValuesIn(mixture::refused()), formulation_name);

}  // namespace
}  // namespace piper
