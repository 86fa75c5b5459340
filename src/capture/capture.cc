#include "capture/capture.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/fill.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/invariant.h"
#include "base/match_pattern.h"
#include "capture/chunk/count_work.h"
#include "capture/chunk/shape_signature.h"
#include "capture/float8/float8_products.h"
#include "capture/float8/linear_products.h"
#include "capture/gpu/accumulate_on_gpu.h"
#include "capture/gpu/side_stream.h"
#include "capture/kernels/call_kernels.h"
#include "capture/program/as_strided_views.h"
#include "capture/program/lay_out_results.h"
#include "capture/record/running_statistics.h"
#include "capture/sharding/context_regions.h"
#include "capture/sharding/localize.h"
#include "capture/sharding/operator_rules.h"
#include "capture/sharding/sample_labels.h"
#include "capture/sharding/tp_regions.h"
#include "model/verify_model.h"
#include "runtime/frame.h"

namespace piper {
namespace {

/// Gradients are accumulated in the type that the step says, densely.
void set_accumulators(ChunkIr& body, DType dtype) {
  for (const ExternalUse& use : body.gradients) {
    GraphTensor& tensor = body.tensors[use.inside.index()];
    tensor.layout.element = static_cast<int8_t>(scalar_type(dtype));
    tensor.layout.element_bytes = bytes_of(dtype);
    int64_t stride = 1;
    for (size_t d = tensor.layout.sizes.size(); d-- > 0;) {
      tensor.layout.strides[d] = stride;
      stride *= tensor.layout.sizes[d];
    }
    body.storages[tensor.storage.index()].bytes = stride * tensor.layout.element_bytes;
  }
}

AnnotatedPart annotated_part(const OperatorGraph& graph, ScopeId scope) {
  AnnotatedPart part;
  for (; scope.valid(); scope = graph[scope].parent) {
    part.scopes.insert(part.scopes.begin(), {graph[scope].name, graph[scope].index});
    part.experts = part.experts || graph[scope].attributes.experts > 0;
  }
  return part;
}

/// What lies between two borders of scopes.
std::vector<AnnotatedPart> annotated_parts(const OperatorGraph& graph) {
  std::vector<AnnotatedPart> out;
  for (const Segment& segment : graph.segments) out.push_back(annotated_part(graph, segment.scope));
  return out;
}

Result<CapturedSlice> capture_slice(const MetaModel& model, const CaptureOptions& options, int64_t samples) {
  std::vector<NamedTensor> inputs;
  run_around(model, [&] {
    for (const InputSpec& spec : options.inputs) {
      std::vector<int64_t> sizes = {samples};
      sizes.insert(sizes.end(), spec.sample_sizes.begin(), spec.sample_sizes.end());
      inputs.push_back({spec.name, at::empty(sizes, at::TensorOptions(model.device).dtype(scalar_type(spec.dtype)))});
    }
  });
  PIPER_TRY(const std::shared_ptr<const Recording> recording,
            model.recordings->find_or_record(model, inputs, options.target.type()));
  CapturedSlice slice;
  slice.samples = samples;
  slice.recording = recording;
  if (model.counts_batch) slice.counts = find_batch_counts(recording->graph, model.declares_count);
  slice.operators = dissolve_gradient_sums(divide_by_batch_counts(recording->graph, slice.counts.counts, samples));
  if (options.tensor_parallel) slice.tensor_parallel = options.tensor_parallel(annotated_parts(slice.operators));
  if (slice.tensor_parallel.context) {
    if (!slice.tensor_parallel.parameters.empty())
      return error(ErrorCode::E317, {}, "shard: captured models know context parallelism without tensor parallelism")
          .help("leave one of the two out");
    PIPER_TRY(ContextGraph divided, mark_context_regions(std::move(slice.operators), slice.tensor_parallel.token_order,
                                                         slice.tensor_parallel.heads_among));
    slice.operators = std::move(divided.graph);
    slice.known = std::move(divided.labels);
    slice.all_tokens = std::move(divided.all_tokens);
  }
  if (options.loss_blocks) slice.operators = loss_in_blocks(std::move(slice.operators), *options.loss_blocks);
  if (slice.tensor_parallel.context) label_new_tensors(slice.operators, slice.known);
  if (!slice.tensor_parallel.parameters.empty()) {
    PIPER_TRY(ShardedGraph sharded, mark_tp_regions(std::move(slice.operators), slice.tensor_parallel.parameters));
    slice.operators = std::move(sharded.graph);
    slice.known = std::move(sharded.labels);
  }
  slice.operators = materialize_region_borders(std::move(slice.operators));
  if (slice.tensor_parallel.sequence) slice.sequence = find_sequence(slice.operators);
  slice.table = std::shared_ptr<const OperatorTable>(recording, &recording->table);
  PIPER_TRY(slice.chunks, build_bodies(slice.operators, options.saved));
  slice.linear_matrices = linear_matrices(slice.operators);
  slice.float8 = options.float8;
  const bool has_regions = slice.tensor_parallel.sequence || slice.tensor_parallel.context ||
                           !find_regions(slice.operators, slice.chunks).empty();
  for (ChunkBodies& chunk : slice.chunks)
    for (std::optional<ChunkIr>& body : chunk.passes) {
      if (!body) continue;
      set_accumulators(*body, options.step.gradients);
      if (has_regions) PIPER_CHECK(infer_layouts(*body, slice.operators, *slice.table));  // of views of copies
    }
  return slice;
}

/// Parameters that some devices would hold only in part are used nowhere else.
Checked check_used_inside(const CapturedSlice& slice, const std::vector<Region>& regions, const RegionLabels& labels) {
  for (const auto& [site, body_labels] : labels)
    for (const ExternalUse& inside : slice.chunks[site.first].find(site.second)->parameters) {
      if (!has(body_labels.tensors[inside.inside.index()], Mark::Expert)) continue;
      for (size_t c = 0; c < slice.chunks.size(); ++c) {
        if (std::any_of(regions.begin(), regions.end(), [&](const Region& region) {
              return std::find(region.chunks.begin(), region.chunks.end(), c) != region.chunks.end();
            }))
          continue;
        for (const auto& body : slice.chunks[c].passes)
          if (body && std::any_of(body->parameters.begin(), body->parameters.end(),
                                  [&](const ExternalUse& use) { return use.outside == inside.outside; }))
            return error(ErrorCode::E308, {},
                         fmt::format("{}: parameter {} of the region is also used in {}", slice.chunks[site.first].name,
                                     slice.operators[inside.outside].name, slice.chunks[c].name))
                .help("there each device would have only some of its experts; use it inside the region only");
      }
    }
  return Ok{};
}

/// Adds the labels of a region to those of other regions around or inside of it.
Checked add_labels(CapturedSlice& slice, const RegionLabels& labels) {
  RegionLabels merged;
  for (const auto& [site, found] : labels) {
    const auto known = slice.labels.find(site);
    BodyLabels& body = merged[site] = known == slice.labels.end() ? found : known->second;
    for (size_t t = 0; known != slice.labels.end() && t < found.tensors.size(); ++t)
      if (TensorLabels& tensor = body.tensors[t]; !merge(tensor, found.tensors[t]))
        return error(ErrorCode::E308, {},
                     fmt::format("{}: {} is sharded along what would be divided by experts, {}",
                                 slice.chunks[site.first].name, print(tensor), print(found.tensors[t])))
            .help("shard another dimension of the experts, such as their inner width");
  }
  for (auto& [site, body] : merged) slice.labels[site] = std::move(body);
  return Ok{};
}

bool attends(const OperatorGraph& graph, const ChunkBodies& chunk) {
  const ChunkIr* forward = chunk.find(Pass::F);
  return forward && std::ranges::any_of(forward->calls, [&](const Call& call) {
           return rule_of(graph[call.op]).dims == DimRule::Attention;
         });
}

/// What attention divides by heads is divided by tokens everywhere else.
TensorLabels with_tokens(TensorLabels heads, const TensorLabels& tokens) {
  const bool agree = merge(heads, tokens);
  invariant(agree, "heads are no tokens");
  return heads;
}

/// Labels of all regions; those that cannot be sharded, and chunks that cannot have some tokens only, stay without.
Checked label_regions(CapturedSlice& slice, std::vector<Diagnostic>& unshardable) {
  std::vector<Region> regions = find_regions(slice.operators, slice.chunks);
  std::stable_partition(regions.begin(), regions.end(), [](const Region& region) { return region.tp; });
  for (size_t c = 0; c < slice.chunks.size(); ++c)
    if (slice.sequence.chunks.contains(slice.chunks[c].name))
      regions.push_back({slice.chunks[c].scope, 0, true, true, {c}});
  if (slice.tensor_parallel.context)
    for (size_t c = 0; c < slice.chunks.size(); ++c) {
      const bool core = attends(slice.operators, slice.chunks[c]);
      Region& region = regions.emplace_back(Region{slice.chunks[c].scope, 0, true, true, {c}, true});
      if (core) region.all_tokens = slice.all_tokens;
      region.heads = core && slice.tensor_parallel.heads_among > 0;
    }
  const Readers readers = regions.empty() ? Readers() : find_readers(slice.chunks);
  for (const Region& region : regions) {
    auto labels = label_region(slice.operators, slice.chunks, readers, region,
                               region.sequence_sharded && !region.context ? slice.sequence.tensors : slice.known);
    if (!labels && region.sequence_sharded && !region.context) continue;
    if (!labels && region.tp) return std::move(labels.error());  // somebody asked for it
    if (!labels) {
      unshardable.push_back(std::move(labels.error()));
      continue;
    }
    auto fine = check_used_inside(slice, regions, *labels);
    if (fine) fine = add_labels(slice, *labels);
    if (!fine) unshardable.push_back(std::move(fine.error()));
    if (region.sequence_sharded && !region.context)
      slice.sequence_sharded.insert(region.chunks.begin(), region.chunks.end());
  }
  for (const auto& [site, labels] : slice.labels) {
    ChunkIr& body = *slice.chunks[site.first].passes[static_cast<size_t>(site.second)];
    draw_random_by_parts(body, labels, slice.tensor_parallel.token_order);
    for (const auto* uses : {&body.reads, &body.writes})
      for (const ContentUse& use : *uses)
        if (const TensorLabels& of_use = labels.tensors[use.inside.index()]; is_labelled(of_use)) {
          const TensorId base = slice.operators[use.content.storage].base;
          if (labels.heads && base.index() < slice.known.size())
            slice.divided[base] = with_tokens(of_use, slice.known[base.index()]);
          else
            slice.divided.emplace(base, of_use);
        }
  }
  return Ok{};
}

/// For people.
std::string kernel_name(const std::string& chunk, Pass pass) {
  return fmt::format("{} {}", chunk, name(pass));
}

/// With the numbers that its products are to have.
Result<ChunkIr> in_precision(ChunkIr body, c10::Device device, const std::string& chunk, Pass pass,
                             const CapturedSlice& slice) {
  if (!slice.float8.contains(chunk)) return body;
  return multiply_in_float8(std::move(body), slice.operators, slice.linear_matrices, chunk, pass, device);
}

/// Before kernels are compiled: products as they will be, and sums of gradients where a GPU computes them.
Result<ChunkIr> computed_on(ChunkIr body, c10::Device device, const std::string& chunk, Pass pass,
                            const CapturedSlice& slice) {
  PIPER_TRY(body, in_precision(std::move(body), device, chunk, pass, slice));
  if (!device.is_cuda()) return body;
  body = accumulate_where_computed(std::move(body), slice.operators);
  body = add_in_products(std::move(body), slice.operators);
  return accumulate_together(std::move(body), slice.operators);
}

/// The body as it will run there. No kernels: as recorded operators.
Result<ChunkIr> for_device(ChunkIr body, c10::Device device, const std::string& chunk, Pass pass,
                           const CapturedSlice& slice, TriedCalls& tried, KernelStore* kernels) {
  PIPER_TRY(body, computed_on(std::move(body), device, chunk, pass, slice));
  PIPER_CHECK(check_multiplies_float8(body, slice.operators, *slice.table, chunk, tried));
  if (kernels)
    body = call_kernels(std::move(body), slice.operators, *slice.table, kernel_name(chunk, pass), *kernels, tried);
  if (device.is_cuda())  // when all sums are where they will be
    body = mark_side_stream(compute_apart(std::move(body), slice.operators));
  return lay_out_results(std::move(body), chunk, slice.operators, *slice.table, tried);
}

/// What measures bodies: operators, and kernels of those that will run.
struct Measuring {
  TriedCalls* tried = nullptr;  // none: temporaries are those between operators
  KernelStore* kernels = nullptr;
  std::set<PassSite> runs;
};

Result<int64_t> temporaries(ChunkIr body, const PassSite& site, const CapturedSlice& slice, const Measuring& by) {
  if (!by.tried) {
    PIPER_TRY(body, in_precision(std::move(body), c10::kCPU, site.chunk, site.pass, slice));
    return temporary_bytes(as_strided_views(std::move(body)));
  }
  KernelStore* const kernels = by.runs.contains(site) ? by.kernels : nullptr;
  PIPER_TRY(body, for_device(std::move(body), by.tried->device(), site.chunk, site.pass, slice, *by.tried, kernels));
  body = as_strided_views(std::move(body));
  return temporary_bytes(body, by.tried->peaks(body, *slice.table));
}

/// Of a pass in a region, for the ways to divide it.
Result<std::map<ShardCounts, int64_t>> divided_temporaries(const CapturedSlice& slice, size_t chunk, Pass pass,
                                                           const std::vector<ShardCounts>& ways, const Measuring& by) {
  std::map<ShardCounts, int64_t> out;
  const BodyLabels* labels = slice.labels_of(chunk, pass);
  if (!labels) return out;
  const bool experts = std::any_of(labels->tensors.begin(), labels->tensors.end(),
                                   [](const TensorLabels& tensor) { return has(tensor, Mark::Expert); });
  for (const ShardCounts& shards : ways) {
    if ((shards[ShardKind::Expert] > 1 && !experts) ||
        (shards[ShardKind::Tp] > 1 && (!labels->tp || labels->tokens || labels->heads)) ||
        (shards[ShardKind::Sequence] > 1 && (!labels->tokens || labels->context)) ||
        (shards[ShardKind::Context] > 1 && !labels->context) || (shards[ShardKind::Heads] > 1 && !labels->heads))
      continue;
    if (auto body = localize(*slice.chunks[chunk].find(pass), slice.operators, *slice.table, *labels, shards)) {
      const PassSite site{slice.chunks[chunk].name, pass, slice.samples, shards};
      PIPER_TRY(out[shards], temporaries(*std::move(body), site, slice, by));
    }
  }
  return out;
}

Result<std::vector<std::array<PassAmounts, 4>>> amounts_of(const CapturedSlice& slice,
                                                           const std::vector<ShardCounts>& ways, const Measuring& by) {
  std::vector<std::array<PassAmounts, 4>> amounts(slice.chunks.size());
  for (size_t c = 0; c < slice.chunks.size(); ++c)
    for (size_t p = 0; p < 4; ++p) {
      if (!slice.chunks[c].passes[p]) continue;
      const ChunkIr& body = *slice.chunks[c].passes[p];
      PassAmounts& of_pass = amounts[c][p];
      CountedWork counted =
          count_work(slice.operators, body, linear_products(slice.operators, body, slice.linear_matrices));
      of_pass.flops = counted.flops();
      of_pass.moved = counted.moved;
      of_pass.streamed = counted.streamed;
      of_pass.kernels = counted.kernels;
      of_pass.products = std::move(counted.products);
      const PassSite site{slice.chunks[c].name, static_cast<Pass>(p), slice.samples, {}};
      PIPER_TRY(of_pass.temporaries, temporaries(body, site, slice, by));
      PIPER_TRY(of_pass.divided, divided_temporaries(slice, c, static_cast<Pass>(p), ways, by));
    }
  return amounts;
}

/// F without its writes to model buffers.
Result<ChunkIr> recomputed(ChunkIr body, const std::string& name, const OperatorGraph& graph) {
  const auto is_state = [&](StorageId storage) {
    return body[body.storages[storage.index()].base].kind == TensorKind::Buffer;
  };
  const auto left_out = [&](const Call& call) { return std::any_of(call.writes.begin(), call.writes.end(), is_state); };
  if (body.states.empty()) return body;
  for (Call& call : body.calls) forget_statistics(graph, call);
  // what is left out must be all that it is about: nobody uses the state, nor anything else that came with the write
  std::set<StorageId> gone;
  for (const ExternalUse& state : body.states) gone.insert(body[state.inside].storage);
  for (const Call& call : body.calls)
    if (left_out(call)) each_tensor(call.results, [&](TensorId result) { gone.insert(body[result].storage); });
  bool used = false;
  const auto use = [&](TensorId id) { used |= gone.contains(body[id].storage); };
  for (const Call& call : body.calls)
    if (!left_out(call)) each_tensor(call.arguments, use);
  for (const ContentUse& output : body.writes) use(output.inside);
  if (used)
    return error(ErrorCode::E606, {},
                 fmt::format("{} cannot be computed again: it uses buffer {}, which it also writes", name,
                             graph[body.states[0].outside].name))
        .help("leave it out of recompute, or write the buffer in a scope of its own");
  std::erase_if(body.calls, left_out);
  return body;
}

}  // namespace

const BodyLabels* CapturedSlice::labels_of(size_t chunk, Pass pass) const {
  const auto found = labels.find({chunk, pass});
  return found == labels.end() ? nullptr : &found->second;
}

Result<const CapturedSlice*> CapturedModel::slice(int64_t samples) const {
  for (const CapturedSlice& slice : slices_)
    if (slice.samples == samples) return &slice;
  std::vector<int64_t> known;
  for (const CapturedSlice& slice : slices_) known.push_back(slice.samples);
  return error(
             ErrorCode::E607, {},
             fmt::format("the model is captured for slices of {} samples, not of {}", fmt::join(known, ", "), samples))
      .help("capture it for the sizes of slices that the schedule makes: batch / microbatches / replicas");
}

Result<ChunkIr> CapturedModel::body(const CapturedSlice& of, ChunkId chunk, Pass pass,
                                    const ShardCounts& shards) const {
  const Pass recorded = pass == Pass::R ? Pass::F : pass;
  const ChunkIr* found = of.chunks[chunk.index()].find(recorded);
  invariant(found, "a program is asked for a pass that the chunk has");
  ChunkIr out = *found;
  if (shards != ShardCounts()) {
    const BodyLabels* labels = of.labels_of(chunk.index(), recorded);
    if (!labels)
      return error(ErrorCode::E308, {}, fmt::format("chunk {} has no experts to divide", of.chunks[chunk.index()].name))
          .help("mark the region of the experts with annotate(\"experts\", {.experts = n})");
    PIPER_TRY(out, localize(out, of.operators, *of.table, *labels, shards));
  }
  if (pass == Pass::R) {
    PIPER_TRY(out, recomputed(std::move(out), of.chunks[chunk.index()].name, of.operators));
  }
  return out;
}

Result<std::shared_ptr<const ChunkProgram>> CapturedModel::program(ChunkId chunk, Pass pass, int64_t samples,
                                                                   const ShardCounts& shards,
                                                                   c10::Device device) const {
  PIPER_TRY(const CapturedSlice* of, slice(samples));
  PIPER_TRY(ChunkIr made, body(*of, chunk, pass, shards));
  PIPER_TRY(made,
            for_device(std::move(made), device, of->chunks[chunk.index()].name, pass, *of, *tried_, kernels_.get()));
  return std::make_shared<const ChunkProgram>(std::move(made), of->table, device);
}

Checked CapturedModel::check_program(ChunkId chunk, Pass pass, int64_t samples, const ShardCounts& shards) const {
  PIPER_TRY(const CapturedSlice* of, slice(samples));
  PIPER_TRY(ChunkIr made, body(*of, chunk, pass, shards));
  PIPER_CHECK(in_precision(std::move(made), tried_->device(), of->chunks[chunk.index()].name, pass, *of));
  return Ok{};
}

std::vector<std::string> CapturedModel::states(ChunkId chunk, Pass pass) const {
  std::vector<std::string> names;
  const ChunkIr* body = slices_[0].chunks[chunk.index()].find(pass == Pass::R ? Pass::F : pass);
  for (const ExternalUse& use : body->states) names.push_back(slices_[0].operators[use.outside].name);
  return names;
}

Result<TensorForm> CapturedModel::form(ValueId value, int64_t samples, const ShardCounts& shards) const {
  PIPER_TRY(const CapturedSlice* of, slice(samples));
  const TensorLayout& layout = of->operators[of->base[value.index()]].layout;
  TensorForm out{static_cast<c10::ScalarType>(layout.element), layout.sizes, layout.strides};
  if (shards == ShardCounts()) return out;
  if (const auto labels = of->divided.find(of->base[value.index()]); labels != of->divided.end()) {
    out.sizes = local_sizes(labels->second, shards);
    out.strides = strides_like(out.sizes, layout.strides);
    return out;
  }
  return error(ErrorCode::E308, {}, fmt::format("value {} belongs to no region of experts", (*graph_)[value].name))
      .help("only values of regions marked with annotate(\"experts\", {.experts = n}) are divided");
}

FillInput CapturedModel::with_batch_counts(FillInput fill, int64_t batches) const {
  const CapturedSlice& largest = slices_.back();
  if (largest.counts.counts.empty()) return fill;
  const int64_t batch = batches * graph_->step.batch;
  std::vector<double> of_batch = count_batch(*largest.recording, largest.counts.counts, largest.samples, batch, fill);
  return with_counts(std::move(fill), std::move(of_batch), batch);
}

FillInput CapturedModel::with_counts(FillInput fill, std::vector<double> counted, int64_t samples) const {
  return [fill = std::move(fill), counted = std::move(counted), &counts = slices_.back().counts.counts, samples](
             std::string_view input, int64_t first_sample, at::Tensor& into) {
    for (size_t c = 0; c < counts.size(); ++c)
      if (counts[c].input == input) {
        into.fill_(count_of_slice(counts[c], counted[c], into.size(0), samples));
        return;
      }
    fill(input, first_sample, into);
  };
}

void CapturedModel::build_kernels(const CapturedSlice& of, const std::set<PassSite>& runs) const {
  std::vector<KernelText> texts;
  for (const PassSite& site : runs)
    for (size_t c = 0; c < of.chunks.size(); ++c) {
      if (site.samples != of.samples || site.chunk != of.chunks[c].name) continue;
      auto made = body(of, ChunkId(c), site.pass, site.shards);
      if (!made) continue;  // is refused when it is needed
      const auto computed = computed_on(*std::move(made), tried_->device(), site.chunk, site.pass, of);
      if (!computed) continue;
      for (KernelText& text :
           kernel_texts(*computed, *of.table, tried_->device(), kernel_name(site.chunk, site.pass), *kernels_))
        texts.push_back(std::move(text));
    }
  kernels_->build(texts);
}

Result<CapturedModel> capture(const MetaModel& model, const CaptureOptions& options) {
  std::vector<int64_t> sizes = options.samples;
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  invariant(!sizes.empty() && sizes[0] >= 1, "slices have at least one sample");
  const size_t exact = sizes.size();
  if (exact == 1) sizes.push_back(2 * sizes[0]);  // to see what grows

  CapturedModel out;
  out.tried_ = std::make_shared<TriedCalls>(options.target);
  out.kernels_ = options.kernels;
  const std::set<PassSite> runs(options.runs.begin(), options.runs.end());
  std::vector<CapturedSlice> recorded, slices;
  for (const int64_t samples : sizes) {
    PIPER_TRY(CapturedSlice slice, capture_slice(model, options, samples));
    recorded.push_back(std::move(slice));
  }
  PIPER_CHECK(place_samples(recorded));
  std::vector<SignedSlice> formed;
  for (size_t s = 0; s < sizes.size(); ++s) {
    CapturedSlice& slice = recorded[s];
    std::vector<Diagnostic> unshardable;
    PIPER_CHECK(label_regions(slice, unshardable));
    const bool alike = s == 0 || unshardable.size() == out.unshardable_.size();
    if (s == 0) out.unshardable_ = std::move(unshardable);
    const bool measured = options.measure_operators && s < exact;
    if (measured) PIPER_CHECK(check_results_without_elements(slice.operators, *slice.table, *out.tried_));
    if (measured && out.kernels_) out.build_kernels(slice, runs);
    const Measuring by = measured ? Measuring{out.tried_.get(), out.kernels_.get(), runs} : Measuring{};
    PIPER_TRY(const auto amounts, amounts_of(slice, options.shards, by));
    formed.push_back(form_of(slice, amounts));
    slice.base = formed.back().base;
    slices.push_back(std::move(slice));
    if (alike && formed[s].form == formed[0].form) continue;
    if (s < exact)
      return error(ErrorCode::E607, {},
                   fmt::format("with {} samples the model has other chunks or values than with {}", sizes[s], sizes[0]))
          .help("capture one size of slices only; a branch on the size, or a dimension of size 1, is often the reason");
    slices.pop_back();  // nothing is known to grow: the graph is right for the one size it is for
    formed.pop_back();
  }
  PIPER_TRY(ModelGraph graph, graph_of(options, slices, formed, exact));
  for (size_t c = 0; c < graph.chunks.size(); ++c) {
    graph.chunks[c].experts = annotated_part(slices[0].operators, slices[0].chunks[c].scope).experts;
    graph.chunks[c].float8 = options.float8.contains(graph.chunks[c].name);
  }
  for (Parameter& parameter : graph.parameters)
    for (const ShardSeed& seed : slices[0].tensor_parallel.parameters)
      if (matches_pattern(parameter.name, seed.pattern)) parameter.sharded = seed.dim;
  PIPER_CHECK(verify(graph));
  slices.resize(exact);
  out.graph_ = std::make_shared<const ModelGraph>(std::move(graph));
  out.slices_ = std::move(slices);
  return out;
}

}  // namespace piper
