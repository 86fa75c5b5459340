#include "train/loop/captured_computations.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>

#include "base/invariant.h"
#include "ir/local_size.h"

namespace piper {
namespace {

/// What was refused is an error of the run: the schedule asks for something that this model cannot do.
template <class T>
T must(Result<T> result) {
  if (!result) throw std::runtime_error(render(result.error()));
  return *std::move(result);
}

class CapturedComputation : public Computation {
 public:
  CapturedComputation(std::shared_ptr<const ChunkProgram> program, const LocalShards& shards,
                      std::vector<at::Tensor> states)
      : operators_(program->calls()), runner_(std::move(program), shards), states_(std::move(states)) {}

  void run(const ComputationArguments& arguments) override {
    runner_.run({arguments.reads, arguments.parameters, states_, arguments.gradients, arguments.writes,
                 key(arguments.slice), arguments.seeds, arguments.branch},
                checked_ ? Check::None : Check::Layouts);
    checked_ = true;
  }
  int64_t operators() const override { return operators_; }
  bool can_be_recorded() const override { return checked_; }
  std::vector<uint64_t> seeds(const SliceKey& slice) const override { return runner_.seeds(key(slice)); }

 private:
  static RandomKey key(const SliceKey& slice) { return {slice.seed, slice.first_sample, slice.gathered_samples}; }

  int64_t operators_;
  ChunkRunner runner_;
  std::vector<at::Tensor> states_;
  bool checked_ = false;  // in the first step every result is compared with what was recorded
};

/// Extents of a value's dimensions as the model graph shows them: finer than the tensor's where labels divide one.
std::vector<int64_t> extents(const Value& value, int64_t samples, const ShardCounts& shards) {
  std::vector<int64_t> out;
  for (const Dim& dim : value.shape) out.push_back(local_extent(dim, samples, shards));
  return out;
}

/// Bytes that lie together of one of `parts` along the dimension with the label, which lies in one of the tensor's own.
int64_t run_bytes(const Value& value, const std::vector<int64_t>& extents, const TensorForm& form,
                  std::string_view label, int64_t parts) {
  size_t at = 0, own = 0;
  int64_t outer = 1, outside = 1;  // of what is divided, and of the tensor's dimension
  for (; value.shape[at].label != label; ++at) outer *= extents[at];
  for (; outside * form.sizes[own] <= outer; ++own) outside *= form.sizes[own];
  const int64_t inner = outside * form.sizes[own] / (outer * extents[at]);
  return form.strides[own] * inner * (extents[at] / parts) * static_cast<int64_t>(c10::elementSize(form.dtype));
}

}  // namespace

CapturedComputations::CapturedComputations(const CapturedModel& model,
                                           std::function<void(const std::string& name, at::Tensor& whole)> initial,
                                           c10::Device place)
    : model_(model), graph_(*model.graph()), initial_(std::move(initial)), place_(place) {
  for (size_t c = 0; c < graph_.chunks.size(); ++c) chunks_[graph_.chunks[c].name] = ChunkId(c);
  for (size_t v = 0; v < graph_.values.size(); ++v) values_[graph_.values[v].name] = ValueId(v);
  for (size_t p = 0; p < graph_.parameters.size(); ++p) parameters_[graph_.parameters[p].name] = ParameterId(p);
  const std::vector<GraphTensor>& tensors = model.slices()[0].operators.tensors;
  for (size_t t = 0; t < tensors.size(); ++t)
    if (tensors[t].kind == TensorKind::Parameter || tensors[t].kind == TensorKind::Buffer)
      tensors_.emplace(tensors[t].name, TensorId(t));
}

ChunkId CapturedComputations::chunk(std::string_view name) const {
  const auto found = chunks_.find(name);
  invariant(found != chunks_.end(), "a plan's chunks are those of its model");
  return found->second;
}

ValueId CapturedComputations::value_id(std::string_view name) const {
  const auto found = values_.find(name);
  invariant(found != values_.end(), "a plan's values are those of its model");
  return found->second;
}

const GraphTensor& CapturedComputations::tensor(std::string_view name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) internal_error(fmt::format("the model has no parameter {}", name));
  return model_.slices()[0].operators[found->second];
}

ComputationForm CapturedComputations::form(std::string_view name, Pass pass) const {
  const PassWork* work = graph_[chunk(name)].find(pass);
  invariant(work, "a plan runs passes that the chunk has");
  ComputationForm out;
  for (const ValueId value : work->reads) out.reads.push_back(graph_[value].name);
  for (const ValueId value : work->writes) out.writes.push_back(graph_[value].name);
  for (const ParameterId parameter : work->parameters) out.parameters.push_back(graph_[parameter].name);
  for (const ParameterId parameter : work->gradients) out.gradients.push_back(graph_[parameter].name);
  if (const auto ends = graph_[chunk(name)].routed_by) out.routed_by = graph_[*ends].name;
  return out;
}

std::unique_ptr<Computation> CapturedComputations::make(const ComputationSite& site) {
  const ChunkId id = chunk(site.name);
  const ShardCounts counts = site.shards.counts();
  auto& program = programs_[{id.value, site.pass, site.samples, counts}];
  if (!program) {
    program = must(model_.program(id, site.pass, site.samples, counts, place_));
    for (const std::string& name : program->one_at_a_time()) one_at_a_time_.insert(name);
  }
  std::vector<at::Tensor> states;
  for (const std::string& name : model_.states(id, site.pass)) states.push_back(state(site, name));
  return std::make_unique<CapturedComputation>(program, site.shards, std::move(states));
}

at::Tensor CapturedComputations::state(const ComputationSite& site, const std::string& name) {
  State& out = states_[{site.device, name}];
  out.first_sample = std::min(out.first_sample, site.first_sample);
  if (!out.tensor.defined()) {
    at::Tensor whole = on_host(name);
    initial_(name, whole);
    out.tensor = whole.to(place_);
  }
  return out.tensor;
}

at::Tensor CapturedComputations::on_host(const std::string& name) const {
  const TensorLayout& layout = tensor(name).layout;
  return at::empty(layout.sizes, c10::TensorOptions().dtype(static_cast<c10::ScalarType>(layout.element)));
}

CapturedComputations::State CapturedComputations::find_state(const std::string& name) const {
  State first;
  for (const auto& [at, state] : states_)
    if (at.second == name && state.first_sample < first.first_sample) first = state;
  return first;
}

std::vector<std::pair<std::string, at::Tensor>> CapturedComputations::states_of(int device) const {
  std::vector<std::pair<std::string, at::Tensor>> out;
  for (const auto& [at, state] : states_)
    if (at.first == device) out.emplace_back(at.second, state.tensor);
  return out;
}

void CapturedComputations::set_states(const std::function<void(const std::string& name, at::Tensor& whole)>& fill) {
  for (auto& [at, state] : states_) {
    at::Tensor whole = on_host(at.second);
    fill(at.second, whole);
    state.tensor.copy_(whole);
  }
}

TensorForm CapturedComputations::value(std::string_view name, int64_t samples, const ShardCounts& shards) const {
  return must(model_.form(value_id(name), samples, shards));
}

int64_t CapturedComputations::sample_dim(std::string_view name) const {
  const auto found = sample_dimension(graph_[value_id(name)].shape);
  invariant(found.has_value(), "only values with a dimension of samples are cut anew");
  return static_cast<int64_t>(*found);
}

ExchangeForm CapturedComputations::exchange(std::string_view name, int64_t samples, int64_t parts, bool inwards) const {
  const ValueId id = value_id(name);
  const Value& value = graph_[id];
  const bool tokens = labelled(value.shape, sequence_label);
  const bool heads = tokens && graph_.context && labelled(value.shape, tp_label);
  const ShardKind kind = heads            ? ShardKind::Heads
                         : !tokens        ? ShardKind::Expert
                         : graph_.context ? ShardKind::Context
                                          : ShardKind::Sequence;
  const ShardRule& rule = rule_of(kind);
  const ShardCounts shards(kind, parts), outside = heads ? ShardCounts(ShardKind::Context, parts) : ShardCounts();
  const TensorForm whole = must(model_.form(id, samples, outside)), divided = must(model_.form(id, samples, shards));
  const int64_t run_whole = run_bytes(value, extents(value, samples, outside), whole, rule.label, parts);
  if (rule.outside.empty())
    return inwards ? ExchangeForm{whole, divided, run_whole, 0} : ExchangeForm{divided, whole, 0, run_whole};
  const int64_t run_divided = run_bytes(value, extents(value, samples, shards), divided, rule.outside, parts);
  return inwards ? ExchangeForm{whole, divided, run_whole, run_divided}
                 : ExchangeForm{divided, whole, run_divided, run_whole};
}

ParameterForm CapturedComputations::parameter(std::string_view name) const {
  const auto found = parameters_.find(name);
  if (found == parameters_.end()) internal_error(fmt::format("the model has no parameter {}", name));
  const Parameter& parameter = graph_[found->second];
  ParameterForm out;
  out.dtype = parameter.dtype;
  out.sizes = tensor(name).layout.sizes;
  int64_t product = 1;
  size_t dim = 0;
  for (const Dim& factor : parameter.shape) {
    while (dim < out.sizes.size() && product == out.sizes[dim] && factor.size != 1) {
      ++dim;
      product = 1;
    }
    for (const ShardRule& rule : shard_rules)
      if (factor.label == rule.label) out.along[rule.kind] = {dim, out.factors.size(), factor.blocks};
    out.factors.push_back(factor.size);
    product *= factor.size;
  }
  return out;
}

}  // namespace piper
