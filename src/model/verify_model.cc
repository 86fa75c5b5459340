#include "model/verify_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/saturate.h"

namespace piper {
namespace {

SourceRange place(const std::vector<SourceRange>& places, size_t index) {
  return index < places.size() ? places[index] : SourceRange{};
}

/// One (chunk, pass), the producer or reader of a value.
struct Site {
  int chunk = -1;
  Pass pass = Pass::F;
  friend bool operator==(const Site&, const Site&) = default;
};

bool has_empty_block(const Dim& dim) {
  return std::any_of(dim.blocks.begin(), dim.blocks.end(), [](int64_t block) { return block < 1; });
}

struct Verifier {
  const ModelGraph& model;
  const ModelPlaces& places;

  Diagnostic bad(SourceRange where, std::string message) const {
    return error(ErrorCode::E109, std::move(where), std::move(message));
  }
  Diagnostic bad_chunk(int chunk, std::string message) const {
    return bad(place(places.chunks, static_cast<size_t>(chunk)),
               fmt::format("chunk {}: {}", model.chunks[static_cast<size_t>(chunk)].name, message));
  }

  template <class Items>
  Checked unique_names(const Items& items, const std::vector<SourceRange>& where, std::string_view what) const {
    std::unordered_map<std::string_view, size_t> seen;
    for (size_t i = 0; i < items.size(); ++i) {
      const auto [first, inserted] = seen.emplace(items[i].name, i);
      if (!inserted)
        return bad(place(where, i), fmt::format("{} {} is declared twice", what, items[i].name))
            .note(place(where, first->second), "first declared here")
            .help("give one of them another name");
    }
    return Ok{};
  }

  Checked shapes() const {
    for (size_t i = 0; i < model.values.size(); ++i) {
      const Value& value = model.values[i];
      for (const Dim& dim : value.shape)
        if (dim.size < 1 || dim.divisor < 1 || has_empty_block(dim))
          return bad(place(places.values, i), fmt::format("value {} has a dimension below 1", value.name))
              .help("dimensions are from 1 on; a number alone has the shape []");
      if (saturating_multiply(elements(value.shape, model.step.batch), bytes_of(value.dtype)) > largest_value_bytes)
        return bad(place(places.values, i),
                   fmt::format("value {} is larger than 64 PiB for the whole batch", value.name))
            .help("use smaller dimensions, or a smaller batch");
      if (value.kind == ValueKind::Input && !has_batch_dimension(value))
        return bad(place(places.values, i), fmt::format("input {} has no batch dimension", value.name))
            .help("b stands for the samples of a slice: [b, …]");
    }
    for (size_t i = 0; i < model.parameters.size(); ++i) {
      const Parameter& parameter = model.parameters[i];
      for (const Dim& dim : parameter.shape)
        if (dim.size < 1 || dim.per_sample || has_empty_block(dim))
          return bad(place(places.parameters, i),
                     fmt::format("parameter {} must have fixed dimensions of at least 1", parameter.name))
              .help("for example [16, 16]; b is for values only");
      if (saturating_multiply(elements(parameter.shape, 0), 8) > largest_value_bytes)
        return bad(place(places.parameters, i), fmt::format("parameter {} is larger than 64 PiB", parameter.name))
            .help("use smaller dimensions");
    }
    return Ok{};
  }

  Checked scopes() const {
    for (size_t c = 0; c < model.chunks.size(); ++c) {
      std::set<std::string_view> seen;
      for (const ScopeTag& tag : model.chunks[c].scopes) {
        if (tag.scope == "pass" || tag.scope == "comm")
          return bad_chunk(static_cast<int>(c), fmt::format("\"{}\" cannot be the name of a scope", tag.scope))
              .help("filters give it a meaning of its own; use another name");
        if (tag.index < 0)
          return bad_chunk(static_cast<int>(c), fmt::format("scope {} has a negative index", tag.scope))
              .help("instances are numbered from 0");
        if (!seen.insert(tag.scope).second)
          return bad_chunk(static_cast<int>(c), fmt::format("scope {} is nested in itself", tag.scope))
              .help("give the inner one another name");
      }
    }
    return Ok{};
  }

  /// What B does, one of its parts does, and the other way round; names the first that differs.
  template <class AnyId>
  Checked same_items(int c, const std::set<AnyId>& whole, const std::set<AnyId>& parts, std::string_view verb) const {
    for (const AnyId id : whole)
      if (!parts.contains(id))
        return bad_chunk(c, fmt::format("B {} {}, neither BI nor BW does", verb, model[id].name))
            .help("BI and BW together do what B does; add it to one of them, or take it out of B");
    for (const AnyId id : parts)
      if (!whole.contains(id))
        return bad_chunk(c, fmt::format("BI or BW {} {}, B does not", verb, model[id].name))
            .help("BI and BW together do what B does; add it to B, or take it out of the part");
    return Ok{};
  }

  /// All passes of a chunk on rows that are sorted by expert read where each expert's rows end.
  Checked routing_consistent(int c) const {
    const Chunk& chunk = model.chunks[static_cast<size_t>(c)];
    if (!chunk.routed_by) return Ok{};
    const Value& ends = model[*chunk.routed_by];
    if (ends.shape.size() != 1 || ends.shape[0].label != expert_label || ends.dtype != DType::Int32)
      return bad_chunk(c, fmt::format("is routed by {} {}, which has no number for each expert", ends.name,
                                      print(ends.shape)))
          .help("where each expert's rows end: value ends int32 [expert=8]");
    for (const std::optional<PassWork>& work : chunk.work)
      if (work && std::ranges::find(work->reads, *chunk.routed_by) == work->reads.end())
        return bad_chunk(c, fmt::format("is routed by {}, which one of its passes does not read", ends.name))
            .help("every pass has to know whose rows it works on: let all of them read it");
    return Ok{};
  }

  /// The two parts of backward read and write what the whole does, and hand values only from BI to BW.
  Checked backward_consistent(int c) const {
    const Chunk& chunk = model.chunks[static_cast<size_t>(c)];
    const PassWork *b = chunk.find(Pass::B), *bi = chunk.find(Pass::BI), *bw = chunk.find(Pass::BW);
    if (!chunk.find(Pass::F)) return bad_chunk(c, "has no forward pass F").help("add it below: F (…) -> (…)");
    PIPER_CHECK(routing_consistent(c));
    for (const auto* tokens : {&chunk.all_tokens, &chunk.rotated})
      for (const ValueId value : *tokens)
        if (!labelled(model[value].shape, sequence_label))
          return bad_chunk(c, fmt::format("needs {} tokens of {}, which has no dimension of tokens",
                                          tokens == &chunk.rotated ? "other" : "all", model[value].name))
              .help("label it in the value's shape: [b, sequence=128, 64]");
    if (chunk.rotation && *chunk.rotation >= model.ring)
      return bad_chunk(c, fmt::format("has the tokens of {} devices before its own in a ring of {}", *chunk.rotation,
                                      model.ring))
          .help("rotations are below the number of devices: context ring=4 at the beginning of the file");
    if (!b && (bi || bw)) return bad_chunk(c, "has BI or BW but no B").help("add B, which does what both do together");
    if (!bi && !bw) return Ok{};
    const auto united = [&](auto member) {
      std::set<std::remove_cvref_t<decltype((b->*member)[0])>> all;
      for (const PassWork* part : {bi, bw})
        if (part) all.insert((part->*member).begin(), (part->*member).end());
      return all;
    };
    const auto as_set = [](const auto& items) {
      return std::set<std::remove_cvref_t<decltype(items[0])>>(items.begin(), items.end());
    };
    std::set<ValueId> reads = united(&PassWork::reads), writes = united(&PassWork::writes);
    const std::set<ValueId> whole_writes = as_set(b->writes);
    if (bi && bw) {  // what only travels from BI to BW is invisible in B
      const std::set<ValueId> bw_reads = as_set(bw->reads);
      for (const ValueId value : bi->writes)
        if (bw_reads.contains(value) && !whole_writes.contains(value)) {
          writes.erase(value);
          reads.erase(value);
        } else if (bw_reads.contains(value)) {
          reads.erase(value);
        }
    }
    PIPER_CHECK(same_items(c, whole_writes, writes, "writes"));
    PIPER_CHECK(same_items(c, as_set(b->reads), reads, "reads"));
    PIPER_CHECK(same_items(c, as_set(b->gradients), united(&PassWork::gradients), "contributes to the gradient of"));
    const std::set<ParameterId> uses = as_set(b->parameters);
    for (const ParameterId parameter : united(&PassWork::parameters))
      if (!uses.contains(parameter))
        return bad_chunk(c, fmt::format("BI or BW uses parameter {}, B does not", model[parameter].name))
            .help("BI and BW together do what B does; add it to B, or take it out of the part");
    return Ok{};
  }

  /// Values produced by B are produced by BI or BW as well; only B counts here, and what BI keeps for BW.
  Checked producers_before_readers() const {
    std::vector<Site> producer(model.values.size());
    std::vector<Site> all;
    for (int c = 0; c < static_cast<int>(model.chunks.size()); ++c) {
      for (const Pass pass : {Pass::F, Pass::B, Pass::BI}) {
        const Chunk& chunk = model.chunks[static_cast<size_t>(c)];
        const PassWork* work = chunk.find(pass);
        if (!work) continue;
        if (pass != Pass::BI) all.push_back({c, pass});
        for (const ValueId id : work->writes) {
          Site& site = producer[id.index()];
          if (model[id].kind == ValueKind::Input)
            return bad_chunk(c, fmt::format("{} writes the input {}", name(pass), model[id].name))
                .help("inputs come from the batch; declare it as a value if a pass computes it");
          if (pass == Pass::BI && site == Site{c, Pass::B}) continue;
          if (site.chunk >= 0) {
            Diagnostic problem = bad_chunk(
                c, fmt::format("{} writes {}, which {} of chunk {} writes already", name(pass), model[id].name,
                               name(site.pass), model.chunks[static_cast<size_t>(site.chunk)].name));
            const SourceRange other = place(places.chunks, static_cast<size_t>(site.chunk));
            if (other) problem.notes.push_back({other, "it is written here"});
            problem.helps.emplace_back("every value has one producer; give the second a name of its own");
            return problem;
          }
          site = {c, pass};
        }
      }
    }
    return order_exists(producer, all);
  }

  Checked order_exists(const std::vector<Site>& producer, const std::vector<Site>& all) const {
    // forward runs in the order of the chunks; backward in any order its data allow
    std::vector<int> waiting(all.size(), 0), ready;
    std::unordered_map<int, int> index;  // chunk * 2 + (backward)
    const auto key = [](const Site& site) { return site.chunk * 2 + (site.pass == Pass::F ? 0 : 1); };
    for (size_t i = 0; i < all.size(); ++i) index[key(all[i])] = static_cast<int>(i);
    std::vector<std::vector<int>> next(all.size());
    for (size_t i = 0; i < all.size(); ++i) {
      const Site site = all[i];
      std::set<int> before;
      if (site.pass == Pass::B) before.insert(index[site.chunk * 2]);
      for (const ValueId id : model.chunks[static_cast<size_t>(site.chunk)].find(site.pass)->reads) {
        if (model[id].kind == ValueKind::Input) continue;
        const Site from = producer[id.index()];
        if (from.chunk < 0)
          return bad_chunk(site.chunk,
                           fmt::format("{} reads {}, which nothing writes", name(site.pass), model[id].name))
              .help("let a chunk write it, or declare it as an input");
        if (from.pass == Pass::BI || (site.pass == Pass::F && (from.pass != Pass::F || from.chunk >= site.chunk)))
          return bad_chunk(site.chunk, fmt::format("{} reads {} before it is written", name(site.pass), model[id].name))
              .help("forward runs in the order of the chunks; move the one that writes it up");
        before.insert(index[key(from)]);
      }
      for (const int b : before) next[static_cast<size_t>(b)].push_back(static_cast<int>(i));
      waiting[i] = static_cast<int>(before.size());
      if (before.empty()) ready.push_back(static_cast<int>(i));
    }
    size_t done = 0;
    while (!ready.empty()) {
      const int i = ready.back();
      ready.pop_back();
      ++done;
      for (const int j : next[static_cast<size_t>(i)])
        if (--waiting[static_cast<size_t>(j)] == 0) ready.push_back(j);
    }
    if (done < all.size()) {
      const auto stuck = std::find_if(waiting.begin(), waiting.end(), [](int w) { return w > 0; });
      const Site site = all[static_cast<size_t>(stuck - waiting.begin())];
      return bad_chunk(site.chunk, "its backward pass waits for itself through other chunks")
          .help("follow what its B reads back to where it is written; some gradient goes the wrong way");
    }
    return Ok{};
  }

  /// All that the passes read, write, need or contribute to.
  struct Uses {
    std::set<ValueId> read, written, written_by_forward;
    std::set<ParameterId> needed, with_gradient;
  };
  Uses find_uses() const {
    Uses uses;
    for (const Chunk& chunk : model.chunks)
      for (const Pass pass : {Pass::F, Pass::B, Pass::BI, Pass::BW}) {
        const PassWork* work = chunk.find(pass);
        if (!work) continue;
        uses.read.insert(work->reads.begin(), work->reads.end());
        uses.written.insert(work->writes.begin(), work->writes.end());
        if (pass == Pass::F) uses.written_by_forward.insert(work->writes.begin(), work->writes.end());
        uses.needed.insert(work->parameters.begin(), work->parameters.end());
        uses.with_gradient.insert(work->gradients.begin(), work->gradients.end());
      }
    return uses;
  }

  Checked values_are_used() const {
    const Uses uses = find_uses();
    for (size_t i = 0; i < model.values.size(); ++i) {
      const Value& value = model.values[i];
      const auto refuse = [&](std::string_view problem, std::string help) {
        return bad(place(places.values, i), fmt::format("{} {}", value.name, problem)).help(std::move(help));
      };
      const bool read = uses.read.contains(ValueId(i)), written = uses.written.contains(ValueId(i));
      if (value.kind == ValueKind::Input && !read) return refuse("is an input that no pass reads", "take it out");
      if (value.kind == ValueKind::Computed && !written)
        return refuse("is written by no pass", "let a chunk write it, or take it out");
      if (value.kind == ValueKind::Computed && !read)
        return refuse("is written, but no pass reads it",
                      "take it out of the pass that writes it; what the step is for is declared as a loss");
      if (value.kind == ValueKind::Loss && !uses.written_by_forward.contains(ValueId(i)))
        return refuse("is a loss that no forward pass writes", "let F of a chunk write it");
    }
    return Ok{};
  }

  Checked parameters_are_used() const {
    const Uses uses = find_uses();
    for (size_t i = 0; i < model.parameters.size(); ++i) {
      const Parameter& parameter = model.parameters[i];
      const auto refuse = [&](std::string_view problem, std::string help) {
        return bad(place(places.parameters, i), fmt::format("parameter {} {}", parameter.name, problem))
            .help(std::move(help));
      };
      const bool trained = uses.with_gradient.contains(ParameterId(i));
      if (!uses.needed.contains(ParameterId(i)))
        return refuse("is needed by no pass", "name it in parameters(…) of the passes that read it, or take it out");
      if (!trained && !parameter.frozen)
        return refuse("never gets a gradient",
                      "name it in gradients(…) of a backward pass; if it is not trained, write frozen after its shape");
      if (trained && parameter.frozen)
        return refuse("is frozen, but gets a gradient", "take out frozen, or the gradient");
    }
    return Ok{};
  }
};

}  // namespace

Checked verify(const ModelGraph& model, const ModelPlaces& places) {
  const Verifier v{model, places};
  if (model.chunks.empty())
    return v.bad(place(places.chunks, 0), "the model has no chunks")
        .help("add one: chunk layer.0 {layer=0}, and below it F (…) -> (…)");
  if (model.step.batch < 1)
    return v.bad({}, fmt::format("the batch has {} samples", model.step.batch))
        .help("a step has at least one sample: batch=8");
  PIPER_CHECK(v.unique_names(model.values, places.values, "value"));
  PIPER_CHECK(v.unique_names(model.parameters, places.parameters, "parameter"));
  PIPER_CHECK(v.unique_names(model.chunks, places.chunks, "chunk"));
  PIPER_CHECK(v.shapes());
  PIPER_CHECK(v.scopes());
  for (size_t c = 0; c < model.chunks.size(); ++c) PIPER_CHECK(v.backward_consistent(static_cast<int>(c)));
  PIPER_CHECK(v.producers_before_readers());
  PIPER_CHECK(v.values_are_used());
  return v.parameters_are_used();
}

}  // namespace piper
