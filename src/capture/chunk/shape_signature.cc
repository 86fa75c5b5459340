#include "capture/chunk/shape_signature.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/invariant.h"
#include "capture/chunk/fit_sizes.h"
#include "runtime/frame.h"

namespace piper {
namespace {

/// `aten::_softmax.out` -> softmax
std::string short_name(const Operator& op) {
  std::string name = op.name.substr(op.name.find("::") + 2);
  name = name.substr(0, name.find('.'));
  name.erase(0, name.find_first_not_of('_'));
  while (!name.empty() && name.back() == '_') name.pop_back();
  return name;
}

/// Names of values: inputs, then what passes write, by the operator that made it.
class Values {
 public:
  explicit Values(const CapturedSlice& slice) : slice_(slice) {
    for (const auto& [site, labels] : slice.labels) {
      const ChunkIr& body = *slice.chunks[site.first].find(site.second);
      const bool context = slice.tensor_parallel.context,
                 tokens = context || slice.sequence_sharded.contains(site.first);
      for (const auto* uses : {&body.reads, &body.writes})
        for (const ContentUse& use : *uses)
          if (const TensorLabels& found = labels.tensors[use.inside.index()]; is_labelled(found)) {
            const TensorId base = slice.operators[use.content.storage].base;
            labelled_.emplace(use.content, Labelled{context ? &slice.divided.at(base) : &found, tokens});
          }
      for (const ExternalUse& use : body.parameters)
        if (const TensorLabels& found = labels.tensors[use.inside.index()];
            has(found, Mark::Expert) || has(found, Mark::Sharded))
          parameters.emplace(slice.operators[use.outside].name, labelled_dims({&found, tokens}));
      if (!labels.tp || context) continue;  // along the axis of tokens sums are those of all gradients
      for (const ContentUse& use : body.writes)
        if (const TensorLabels& found = labels.tensors[use.inside.index()]; found.sums_divided)
          partial_[use.content] = found.are_maxima ? Partial::Max : Partial::Sum;
      for (const ExternalUse& use : body.gradients)
        if (labels.tensors[use.inside.index()].sums_divided)
          partial_parameters.insert(slice.operators[use.outside].name);
    }
    for (const TensorId input : slice.operators.inputs)
      add({slice.operators[input].storage, -1}, slice.operators[input].name);
    for (const ChunkBodies& chunk : slice.chunks)
      for (const Pass pass : {Pass::F, Pass::B, Pass::BI})
        if (const ChunkIr* body = chunk.find(pass))
          for (const ContentUse& use : body->writes) add_written(chunk, pass, *body, use);
  }

  int operator[](const Content& content) const {
    const auto found = index_.find(content);
    invariant(found != index_.end(), "what a pass reads was written by a pass before it");
    return found->second;
  }
  std::vector<std::string> names;
  std::vector<TensorId> base;
  std::vector<std::vector<LabelledSize>> dims;
  std::map<std::string, std::vector<LabelledSize>> parameters;
  std::vector<Partial> partial;  // by value
  std::set<std::string> partial_parameters;

 private:
  struct Labelled {
    const TensorLabels* labels;
    bool tokens;  // are what is sharded
  };
  /// A dimension that is a product of labelled factors is shown as several: the same elements in the same order. Plain
  /// factors between labels are one, however they came about: with a single sample some are not there.
  static std::vector<LabelledSize> labelled_dims(const Labelled& labelled) {
    std::vector<LabelledSize> out;
    for (const Factors& dim : labelled.labels->dims) {
      if (!is_labelled(dim)) {
        out.push_back({local_size(dim, {}), ""});
        continue;
      }
      out.push_back({1, "", {}, true});
      for (const Factor& factor : dim) {
        if (factor.mark == Mark::Plain) {
          out.back().size *= factor.size;
          continue;
        }
        out.push_back({factor.size, std::string(factor.mark == Mark::Expert     ? expert_label
                                                : factor.mark == Mark::Capacity ? capacity_label
                                                : factor.mark == Mark::Routed   ? routed_label
                                                : factor.mark == Mark::Head     ? tp_label
                                                : labelled.tokens               ? sequence_label
                                                                                : tp_label)});
        if (!factor.borders.empty()) out.back().blocks = blocks_of(factor);
        out.push_back({1, "", {}, true});
      }
    }
    return out;
  }
  void add(const Content& content, std::string name) {
    if (!index_.try_emplace(content, static_cast<int>(names.size())).second) return;
    const auto labels = labelled_.find(content);
    const auto part = partial_.find(content);
    partial.push_back(part == partial_.end() ? Partial::No : part->second);
    dims.emplace_back();
    if (labels != labelled_.end())
      dims.back() = labelled_dims(labels->second);
    else
      for (const int64_t size : slice_.operators[slice_.operators[content.storage].base].layout.sizes)
        dims.back().push_back({size, ""});
    const int repeated = used_[name]++;
    names.push_back(repeated == 0 ? name : fmt::format("{}.{}", name, repeated + 1));
    base.push_back(slice_.operators[content.storage].base);
  }
  void add_written(const ChunkBodies& chunk, Pass pass, const ChunkIr& body, const ContentUse& use) {
    if (pass == Pass::F && slice_.operators[content_base(use)].producer.valid() &&
        content_base(use) == slice_.operators.loss)
      return add(use.content, "loss");
    const CallId producer = body[use.inside].producer;
    add(use.content, fmt::format("{}{}.{}", pass == Pass::F ? "" : "d.", chunk.name,
                                 short_name(slice_.operators[body.calls[producer.index()].op])));
  }
  TensorId content_base(const ContentUse& use) const { return slice_.operators[use.content.storage].base; }

  const CapturedSlice& slice_;
  std::map<Content, Labelled> labelled_;
  std::map<Content, Partial> partial_;
  std::map<Content, int> index_;
  std::map<std::string, int> used_;
};

bool is_complex(int8_t element) {
  return c10::isComplexType(static_cast<c10::ScalarType>(element));
}

/// Of complex numbers that of their parts.
std::optional<DType> dtype_of(int8_t element) {
  switch (const auto type = static_cast<c10::ScalarType>(element)) {
    case c10::ScalarType::ComplexDouble:
      return DType::Float64;
    case c10::ScalarType::ComplexFloat:
      return DType::Float32;
    case c10::ScalarType::Byte:
      return DType::Int8;
    default:
      return piper::dtype_of(type);
  }
}

std::vector<ScopeTag> tags_of(const OperatorGraph& graph, ScopeId scope) {
  std::vector<ScopeTag> tags;
  for (; scope.valid(); scope = graph[scope].parent) tags.push_back({graph[scope].name, graph[scope].index});
  std::reverse(tags.begin(), tags.end());
  return tags;
}

Diagnostic no_function(std::string what) {
  return error(ErrorCode::E607, {}, std::move(what))
      .help("sizes in a model graph are fixed or proportional to the samples (rounded up)")
      .help("capture fewer sizes of slices, best one: then only those have to be right");
}

Diagnostic no_such_dtype(std::string_view what, const std::string& name, int8_t element) {
  return error(ErrorCode::E607, {},
               fmt::format("{} {} has dtype {}, which plans do not know", what, name,
                           c10::toString(static_cast<c10::ScalarType>(element))))
      .help("keep complex parameters and buffers as pairs, torch::view_as_real(x), and use torch::view_as_complex(x)");
}

/// Assembles the graph from forms that are equal and sizes that are not.
class GraphWriter {
 public:
  GraphWriter(const CaptureOptions& options, const std::vector<CapturedSlice>& slices,
              const std::vector<SignedSlice>& formed, size_t exact)
      : slices_(slices), formed_(formed), exact_(exact), builder_(options.name, options.step) {}

  Result<ModelGraph> write() {
    PIPER_CHECK(add_parameters());
    PIPER_CHECK(add_values());
    const ShapeSignature& form = formed_[0].form;
    for (size_t c = 0; c < form.chunks.size(); ++c) add_chunk(c, form.chunks[c]);
    if (slices_[0].tensor_parallel.context) builder_.label_all_tokens();
    return std::move(builder_).finish();
  }

 private:
  const OperatorGraph& operators() const { return slices_[0].operators; }

  /// All that some pass uses, in the order of the model; what gets no gradient is frozen.
  Checked add_parameters() {
    std::set<std::string> used, trained;
    for (const auto& chunk : formed_[0].form.chunks)
      for (const auto& pass : chunk.passes) {
        if (!pass) continue;
        used.insert(pass->parameters.begin(), pass->parameters.end());
        trained.insert(pass->gradients.begin(), pass->gradients.end());
      }
    used.insert(trained.begin(), trained.end());
    for (const GraphTensor& tensor : operators().tensors) {
      if (tensor.kind != TensorKind::Parameter && tensor.kind != TensorKind::Buffer) continue;
      if (!used.contains(tensor.name)) continue;
      const auto dtype = dtype_of(tensor.layout.element);
      if (!dtype || is_complex(tensor.layout.element))
        return no_such_dtype("parameter", tensor.name, tensor.layout.element);
      Shape shape;
      if (const auto labelled = formed_[0].parameters.find(tensor.name); labelled != formed_[0].parameters.end())
        for (const LabelledSize& dim : labelled->second) {
          if (!dim.implied || dim.size > 1) shape.push_back({dim.size, false, 1, dim.label, dim.blocks});
        }
      else
        for (const int64_t size : tensor.layout.sizes) shape.push_back({size, false, 1, ""});
      const ParameterId parameter = builder_.parameter(tensor.name, *dtype, std::move(shape));
      builder_.set_tensor(parameter, tensor.layout.sizes);
      if (formed_[0].partial_parameters.contains(tensor.name)) builder_.make_partial(parameter);
      if (!trained.contains(tensor.name)) builder_.freeze(parameter);
      parameters_[tensor.name] = parameter;
    }
    return Ok{};
  }

  Checked add_values() {
    const SignedSlice& first = formed_[0];
    for (size_t v = 0; v < first.base.size(); ++v) {
      const GraphTensor& base = operators()[first.base[v]];
      const std::string& name = first.form.values[v];
      const bool is_input = v < operators().inputs.size();  // they come first
      const auto dtype = dtype_of(base.layout.element);
      if (!dtype) return no_such_dtype("value", name, base.layout.element);
      PIPER_TRY(Shape shape, shape_of(v, is_input));
      if (is_complex(base.layout.element)) shape.push_back({2, false, 1, ""});
      const ValueKind kind = is_input                            ? ValueKind::Input
                             : first.base[v] == operators().loss ? ValueKind::Loss
                                                                 : ValueKind::Computed;
      values_.push_back(builder_.value(name, kind, *dtype, std::move(shape)));
      builder_.make_partial(values_.back(), first.partial[v]);
    }
    return Ok{};
  }

  Result<Shape> shape_of(size_t value, bool input) const {
    Shape shape;
    const std::vector<LabelledSize>& first = formed_[0].dims[value];
    for (size_t d = 0; d < first.size(); ++d) {
      std::vector<Seen> seen;
      for (size_t s = 0; s < slices_.size(); ++s) {
        const std::vector<LabelledSize>& dims = formed_[s].dims[value];
        const std::string& name = formed_[0].form.values[value];
        if (dims.size() != first.size())
          return no_function(fmt::format("value {} has {} dimensions or {}", name, first.size(), dims.size()));
        if (dims[d].label != first[d].label)
          return no_function(
              fmt::format("dimension {} of value {} is divided with some numbers of samples only", d, name));
        seen.push_back({slices_[s].samples, dims[d].size});
      }
      if (first[d].implied && std::all_of(seen.begin(), seen.end(), [](const Seen& one) { return one.size == 1; }))
        continue;
      std::optional<Dim> dim = fit_dim(seen);
      if (!dim && exact_ == 1) dim = Dim{first[d].size, false, 1, ""};  // right for the one size that will run
      if (input && d == 0) dim = Dim{1, true, 1, ""};
      if (!dim) {
        std::vector<std::string> sizes;
        for (const Seen& one : seen) sizes.push_back(fmt::format("{} with {} samples", one.size, one.samples));
        return no_function(
            fmt::format("dimension {} of value {} is {}", d, formed_[0].form.values[value], fmt::join(sizes, ", ")));
      }
      dim->label = first[d].label;
      dim->blocks = first[d].blocks;
      shape.push_back(*dim);
    }
    return shape;
  }

  void add_chunk(size_t c, const ShapeSignature::FormOfChunk& form) {
    const ChunkId chunk = builder_.chunk(form.name, tags_of(operators(), slices_[0].chunks[c].scope));
    if (form.sequence_sharded) builder_.make_sequence_sharded(chunk);
    if (form.routed_by) builder_.route(chunk, values_[static_cast<size_t>(*form.routed_by)]);
    std::vector<ValueId> all_tokens;
    for (const int value : form.all_tokens) all_tokens.push_back(values_[static_cast<size_t>(value)]);
    builder_.needs_all_tokens(chunk, std::move(all_tokens), form.causal);
    for (const Pass pass : {Pass::F, Pass::B, Pass::BI, Pass::BW}) {
      const auto& of_pass = form.passes[static_cast<size_t>(pass)];
      if (!of_pass) continue;
      PassWork& work = builder_.work(chunk, pass);
      for (const int value : of_pass->reads) work.reads.push_back(values_[static_cast<size_t>(value)]);
      for (const int value : of_pass->writes) work.writes.push_back(values_[static_cast<size_t>(value)]);
      for (const std::string& name : of_pass->parameters) work.parameters.push_back(parameters_.at(name));
      for (const std::string& name : of_pass->gradients) work.gradients.push_back(parameters_.at(name));
      work.state = of_pass->state;
      work.flops = amount(c, pass, &PassAmounts::flops);
      work.bytes_moved = amount(c, pass, &PassAmounts::moved);
      work.temporaries = amount(c, pass, &PassAmounts::temporaries);
      work.operators = operators_of(c, pass);
      for (const auto& [shards, bytes] : formed_[0].amounts[c][static_cast<size_t>(pass)].divided)
        work.divided[shards] = divided_amount(c, pass, shards);
    }
  }
  Amount amount(size_t chunk, Pass pass, int64_t PassAmounts::*member) const {
    std::vector<Seen> seen;
    for (size_t s = 0; s < slices_.size(); ++s)
      seen.push_back({slices_[s].samples, formed_[s].amounts[chunk][static_cast<size_t>(pass)].*member});
    return fit_amount(seen, exact_);
  }

  /// Nothing if their number, or the shape of a product, is no function of the number of samples.
  std::optional<OperatorWork> operators_of(size_t chunk, Pass pass) const {
    const auto amounts = [&](size_t slice) -> const PassAmounts& {
      return formed_[slice].amounts[chunk][static_cast<size_t>(pass)];
    };
    OperatorWork out{{}, amount(chunk, pass, &PassAmounts::streamed), amounts(0).kernels};
    for (size_t s = 1; s < slices_.size(); ++s)
      if (amounts(s).kernels != out.kernels || amounts(s).products.size() != amounts(0).products.size())
        return std::nullopt;
    for (size_t p = 0; p < amounts(0).products.size(); ++p) {
      Shape shape;
      for (const auto extent :
           {&MatrixProduct::count, &MatrixProduct::rows, &MatrixProduct::columns, &MatrixProduct::depth}) {
        std::vector<Seen> seen;
        for (size_t s = 0; s < slices_.size(); ++s)
          seen.push_back({slices_[s].samples, amounts(s).products[p].*extent});
        const std::optional<Dim> dim = fit_dim(seen);
        if (!dim) return std::nullopt;
        shape.push_back(*dim);
      }
      out.products.push_back({std::move(shape), amounts(0).products[p].kind});
    }
    return out;
  }

  Amount divided_amount(size_t chunk, Pass pass, const ShardCounts& shards) const {
    std::vector<Seen> seen;
    for (size_t s = 0; s < slices_.size(); ++s)
      seen.push_back({slices_[s].samples, formed_[s].amounts[chunk][static_cast<size_t>(pass)].divided.at(shards)});
    return fit_amount(seen, exact_);
  }

  const std::vector<CapturedSlice>& slices_;
  const std::vector<SignedSlice>& formed_;
  size_t exact_;
  ModelBuilder builder_;
  std::map<std::string, ParameterId> parameters_;
  std::vector<ValueId> values_;
};

/// What all passes of a chunk in a region of sorted rows read to know whose rows they have.
std::optional<int> routed_by(const CapturedSlice& slice, size_t chunk, const Values& values,
                             const ShapeSignature::FormOfChunk& form) {
  const BodyLabels* labels = slice.labels_of(chunk, Pass::F);
  const auto ends = labels ? ends_of_rows(slice.operators, *slice.chunks[chunk].find(Pass::F)) : std::nullopt;
  if (!ends || !has(labels->tensors[ends->inside.index()], Mark::Expert)) return std::nullopt;
  const int value = values[ends->content];
  for (const std::optional<PassForm>& pass : form.passes)
    if (pass && std::ranges::find(pass->reads, value) == pass->reads.end()) return std::nullopt;
  return value;
}

}  // namespace

SignedSlice form_of(const CapturedSlice& slice, const std::vector<std::array<PassAmounts, 4>>& amounts) {
  const Values values(slice);
  SignedSlice out{{values.names, {}},        values.base, values.dims, values.parameters, values.partial,
                  values.partial_parameters, amounts};
  for (const ChunkBodies& chunk : slice.chunks) {
    ShapeSignature::FormOfChunk form{chunk.name, {}, slice.sequence_sharded.contains(out.form.chunks.size())};
    for (size_t p = 0; p < chunk.passes.size(); ++p) {
      if (!chunk.passes[p]) continue;
      const ChunkIr& body = *chunk.passes[p];
      PassForm& pass = form.passes[p].emplace();
      for (const ContentUse& use : body.reads) pass.reads.push_back(values[use.content]);
      for (const ContentUse& use : body.writes) pass.writes.push_back(values[use.content]);
      for (const ExternalUse& use : body.parameters) pass.parameters.push_back(slice.operators[use.outside].name);
      for (const ExternalUse& use : body.gradients) pass.gradients.push_back(slice.operators[use.outside].name);
      pass.state = !body.states.empty();
      for (const auto* uses : {&body.reads, &body.writes})
        for (const ContentUse& use : *uses)
          if (const auto labels = slice.labels.find({out.form.chunks.size(), static_cast<Pass>(p)});
              slice.all_tokens.contains(use.content.storage) && labels != slice.labels.end() &&
              !has(labels->second.tensors[use.inside.index()], Mark::Sharded) &&
              std::ranges::find(form.all_tokens, values[use.content]) == form.all_tokens.end())
            form.all_tokens.push_back(values[use.content]);
    }
    if (const ChunkIr* forward = chunk.find(Pass::F); forward && !form.all_tokens.empty())
      form.causal = std::ranges::any_of(forward->calls, [&](const Call& call) {
        const Argument* causal = call.op.valid() ? find_argument(slice.operators, call, "is_causal") : nullptr;
        return causal && std::get<bool>(*causal);
      });
    form.routed_by = routed_by(slice, out.form.chunks.size(), values, form);
    out.form.chunks.push_back(std::move(form));
  }
  return out;
}

Result<ModelGraph> graph_of(const CaptureOptions& options, const std::vector<CapturedSlice>& slices,
                            const std::vector<SignedSlice>& formed, size_t exact) {
  return GraphWriter(options, slices, formed, exact).write();
}

}  // namespace piper
