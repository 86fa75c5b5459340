#include "ir/select.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/suggest.h"
#include "schedule/schedule_text.h"

namespace piper {
namespace {

const std::vector<std::string> pass_words = {"F", "B", "BI", "BW", "R"};
const std::vector<std::string> comm_words = {"gather", "reduce", "exchange", "sum",    "join",
                                             "part",   "shift",  "transfer", "scalars"};

Checked check_words(const TagCondition& condition, const std::vector<std::string>& known, std::string_view verb) {
  for (const std::string& word : condition.words)
    if (std::find(known.begin(), known.end(), word) == known.end())
      return error(ErrorCode::E105, condition.where, fmt::format("{}: {}={} does not exist", verb, condition.tag, word))
          .help(did_you_mean(word, known));
  return Ok{};
}

bool has_scopes(const ModelGraph& model) {
  return std::any_of(model.chunks.begin(), model.chunks.end(),
                     [](const Chunk& chunk) { return !chunk.scopes.empty(); });
}

}  // namespace

std::vector<Pass> passes_named(std::string_view word) {
  if (word == "F") return {Pass::F};
  if (word == "B") return {Pass::B, Pass::R, Pass::BI, Pass::BW};
  if (word == "BI") return {Pass::R, Pass::BI};
  if (word == "BW") return {Pass::BW};
  return {Pass::R};
}

Diagnostic nothing_selected(const Filter& filter, std::string_view verb, std::string_view what) {
  return error(ErrorCode::E203, filter.where, fmt::format("{}: {} selects no {}", verb, print(filter), what));
}

Selector::Selector(const TrainingDag& dag) : dag_(dag), index_(dag) {
  std::set<std::string> known = {"pass", "comm"};
  for (const Chunk& chunk : dag.model->chunks)
    for (const ScopeTag& tag : chunk.scopes) known.insert(tag.scope);
  for (const StageTags& stages : dag.stages) known.insert(stages.tag);
  for (const SliceDim& dim : dag.dims) known.insert(dim.name);
  known_tags_.assign(known.begin(), known.end());
}

bool Selector::is_dim(std::string_view tag) const {
  return std::any_of(dag_.dims.begin(), dag_.dims.end(), [&](const SliceDim& dim) { return dim.name == tag; });
}

Checked Selector::check_tags(const Filter& filter, std::string_view verb) const {
  for (const TagCondition& condition : filter.conditions) {
    if (std::find(known_tags_.begin(), known_tags_.end(), condition.tag) == known_tags_.end())
      return error(ErrorCode::E202, condition.where,
                   fmt::format("{}: no scope, stage or dim is called \"{}\"", verb, condition.tag))
          .help(did_you_mean(condition.tag, known_tags_))
          .help(has_scopes(*dag_.model)
                    ? ""
                    : "the model has no scopes: mark its layers with annotate(\"layer\"), in Python "
                      "also piper.annotate_modules(model, {\"layer\": \"layers.*\"})")
          .help(condition.tag == "mb" && dag_.dims.empty() ? "microbatches are made by split(batch, parts=4, as=mb)"
                                                           : "")
          .help(condition.tag == "stage" && dag_.stages.empty() ? "stages are made by place({}, along=pp, stages=4)"
                                                                : "");
    if (condition.tag == "pass") PIPER_CHECK(check_words(condition, pass_words, verb));
    if (condition.tag == "comm") PIPER_CHECK(check_words(condition, comm_words, verb));
    PIPER_CHECK(check_indices(condition, verb));
  }
  return Ok{};
}

Checked Selector::check_indices(const TagCondition& condition, std::string_view verb) const {
  if (!condition.words.empty() && is_dim(condition.tag))
    return error(ErrorCode::E203, condition.where,
                 fmt::format("{}: {}=none selects nothing: everything is part of some {}", verb, condition.tag,
                             condition.tag))
        .help(fmt::format("leave {} out: that selects all of them", condition.tag));
  if (condition.indices.empty()) return Ok{};
  auto found = highest_.find(condition.tag);
  if (found == highest_.end()) {
    int highest = -1;
    for (const SliceDim& dim : dag_.dims)
      if (dim.name == condition.tag) highest = dim.parts - 1;
    if (const std::set<int> known = indices(condition.tag); !known.empty()) highest = *known.rbegin();
    found = highest_.emplace(condition.tag, highest).first;
  }
  for (const IndexRange& range : condition.indices)
    if (range.high > found->second)
      return error(ErrorCode::E203, condition.where,
                   fmt::format("{}: {} does not exist: \"{}\" counts from 0 to {}", verb,
                               fmt::format("{}={}", condition.tag, range.high), condition.tag, found->second))
          .help(range.low >= found->second ? fmt::format("the last is {}={}", condition.tag, found->second)
                                           : fmt::format("write {}={}..{}", condition.tag, range.low, found->second));
  return Ok{};
}

bool Selector::chunk_matches(ChunkId id, const Filter& filter) const {
  const Chunk& chunk = (*dag_.model)[id];
  for (const TagCondition& condition : filter.conditions) {
    if (condition.tag == "pass" || condition.tag == "comm" || is_dim(condition.tag)) continue;
    std::optional<int> index = index_in(chunk.scopes, condition.tag);
    for (const StageTags& stages : dag_.stages)
      if (const int stage = stages.of_chunk[id.index()]; stages.tag == condition.tag && stage >= 0) index = stage;
    if (!condition.matches(index)) return false;
  }
  return true;
}

std::string Selector::chunk_key(const Filter& filter) const {
  std::string key;
  for (const TagCondition& condition : filter.conditions) {
    if (condition.tag == "pass" || condition.tag == "comm" || is_dim(condition.tag)) continue;
    key += condition.tag + (condition.any ? "*" : condition.words.empty() ? "=" : "!");
    for (const IndexRange& range : condition.indices) {
      key.append(reinterpret_cast<const char*>(&range), sizeof range);
    }
    key += ';';
  }
  return key;
}

Result<std::vector<ChunkId>> Selector::chunks(const Filter& filter, std::string_view verb) {
  PIPER_CHECK(check_tags(filter, verb));
  const std::string key = chunk_key(filter);
  auto found = cache_.find(key);
  if (found == cache_.end()) {
    std::vector<ChunkId> selected;
    for (size_t c = 0; c < dag_.model->chunks.size(); ++c)
      if (chunk_matches(ChunkId(c), filter)) selected.push_back(ChunkId(c));
    found = cache_.emplace(key, std::move(selected)).first;
  }
  if (!found->second.empty()) return found->second;
  Diagnostic problem = nothing_selected(filter, verb, "part of the model");
  for (const TagCondition& condition : filter.conditions) {
    const std::set<int> known = indices(condition.tag);
    if (known.empty() || !condition.words.empty() ||
        std::any_of(known.begin(), known.end(), [&](int i) { return condition.matches(i); }))
      continue;
    problem.helps.push_back(fmt::format("\"{}\" counts from {} to {}", condition.tag, *known.begin(), *known.rbegin()));
  }
  return problem;
}

std::set<int> Selector::indices(std::string_view tag) const {
  std::set<int> known;
  for (const Chunk& chunk : dag_.model->chunks)
    for (const ScopeTag& scope : chunk.scopes)
      if (scope.scope == tag) known.insert(scope.index);
  for (const StageTags& stages : dag_.stages)
    if (stages.tag == tag) known.insert(stages.of_chunk.begin(), stages.of_chunk.end());
  known.erase(-1);
  return known;
}

Result<std::vector<ChunkId>> Selector::whole_chunks(const Filter& filter, std::string_view verb) {
  PIPER_TRY(std::vector<ChunkId> selected, chunks(filter, verb));
  for (const TagCondition& condition : filter.conditions)
    if (condition.tag == "pass" || condition.tag == "comm" || is_dim(condition.tag))
      return error(ErrorCode::E105, condition.where,
                   fmt::format("{}: parameters belong to all slices and passes", verb))
          .help(fmt::format("take out {}=…", condition.tag));
  return selected;
}

Result<std::vector<int>> Selector::slices(const Filter& filter, std::string_view verb) {
  PIPER_CHECK(check_tags(filter, verb));  // so every index exists, and some slice is selected
  std::vector<int> strides(dag_.dims.size(), 1);
  for (size_t d = dag_.dims.size(); d-- > 1;) strides[d - 1] = strides[d] * dag_.dims[d].parts;
  std::vector<int> selected = {0};
  for (size_t d = 0; d < dag_.dims.size(); ++d) {
    const TagCondition* condition = filter.find(dag_.dims[d].name);
    std::vector<int> next;
    for (const int base : selected) {
      if (condition && !condition->any) {
        for (const IndexRange& range : condition->indices)
          for (int i = range.low; i <= range.high; ++i) next.push_back(base + i * strides[d]);
      } else {
        for (int i = 0; i < dag_.dims[d].parts; ++i) next.push_back(base + i * strides[d]);
      }
    }
    selected = std::move(next);
  }
  std::sort(selected.begin(), selected.end());
  selected.erase(std::unique(selected.begin(), selected.end()), selected.end());
  return selected;
}

Result<std::vector<NodeId>> Selector::nodes(const Filter& filter, std::string_view verb) {
  PIPER_TRY(const std::vector<ChunkId> chunks_selected, chunks(filter, verb));
  if (filter.find("comm")) return communication(filter, verb);
  PIPER_TRY(const std::vector<int> slices_selected, slices(filter, verb));
  std::vector<Pass> passes;
  const TagCondition* condition = filter.find("pass");
  if (!condition || condition->any) {
    passes.assign(all_passes.begin(), all_passes.end());
  } else {
    for (const std::string& word : condition->words)
      for (const Pass pass : passes_named(word))
        if (std::find(passes.begin(), passes.end(), pass) == passes.end()) passes.push_back(pass);
  }
  std::vector<NodeId> selected;
  selected.reserve(chunks_selected.size() * slices_selected.size() * passes.size());
  for (const int slice : slices_selected)
    for (const ChunkId chunk : chunks_selected)
      for (const Pass pass : passes)
        if (const NodeId id = index_.find(chunk, pass, slice); id.valid()) selected.push_back(id);
  if (selected.empty()) return nothing_selected(filter, verb, "computation");
  return selected;
}

Result<std::vector<NodeId>> Selector::communication(const Filter& filter, std::string_view verb) {
  PIPER_TRY(const std::vector<ChunkId> chunks_selected, chunks(filter, verb));
  PIPER_TRY(const std::vector<int> slices_selected, slices(filter, verb));
  const TagCondition* comm = filter.find("comm");
  const TagCondition* pass = filter.find("pass");
  const bool by_slice = std::any_of(filter.conditions.begin(), filter.conditions.end(),
                                    [&](const TagCondition& c) { return is_dim(c.tag); });
  const bool by_chunk = chunk_key(filter) != "";
  const auto has = [](const auto& sorted, const auto& item) {
    return std::binary_search(sorted.begin(), sorted.end(), item);
  };
  std::vector<NodeId> selected;
  for (size_t n = 0; n < dag_.nodes.size(); ++n) {
    const Node& node = dag_.nodes[n];
    const std::string_view tag = comm_tag(node);
    if (tag.empty() || (!comm->any && std::find(comm->words.begin(), comm->words.end(), tag) == comm->words.end()))
      continue;
    if (by_chunk && (!node.tags.chunk.valid() || !has(chunks_selected, node.tags.chunk))) continue;
    if (by_slice && !has(slices_selected, node.tags.slice)) continue;
    if (pass && !pass->any) {
      const auto matches = [&](const std::string& word) {
        const std::vector<Pass> passes = passes_named(word);
        return node.tags.pass && std::find(passes.begin(), passes.end(), *node.tags.pass) != passes.end();
      };
      if (std::none_of(pass->words.begin(), pass->words.end(), matches)) continue;
    }
    selected.push_back(NodeId(n));
  }
  if (!selected.empty()) return selected;
  std::set<std::string_view> known;
  for (const Node& node : dag_.nodes)
    if (const std::string_view tag = comm_tag(node); !tag.empty()) known.insert(tag);
  return nothing_selected(filter, verb, "communication")
      .help(known.empty() ? "this step has no communication"
                          : fmt::format("this step has comm={}", fmt::join(known, ", comm=")));
}

}  // namespace piper
