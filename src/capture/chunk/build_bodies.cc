#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <unordered_map>

#include "base/invariant.h"
#include "capture/chunk/chunk_ir.h"

namespace piper {
namespace {

/// Facts about the whole graph that every body needs.
struct GraphFacts {
  explicit GraphFacts(const OperatorGraph& of, const std::vector<ChunkCalls>& chunks)
      : graph(of), clone(operator_named(of, "aten::clone")), add_in_place(operator_named(of, "aten::add_.Tensor")) {
    writers.resize(graph.storages.size());
    written.resize(graph.storages.size(), 0);
    const int count = static_cast<int>(chunks.size());
    for (int c = 0; c < count; ++c) {
      note_writers(chunks[static_cast<size_t>(c)].forward, c);
      note_writers(chunks[static_cast<size_t>(c)].backward, 2 * count - 1 - c);
    }
    for (std::vector<int>& groups : writers) std::sort(groups.begin(), groups.end());
    sinkable.resize(graph.calls.size(), -1);
    again.resize(graph.calls.size(), -1);
  }

  /// Who wrote last, before this group, what the storage holds.
  Content content_before(StorageId storage, int group) const {
    Content found{storage, -1};
    for (const int writer : writers[storage.index()])
      if (writer < group) found.group = writer;
    return found;
  }

  /// Whether the call needs no input at all, so that it can be made wherever it is used.
  bool needs_no_input(CallId id) {
    int8_t& known = sinkable[id.index()];
    if (known >= 0) return known;
    const Call& call = graph[id];
    bool fine = call.writes.empty() && call.random < 0;
    each_tensor(call.results, [&](TensorId result) { fine &= !written[graph[result].storage.index()]; });
    each_tensor(call.arguments, [&](TensorId argument) {
      const GraphTensor& tensor = graph[argument];
      fine = fine && (tensor.kind == TensorKind::Constant ||
                      (tensor.kind == TensorKind::Result && needs_no_input(tensor.producer)));
    });
    sinkable[id.index()] = fine;
    return fine;
  }

  const OperatorGraph& graph;
  OperatorId clone, add_in_place;
  std::vector<std::vector<int>> writers;  // by storage: groups that make or change it
  std::vector<char> written;              // by storage: some call changes it in place
  std::vector<int8_t> sinkable;           // by call: -1 unknown
  std::vector<int> again;                 // by call: the chunk whose backward makes it again, or -1

 private:
  void note_writers(const std::vector<CallId>& calls, int group) {
    const auto note = [&](StorageId storage) {
      std::vector<int>& groups = writers[storage.index()];
      if (groups.empty() || groups.back() != group) groups.push_back(group);
    };
    for (const CallId id : calls) {
      const Call& call = graph[id];
      for (const StorageId storage : call.writes) {
        note(storage);
        written[storage.index()] = 1;
      }
      each_tensor(call.results, [&](TensorId result) {
        if (graph[result].producer == id && graph[graph[result].storage].base == result) note(graph[result].storage);
      });
    }
  }
};

/// Writes one body: `calls` in order, as far as `wanted` needs them.
class BodyBuilder {
 public:
  /// `chunk`: whose backward it is; none: a forward.
  BodyBuilder(GraphFacts& facts, int group, std::optional<int> chunk = {})
      : facts_(facts), graph_(facts.graph), group_(group), chunk_(chunk) {}

  ChunkIr build(const std::vector<CallId>& calls, const std::set<Content>& outputs,
                const std::vector<Contribution>& contributions) {
    Wanted wanted;
    for (const Content& content : outputs) wanted.storages.insert(content.storage);
    for (const Contribution& contribution : contributions) wanted.tensors.insert(contribution.value);
    const std::vector<char> needed = needed_calls(graph_, calls, wanted);
    std::unordered_map<StorageId, size_t> last_write;
    for (size_t i = 0; i < calls.size(); ++i) {
      if (!needed[i]) continue;
      changed_.insert(graph_[calls[i]].writes.begin(), graph_[calls[i]].writes.end());
      for (const StorageId storage : graph_[calls[i]].writes) last_write[storage] = i;
    }
    for (size_t i = 0; i < calls.size(); ++i) {
      if (!needed[i]) continue;
      emit(graph_[calls[i]]);
      each_tensor(graph_[calls[i]].results, [&](TensorId result) {  // not before it holds what it will
        const auto last = last_write.find(graph_[result].storage);
        if (last == last_write.end() || last->second <= i) add_up(contributions, result);
      });
    }
    for (const Contribution& contribution : contributions) add_up(contributions, contribution.value);
    for (const Content& content : outputs) body_.writes.push_back({content, output(content)});
    return std::move(body_);
  }

 private:
  TensorId add_tensor(const GraphTensor& like, TensorKind kind, StorageId storage) {
    body_.tensors.push_back({kind, storage, like.layout, CallId(), like.name, like.constant});
    const TensorId id(body_.tensors.size() - 1);
    if (!body_.storages[storage.index()].base.valid()) body_.storages[storage.index()].base = id;
    return id;
  }
  StorageId add_storage(int64_t bytes) {
    body_.storages.push_back({bytes, TensorId()});
    return StorageId(body_.storages.size() - 1);
  }
  /// Something that is there before the body runs.
  TensorId add_external(TensorId outside, TensorKind kind) {
    const GraphTensor& tensor = graph_[outside];
    const TensorId inside = add_tensor(tensor, kind, add_storage(graph_[tensor.storage].bytes));
    map_[outside] = inside;
    return inside;
  }
  TensorId add_copy(TensorId of, int64_t bytes) {
    Call copy;
    copy.op = facts_.clone;
    const TensorId result = add_tensor(GraphTensor(body_[of]), TensorKind::Result, add_storage(bytes));
    copy.arguments = {of, None{}};
    copy.results = {result};
    push(std::move(copy));
    return result;
  }
  void push(Call call) {
    const CallId id(body_.calls.size());
    each_tensor(call.results, [&](TensorId result) {
      if (!body_[result].producer.valid() && body_[result].kind == TensorKind::Result)
        body_.tensors[result.index()].producer = id;
    });
    body_.calls.push_back(std::move(call));
  }

  /// The call with this body's names; what it needs from outside is brought in first.
  void emit(const Call& outside) {
    Call call = outside;
    map_tensors(call.arguments, [&](TensorId id) { return inside(id); });
    map_tensors(call.results, [&](TensorId id) { return result(id, outside); });
    call.writes.clear();
    for (const StorageId storage : outside.writes) call.writes.push_back(storages_.at(storage));
    push(std::move(call));
  }

  TensorId result(TensorId outside, const Call& call) {
    if (const auto found = map_.find(outside); found != map_.end() && !call.writes.empty()) return found->second;
    const GraphTensor& tensor = graph_[outside];
    const auto [found, fresh] = storages_.try_emplace(tensor.storage);
    if (fresh) found->second = add_storage(graph_[tensor.storage].bytes);
    return map_[outside] = add_tensor(tensor, TensorKind::Result, found->second);
  }

  TensorId inside(TensorId outside) {
    if (const auto found = map_.find(outside); found != map_.end()) return found->second;
    const GraphTensor& tensor = graph_[outside];
    if (tensor.producer.valid() &&
        (is_view(graph_, graph_[tensor.producer]) || facts_.needs_no_input(tensor.producer) ||
         (chunk_ && facts_.again[tensor.producer.index()] == *chunk_))) {
      emit(graph_[tensor.producer]);
      return map_.at(outside);
    }
    return bring_in(outside);
  }

  TensorId bring_in(TensorId outside) {
    const GraphTensor& tensor = graph_[outside];
    const StorageId storage = tensor.storage;
    invariant(graph_[storage].base == outside, "what crosses the border of a chunk is all of a storage");
    TensorId id;
    const auto external = [&](std::vector<ExternalUse>& list, TensorKind kind) {
      id = add_external(outside, kind);
      list.push_back({outside, id});
    };
    const Content content = facts_.content_before(storage, group_);
    const bool from_calls = content.group >= 0;
    if (tensor.kind == TensorKind::Parameter && !from_calls) {
      external(body_.parameters, TensorKind::Parameter);
    } else if (tensor.kind == TensorKind::Constant && !from_calls) {
      external(body_.constants, TensorKind::Constant);
    } else if (tensor.kind == TensorKind::Buffer && !from_calls && changed_.contains(storage)) {
      external(body_.states, TensorKind::Buffer);
      storages_[storage] = body_[id].storage;
      return id;
    } else if (tensor.kind == TensorKind::Buffer && !from_calls) {
      external(body_.parameters, TensorKind::Buffer);
    } else {
      id = add_external(outside, TensorKind::Input);
      body_.reads.push_back({content, id});
    }
    if (changed_.contains(storage)) id = map_[outside] = add_copy(id, graph_[storage].bytes);
    storages_[storage] = body_[id].storage;
    return id;
  }

  /// All contributions that are this tensor, each once.
  void add_up(const std::vector<Contribution>& contributions, TensorId value) {
    added_.resize(contributions.size(), 0);
    for (size_t i = 0; i < contributions.size(); ++i) {
      if (contributions[i].value != value || added_[i]) continue;
      added_[i] = 1;
      add_to_gradient(contributions[i].parameter, inside(value));
    }
  }
  void add_to_gradient(TensorId parameter, TensorId value) {
    TensorId accumulator;
    for (const ExternalUse& use : body_.gradients)
      if (use.outside == parameter) accumulator = use.inside;
    if (!accumulator.valid()) {
      const GraphTensor& like = graph_[parameter];
      accumulator = add_tensor(like, TensorKind::Buffer, add_storage(graph_[like.storage].bytes));
      body_.gradients.push_back({parameter, accumulator});
    }
    Call sum;
    sum.op = facts_.add_in_place;
    sum.arguments = {accumulator, value, int64_t{1}};
    sum.results = {accumulator};
    sum.writes = {body_[accumulator].storage};
    push(std::move(sum));
  }

  TensorId output(const Content& content) {
    const TensorId base = inside(graph_[content.storage].base);
    // later passes see a model buffer as this one left it, whatever happens to it afterwards
    return body_[base].kind == TensorKind::Result ? base : add_copy(base, graph_[content.storage].bytes);
  }

  GraphFacts& facts_;
  const OperatorGraph& graph_;
  int group_;
  std::optional<int> chunk_;
  ChunkIr body_;
  std::unordered_map<TensorId, TensorId> map_;
  std::unordered_map<StorageId, StorageId> storages_;
  std::unordered_set<StorageId> changed_;
  std::vector<char> added_;  // by contribution
};

/// A model buffer is written by one pass at most, and not needed before that pass runs.
Checked check_states(const OperatorGraph& graph, const GraphFacts& facts, const std::vector<ChunkCalls>& chunks) {
  const int count = static_cast<int>(chunks.size());
  const auto describe = [&](int group) {
    return group < count ? chunks[static_cast<size_t>(group)].name + ", forward"
                         : chunks[static_cast<size_t>(2 * count - 1 - group)].name + ", backward";
  };
  for (size_t s = 0; s < graph.storages.size(); ++s) {
    const GraphTensor& base = graph[graph.storages[s].base];
    const std::vector<int>& writers = facts.writers[s];
    if (base.kind == TensorKind::Parameter && !writers.empty())
      return error(ErrorCode::E606, {},
                   fmt::format("{}: parameter {} is written by the model", describe(writers[0]), base.name))
          .help("only the optimizer changes parameters; compute on a copy, or make it a buffer");
    if (base.kind == TensorKind::Buffer && writers.size() > 1)
      return error(ErrorCode::E606, {},
                   fmt::format("buffer {} is written in {} and in {}", base.name, describe(writers[0]),
                               describe(writers[1])))
          .help("a buffer lives with one chunk; write it in one scope only, or use one buffer for each");
  }
  for (int group = 0; group < 2 * count; ++group) {
    const ChunkCalls& chunk = chunks[static_cast<size_t>(group < count ? group : 2 * count - 1 - group)];
    for (const CallId id : group < count ? chunk.forward : chunk.backward) {
      Checked fine = Ok{};
      each_tensor(graph[id].arguments, [&](TensorId argument) {
        const StorageId storage = graph[argument].storage;
        const GraphTensor& base = graph[graph[storage].base];
        const std::vector<int>& writers = facts.writers[storage.index()];
        if (base.kind == TensorKind::Buffer && !writers.empty() && group < writers[0] && fine)
          fine = error(ErrorCode::E606, {},
                       fmt::format("buffer {} is used in {} and written later, in {}", base.name, describe(group),
                                   describe(writers[0])))
                     .help("the next slice may start before the write; use and write it in one scope");
      });
      PIPER_CHECK(std::move(fine));
    }
  }
  return Ok{};
}

/// Builds all bodies, last first: what a body must give is known when everybody after it has been built.
class BodiesBuilder {
 public:
  BodiesBuilder(OperatorGraph& graph, const std::vector<ChunkCalls>& chunks, Saved saved)
      : graph_(graph), chunks_(chunks), facts_(graph, chunks) {
    if (saved == Saved::Fewest) facts_.again = calls_made_again(graph, chunks);
  }

  Result<std::vector<ChunkBodies>> build() {
    PIPER_CHECK(check_states(graph_, facts_, chunks_));
    const int count = static_cast<int>(chunks_.size());
    std::vector<ChunkBodies> out(chunks_.size());
    want({graph_[graph_.loss].storage, facts_.content_before(graph_[graph_.loss].storage, 2 * count).group});
    for (int c = 0; c < count; ++c) build_backward(c, out[static_cast<size_t>(c)]);
    for (int c = count; c-- > 0;) {
      ChunkBodies& bodies = out[static_cast<size_t>(c)];
      bodies.name = chunks_[static_cast<size_t>(c)].name;
      bodies.scope = chunks_[static_cast<size_t>(c)].scope;
      bodies.passes[0] = BodyBuilder(facts_, c).build(chunks_[static_cast<size_t>(c)].forward, wanted_[c], {});
      want_reads(*bodies.passes[0]);
    }
    std::erase_if(out, [](const ChunkBodies& bodies) {
      return std::all_of(bodies.passes.begin(), bodies.passes.end(),
                         [](const auto& body) { return !body || body->empty(); });
    });
    return out;
  }

 private:
  void want(const Content& content) {
    if (content.group >= 0) wanted_[content.group].insert(content);
  }
  void want_reads(const ChunkIr& body) {
    for (const ContentUse& use : body.reads) want(use.content);
  }

  void build_backward(int c, ChunkBodies& bodies) {
    const ChunkCalls& chunk = chunks_[static_cast<size_t>(c)];
    const int group = 2 * static_cast<int>(chunks_.size()) - 1 - c;
    const std::set<Content> outputs = wanted_[group];
    ChunkIr whole = BodyBuilder(facts_, group, c).build(chunk.backward, outputs, chunk.contributions);
    if (whole.empty()) return;
    build_halves(chunk, c, group, outputs, bodies);
    want_reads(whole);
    bodies.passes[static_cast<size_t>(Pass::B)] = std::move(whole);
  }

  void build_halves(const ChunkCalls& chunk, int c, int group, const std::set<Content>& outputs, ChunkBodies& bodies) {
    const std::vector<CallId> calls = split_masks(graph_, chunk.backward);
    facts_.sinkable.resize(graph_.calls.size(), -1);
    facts_.again.resize(graph_.calls.size(), -1);
    Wanted by_others;
    for (const Content& content : outputs) by_others.storages.insert(content.storage);
    const std::vector<char> half = input_half(graph_, calls, by_others);
    std::vector<CallId> input, weight;
    for (size_t i = 0; i < calls.size(); ++i) (half[i] ? input : weight).push_back(calls[i]);
    std::unordered_set<TensorId> made_by_input;
    for (const CallId id : input)
      each_tensor(graph_[id].results, [&](TensorId result) { made_by_input.insert(result); });
    std::vector<Contribution> early, late;
    for (const Contribution& contribution : chunk.contributions)
      (made_by_input.contains(contribution.value) ? early : late).push_back(contribution);

    // what BI leaves for BW has the group of the whole backward: nobody else writes it
    const auto own_to_weight = [&](const ChunkIr& body) {
      std::set<Content> handed = outputs;
      for (const ContentUse& use : body.reads)
        if (use.content.group == group) handed.insert(use.content);
      return handed;
    };
    ChunkIr last = BodyBuilder(facts_, group + 1, c).build(weight, {}, late);
    ChunkIr first = BodyBuilder(facts_, group, c).build(input, own_to_weight(last), early);
    if (!last.empty()) {
      want_from_before(last, group);
      bodies.passes[static_cast<size_t>(Pass::BW)] = std::move(last);
    }
    if (!first.empty()) {
      want_reads(first);
      bodies.passes[static_cast<size_t>(Pass::BI)] = std::move(first);
    }
  }
  void want_from_before(const ChunkIr& body, int group) {
    for (const ContentUse& use : body.reads)
      if (use.content.group != group) want(use.content);
  }

  OperatorGraph& graph_;
  const std::vector<ChunkCalls>& chunks_;
  GraphFacts facts_;
  std::map<int, std::set<Content>> wanted_;
};

}  // namespace

Result<std::vector<ChunkBodies>> build_bodies(OperatorGraph& graph, Saved saved) {
  const std::vector<ChunkCalls> chunks = cut_into_chunks(graph, live_calls(graph));
  return BodiesBuilder(graph, chunks, saved).build();
}

}  // namespace piper
