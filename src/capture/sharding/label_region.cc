#include "capture/sharding/label_region.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/invariant.h"
#include "capture/program/draws.h"
#include "capture/sharding/operator_rules.h"
#include "capture/sharding/partial_sums.h"

namespace piper {
namespace {

constexpr Pass passes_with_bodies[] = {Pass::F, Pass::B, Pass::BI, Pass::BW};

/// Finds the labels of one region.
class Labeler {
 public:
  Labeler(const OperatorGraph& graph, const std::vector<ChunkBodies>& chunks, const Readers& readers,
          const Region& region, const std::vector<TensorLabels>& known)
      : graph_(graph), chunks_(chunks), readers_(readers), region_(region), known_(known) {
    for (const size_t c : region.chunks)
      for (const Pass pass : passes_with_bodies)
        if (const ChunkIr* body = chunks[c].find(pass)) {
          const bool tokens = region.sequence_sharded && !region.heads;
          sites_.push_back({c, pass, body, {{}, region.tp, tokens, region.context && tokens, region.heads}});
          for (const GraphTensor& tensor : body->tensors)
            sites_.back().labels.tensors.push_back(unknown_labels(tensor.layout.sizes));
        }
    note_links();
  }

  Result<RegionLabels> label() {
    PIPER_CHECK(check_writes());
    return region_.heads ? label_heads() : region_.tp ? label_tp() : label_experts();
  }

 private:
  Result<RegionLabels> label_experts() {
    PIPER_CHECK(seed());
    // forward alone first: what is wrong there is said in terms of the code that was written
    std::vector<Site> untouched = sites_;
    PIPER_CHECK(find_labels({Pass::F}));
    PIPER_CHECK(check_leaving(true));
    PIPER_CHECK(check_divides());
    sites_ = std::move(untouched);
    PIPER_CHECK(find_labels({Pass::F, Pass::B, Pass::BI, Pass::BW}));
    PIPER_CHECK(check_leaving(false));
    PIPER_CHECK(check_entering());
    PIPER_CHECK(check_external());
    return result();
  }
  /// What crosses the border of a body has the labels of the graph; inside, the same rules give the rest.
  Result<RegionLabels> label_tp() {
    for (const auto& [content, places] : contents_)
      for (const Use& place : places)
        if (region_.all_tokens.contains(content.storage))
          settle(labels_at(place));
        else
          copy_known(graph_[content.storage].base, place);
    for (const auto& [external, places] : externals_)
      for (const Use& place : places) copy_known(external, place);
    PIPER_CHECK(find_labels({Pass::F, Pass::B, Pass::BI, Pass::BW}));
    PIPER_CHECK(check_cut_sums());
    PIPER_CHECK(check_cut_borders());
    return result();
  }
  /// Heads are divided from the queries of attention on.
  Result<RegionLabels> label_heads() {
    for (Site& site : sites_)
      for (const Call& call : site.body->calls)
        if (rule_of(graph_[call.op]).dims == DimRule::Attention)
          for (Factor& heads : queries_of(site, call).dims[1]) heads.mark = Mark::Sharded;
    PIPER_CHECK(find_labels({Pass::F, Pass::B, Pass::BI, Pass::BW}));
    PIPER_CHECK(check_cut_sums());
    PIPER_CHECK(check_cut_borders());
    for (Site& site : sites_)
      for (TensorLabels& labels : site.labels.tensors) call_heads(labels);
    return result();
  }
  RegionLabels result() {
    RegionLabels out;
    for (Site& site : sites_) out[{site.chunk, site.pass}] = std::move(site.labels);
    return out;
  }

  struct Site {
    size_t chunk;
    Pass pass;
    const ChunkIr* body;
    BodyLabels labels;
  };
  /// A tensor of one of the bodies.
  struct Use {
    size_t site;
    TensorId tensor;
  };

  TensorLabels& queries_of(Site& site, const Call& call) const {
    return site.labels.tensors[std::get<TensorId>(*find_argument(graph_, call, "query")).index()];
  }

  // ---- what is wrong, in the user's words

  std::string where(const Site& site) const {
    return fmt::format("{}, {}", chunks_[site.chunk].name, site.pass == Pass::F ? "forward" : "backward");
  }
  Diagnostic refuse(const Site& site, const Call* call, const std::string& what, std::string help) const {
    std::string message = where(site) + ": ";
    if (call) {
      std::vector<std::string> operands;
      each_tensor(call->arguments, [&](TensorId id) { operands.push_back(print(site.labels.tensors[id.index()])); });
      message += fmt::format("{} on {}: ", graph_[call->op].name, fmt::join(operands, ", "));
    }
    return error(region_.tp ? ErrorCode::E317 : ErrorCode::E308, {}, message + what).help(std::move(help));
  }
  static std::string tp_help() {
    return "name only what can be sharded, such as parameters=\"*.down_proj.weight: 1\", or leave this region out of "
           "the filter";
  }
  std::string batched_help() const {
    if (region_.routed)
      return "devices hold some of the experts each, and rows of all slices: compute row by row, with the matrices of "
             "all experts at once, as in piper::grouped_mm(x, w, ends)";
    return "devices hold some of the experts each, and slots of all slices: compute all experts at once, slot by slot, "
           "as "
           "in torch::bmm(x, w) with w of shape [experts, in, out]";
  }

  // ---- the region's border

  /// Contents, parameters and constants by the places that show them.
  void note_links() {
    for (size_t s = 0; s < sites_.size(); ++s) {
      const ChunkIr& body = *sites_[s].body;
      for (const auto* uses : {&body.reads, &body.writes})
        for (const ContentUse& use : *uses) contents_[use.content].push_back({s, use.inside});
      for (const auto* uses : {&body.parameters, &body.gradients, &body.constants})
        for (const ExternalUse& use : *uses) externals_[use.outside].push_back({s, use.inside});
      for (const ContentUse& use : body.writes) made_here_.insert(use.content);
    }
  }
  bool used_outside(const Content& content) const {
    const auto found = readers_.find(content);
    return found != readers_.end() &&
           !std::includes(region_.chunks.begin(), region_.chunks.end(), found->second.begin(), found->second.end());
  }

  /// By a chunk that is no part of a region that is sharded.
  bool used_whole(const Content& content) const {
    const auto found = readers_.find(content);
    return found != readers_.end() && std::any_of(found->second.begin(), found->second.end(), [&](size_t reader) {
             return !chunks_[reader].scope.valid() || !graph_[chunks_[reader].scope].tp;
           });
  }

  Checked check_writes() const {
    for (const Site& site : sites_)
      for (const ExternalUse& state : site.body->states)
        return refuse(site, nullptr, fmt::format("buffer {} is written in the region", graph_[state.outside].name),
                      "write it outside: inside, devices see the slots of several slices");
    return Ok{};
  }

  /// Rows, and where those of each expert end.
  Checked seed_rows() {
    for (Site& site : sites_) {
      if (site.pass != Pass::F) continue;
      const std::optional<ContentUse> ends = ends_of_rows(graph_, *site.body);
      const std::optional<int64_t> rows = rows_of(*site.body);
      if (!rows) continue;
      if (!ends || (*site.body)[ends->inside].layout.sizes != std::vector<int64_t>{region_.experts})
        return refuse(site, nullptr, "where the rows of each expert end is computed inside of the region",
                      "compute it before, one number for each expert, and let the region read it");
      if (*rows == 1 || region_.experts == 1)
        return refuse(site, nullptr, *rows == 1 ? "there is one row" : "there is one expert",
                      "which leaves nothing to divide: annotate the region without a number of experts");
      for (const ContentUse& use : site.body->reads) {
        if (made_here_.contains(use.content)) continue;
        const GraphTensor& tensor = (*site.body)[use.inside];
        TensorLabels& labels = site.labels.tensors[use.inside.index()];
        const bool are_ends = use.content == ends->content;
        if (!are_ends && (tensor.layout.sizes.empty() || tensor.layout.sizes[0] != *rows))
          return refuse(site, nullptr,
                        fmt::format("a value [{}] enters the region; it must have the {} rows",
                                    fmt::join(tensor.layout.sizes, ", "), *rows),
                        "compute it inside, or pass it in that shape");
        for (size_t d = 0; d < labels.dims.size(); ++d)
          for (Factor& factor : labels.dims[d])
            factor.mark = d > 0 ? Mark::Plain : are_ends ? Mark::Expert : Mark::Routed;
      }
    }
    return Ok{};
  }
  /// Of the first product of groups.
  std::optional<int64_t> rows_of(const ChunkIr& body) const {
    for (const Call& call : body.calls)
      if (call.op.valid() && graph_[call.op].name == "piper::grouped_mm")
        return body[std::get<TensorId>(call.arguments[0])].layout.sizes[0];
    return std::nullopt;
  }

  Checked seed() {
    if (region_.routed) return seed_rows();
    const std::string expected = fmt::format("[{}, capacity, ...]", region_.experts);
    for (Site& site : sites_) {
      if (site.pass != Pass::F) continue;
      for (const ContentUse& use : site.body->reads) {
        if (made_here_.contains(use.content)) continue;
        const std::vector<int64_t>& sizes = (*site.body)[use.inside].layout.sizes;
        if (sizes.size() < 2 || sizes[0] != region_.experts)
          return refuse(site, nullptr,
                        fmt::format("a value [{}] enters the region; it must be {}", fmt::join(sizes, ", "), expected),
                        "compute it inside, or pass it in that shape");
        if (sizes[0] == 1)
          return refuse(site, nullptr, fmt::format("a value [{}] has one expert", fmt::join(sizes, ", ")),
                        "there is nothing to divide: annotate the region without a number of experts");
        if (sizes[1] == 1)
          return refuse(site, nullptr,
                        fmt::format("a value [{}] has one slot for each expert, which cannot be told from a dimension "
                                    "that is broadcast",
                                    fmt::join(sizes, ", ")),
                        "let slices have more tokens, by fewer parts of `split` or a larger batch, or experts a larger "
                        "capacity");
        TensorLabels& labels = site.labels.tensors[use.inside.index()];
        for (size_t d = 0; d < sizes.size(); ++d)
          for (Factor& factor : labels.dims[d])
            factor.mark = d == 0 ? Mark::Expert : d == 1 ? Mark::Capacity : Mark::Plain;
      }
    }
    return Ok{};
  }

  // ---- unification

  Checked find_labels(const std::set<Pass>& passes) {
    while (true) {
      plain_.clear();
      bool learned = false;
      std::optional<Diagnostic> conflict;
      for (size_t s = 0; s < sites_.size() && !conflict; ++s) {
        Site& site = sites_[s];
        if (!passes.contains(site.pass)) continue;
        std::vector<const Call*> calls;
        for (const Call& call : site.body->calls) calls.push_back(&call);
        LabelSweep sweep = sweep_rules(graph_, site.body->tensors, calls, site.labels);
        learned |= sweep.learned;
        for (auto& [call, plain] : sweep.must_be_plain) plain_.push_back({s, call, std::move(plain)});
        if (sweep.stopped_at)
          conflict = refuse(site, sweep.stopped_at, sweep.problem.what, region_.tp ? tp_help() : batched_help());
      }
      if (conflict) {  // what a dimension must not be explains more than what it then meets
        PIPER_CHECK(check_plain());
        return *std::move(conflict);
      }
      learned |= follow_links(passes);
      if (!learned) break;
    }
    PIPER_CHECK(check_plain());
    for (Site& site : sites_)
      if (passes.contains(site.pass))
        for (TensorLabels& labels : site.labels.tensors) settle(labels);
    return region_.tp ? Checked(Ok{}) : check_sums(passes);
  }

  void copy_known(TensorId known, const Use& place) {
    TensorLabels& labels = labels_at(place);
    if (known.index() < known_.size() && known_[known.index()].dims.size() == labels.dims.size())
      labels.dims = known_[known.index()].dims;
    else
      settle(labels);
  }

  /// The same storage has the same labels in every body. A conflict shows where the labels are used.
  bool follow_links(const std::set<Pass>& passes) {
    bool learned = false;
    const auto follow = [&](const std::vector<Use>& places) {
      const Use* first = nullptr;
      for (const Use& place : places) {
        if (!passes.contains(sites_[place.site].pass)) continue;
        if (first) learned |= unify_tensors(labels_at(*first), labels_at(place));
        if (!first) first = &place;
      }
    };
    for (const auto& [content, places] : contents_) follow(places);
    for (const auto& [external, places] : externals_) follow(places);
    return learned;
  }
  TensorLabels& labels_at(const Use& place) { return sites_[place.site].labels.tensors[place.tensor.index()]; }

  // ---- checks

  Checked check_plain() const {
    std::vector<const Forbidden*> found;
    for (const Forbidden& forbidden : plain_) {
      const Site& site = sites_[forbidden.site];
      if (is_labelled(site.labels.tensors[forbidden.plain.tensor.index()].dims[forbidden.plain.dim]))
        found.push_back(&forbidden);
    }
    if (found.empty()) return Ok{};
    const Forbidden& first = **std::min_element(found.begin(), found.end(), [](const Forbidden* a, const Forbidden* b) {
      return std::pair(a->site, a->call) < std::pair(b->site, b->call);
    });
    const Site& site = sites_[first.site];
    const Factors& dim = site.labels.tensors[first.plain.tensor.index()].dims[first.plain.dim];
    const char* which = region_.tp ? "the sharded dimension"
                        : has(dim, Mark::Expert) && has(dim, Mark::Capacity)
                            ? "the flattened expert and capacity dimensions"
                        : has(dim, Mark::Routed) ? "the sorted rows"
                        : has(dim, Mark::Expert) ? "the expert dimension"
                                                 : "the capacity dimension";
    return refuse(site, first.call, fmt::format("{} {}", first.plain.why, which),
                  region_.tp ? tp_help() : batched_help());
  }

  /// The two halves of a backward are one region: what BI hands to BW is as it was made, so that a parameter's gradient
  /// is a part of a sum in BW where it is in B.
  void take_sums_from_first_half(Site& site) {
    if (site.pass != Pass::BW) return;
    for (const ContentUse& use : site.body->reads)
      for (const Site& other : sites_) {
        if (other.chunk != site.chunk || other.pass != Pass::BI) continue;
        for (const ContentUse& made : other.body->writes) {
          if (made.content != use.content) continue;
          const TensorLabels& from = other.labels.tensors[made.inside.index()];
          TensorLabels& to = site.labels.tensors[use.inside.index()];
          to.sums_divided = from.sums_divided;
          to.are_maxima = from.are_maxima;
        }
      }
  }

  /// Nothing else adds up over tokens in forward; each device has a loss of its own, weighed by its part.
  bool adds_up_losses(const Site& site) const { return region_.context && site.pass == Pass::F; }

  /// Sums over what is sharded are parts on each device: they may only be added up until they leave the region.
  Checked check_cut_sums() {
    for (Site& site : sites_) {
      take_sums_from_first_half(site);
      for (const Call& call : site.body->calls) {
        bool part = false, sums = false;
        each_tensor(call.arguments, [&](TensorId id) { part = part || site.labels.tensors[id.index()].sums_divided; });
        if (part && !keeps_partial_sums(graph_, site.body->tensors, site.labels, call))
          return refuse(site, &call, "it uses a sum over the sharded dimension before it is complete", tp_help());
        each_tensor(call.results, [&](TensorId id) {
          const bool over = !adds_up_losses(site) && sums_over(graph_, site.labels, call, id, Mark::Sharded);
          sums = sums || over;
          TensorLabels& labels = site.labels.tensors[id.index()];
          labels.sums_divided = labels.sums_divided || part || over;
          labels.are_maxima = labels.sums_divided && is_maximum(graph_, call);
        });
        const std::string name = base_name(graph_[call.op]);
        if (sums && (name == "addmm" || name == "baddbmm"))
          return refuse(site, &call, "every device would add the bias to its part of the sum",
                        "add the bias behind the product: x @ w + b");
        if (call.random < 0) continue;
        const TensorLabels& drawn = site.labels.tensors[std::get<TensorId>(call.results[0]).index()];
        if (Drawn known = call.drawn; !refine(known, drawn))
          return refuse(site, &call, "these random numbers cannot be drawn for each part", tp_help());
      }
    }
    return Ok{};
  }
  /// What leaves is whole, or a part of a sum; tokens may leave. Gradients of what is sharded are whole for each part.
  Checked check_cut_borders() const {
    for (const Site& site : sites_) {
      for (const ContentUse& use : site.body->writes) {
        const TensorLabels& labels = site.labels.tensors[use.inside.index()];
        if (has(labels, Mark::Sharded) &&
            (labels.sums_divided || (!region_.sequence_sharded && used_whole(use.content))))
          return refuse(site, nullptr, fmt::format("a divided value {} leaves the region", print(labels)), tp_help());
        if (graph_[graph_.loss].storage == use.content.storage && !region_.context)
          return refuse(site, nullptr, "the loss is computed of divided values", tp_help());
      }
      for (const ExternalUse& use : site.body->gradients) {
        const TensorLabels& labels = site.labels.tensors[use.inside.index()];
        if (has(labels, Mark::Sharded) && labels.sums_divided)
          return refuse(site, nullptr,
                        fmt::format("the gradient {} of {} is only a part on each device", print(labels),
                                    graph_[use.outside].name),
                        tp_help());
      }
      for (const ExternalUse& use : site.body->constants)
        if (const TensorLabels& labels = site.labels.tensors[use.inside.index()]; has(labels, Mark::Sharded))
          return refuse(site, nullptr, fmt::format("a constant {} is sharded", print(labels)),
                        "make it a buffer of the model");
    }
    return Ok{};
  }

  /// One sweep: sums over slots must stay inside, sums over experts are partial and may only be added up.
  Checked check_sums(const std::set<Pass>& passes) {
    for (bool changed = true; changed;) {
      changed = false;
      for (Site& site : sites_) {
        if (!passes.contains(site.pass)) continue;
        for (const Call& call : site.body->calls) PIPER_CHECK(check_call(site, call, changed));
      }
      for (const auto& [content, places] : contents_) changed |= follow_sums(places, passes);
    }
    return Ok{};
  }
  Checked check_call(Site& site, const Call& call, bool& changed) {
    bool gathered = false, divided = false;
    each_tensor(call.arguments, [&](TensorId id) {
      gathered |= site.labels.tensors[id.index()].sums_gathered;
      divided |= site.labels.tensors[id.index()].sums_divided;
    });
    if (divided && !keeps_partial_sums(graph_, site.body->tensors, site.labels, call))
      return refuse(site, &call, "it uses a sum over experts before it is complete", batched_help());
    std::optional<Diagnostic> problem;
    each_tensor(call.results, [&](TensorId id) {
      TensorLabels& labels = site.labels.tensors[id.index()];
      if (problem) return;
      if (call.random >= 0 && (!has(labels, Mark::Expert) || !has(labels, Mark::Capacity)))
        problem =
            refuse(site, &call, fmt::format("random numbers {} without expert and capacity dimension", print(labels)),
                   "inside the region they are drawn for each slice and expert; draw these outside");
      else if (Drawn known = call.drawn; call.random >= 0 && !refine(known, labels))
        problem = refuse(site, &call, "these random numbers cannot be drawn for each slice and expert",
                         "inside the region use torch::dropout, or bernoulli_ on a tensor [experts, capacity, ...]");
      const Mark slots = region_.routed ? Mark::Routed : Mark::Capacity;
      const bool over_slots = sums_over(graph_, site.labels, call, id, slots);
      const bool over_experts = sums_over(graph_, site.labels, call, id, Mark::Expert);
      if (site.pass == Pass::F && (over_slots || over_experts))
        problem = refuse(site, &call,
                         !over_slots      ? "it sums over the expert dimension"
                         : region_.routed ? "it sums over the sorted rows"
                                          : "it sums over the capacity dimension",
                         batched_help());
      const bool all_gathered = labels.sums_gathered || gathered || over_slots;
      const bool all_divided = labels.sums_divided || divided || over_experts;
      changed |= all_gathered != labels.sums_gathered || all_divided != labels.sums_divided;
      labels.sums_gathered = all_gathered;
      labels.sums_divided = all_divided;
    });
    if (problem) return *std::move(problem);
    return Ok{};
  }
  bool follow_sums(const std::vector<Use>& places, const std::set<Pass>& passes) {
    bool gathered = false, divided = false, changed = false;
    for (const Use& place : places) {
      gathered |= labels_at(place).sums_gathered;
      divided |= labels_at(place).sums_divided;
    }
    for (const Use& place : places) {
      if (!passes.contains(sites_[place.site].pass)) continue;
      TensorLabels& labels = labels_at(place);
      changed |= labels.sums_gathered != gathered || labels.sums_divided != divided;
      labels.sums_gathered = gathered;
      labels.sums_divided = divided;
    }
    return changed;
  }

  /// All of a row lies together.
  Checked check_border_of_rows(const Site& site, const ContentUse& use, std::string_view verb) const {
    const TensorLabels& labels = site.labels.tensors[use.inside.index()];
    const TensorLayout& layout = (*site.body)[use.inside].layout;
    int64_t stride = 1;
    bool dense = true;
    for (size_t d = layout.sizes.size(); d-- > 0;) {
      dense = dense && (layout.sizes[d] == 1 || layout.strides[d] == stride);
      stride *= layout.sizes[d];
    }
    const bool ends = has(labels, Mark::Expert) && labels.dims.size() == 1 && verb == "enters";
    const bool rows = separate_dim(labels, Mark::Routed) == 0 && !has(labels, Mark::Expert) && dense;
    if ((ends || rows) && !labels.sums_gathered && !labels.sums_divided) return Ok{};
    return refuse(site, nullptr, fmt::format("a value {} {} the region that is not made of rows", print(labels), verb),
                  "every value at the border of the region is [rows, ...], row by row, one after another");
  }

  Checked check_border(const Site& site, const ContentUse& use, std::string_view verb) const {
    if (region_.routed) return check_border_of_rows(site, use, verb);
    const TensorLabels& labels = site.labels.tensors[use.inside.index()];
    const std::string help = "every value at the border of the region is [experts, capacity, ...], slot by slot";
    if (labels.sums_gathered || labels.sums_divided)
      return refuse(site, nullptr,
                    fmt::format("a value {} that {} the region adds up over {}", print(labels), verb,
                                labels.sums_gathered ? "slots" : "experts"),
                    help);
    if (separate_dim(labels, Mark::Expert) < 0 || separate_dim(labels, Mark::Capacity) < 0)
      return refuse(site, nullptr,
                    fmt::format("a value {} {} the region, without an expert and a capacity dimension of its own",
                                print(labels), verb),
                    help);
    return Ok{};
  }
  Checked check_leaving(bool forward_only) const {
    for (const Site& site : sites_) {
      if (forward_only && site.pass != Pass::F) continue;
      for (const ContentUse& use : site.body->writes) {
        const bool is_loss = graph_[graph_.loss].storage == use.content.storage;
        if (used_outside(use.content) || is_loss) PIPER_CHECK(check_border(site, use, "leaves"));
      }
    }
    return Ok{};
  }
  Checked check_entering() const {
    for (const Site& site : sites_)
      for (const ContentUse& use : site.body->reads)
        if (!made_here_.contains(use.content)) PIPER_CHECK(check_border(site, use, "enters"));
    return Ok{};
  }
  /// Otherwise there is nothing to shard.
  Checked check_divides() const {
    const Site* forward = nullptr;
    for (const Site& site : sites_) {
      if (site.pass != Pass::F) continue;
      if (!forward) forward = &site;
      for (const ExternalUse& use : site.body->parameters)
        if (has(site.labels.tensors[use.inside.index()], Mark::Expert)) return Ok{};
    }
    return refuse(*forward, nullptr, "no parameter of the region has an expert dimension", batched_help());
  }

  /// Parameters and constants are divided into contiguous parts, along experts alone; gradients fit their parameters.
  Checked check_external() const {
    for (const auto& [external, places] : externals_) {
      const GraphTensor& tensor = graph_[external];
      for (const Use& place : places) {
        const Site& site = sites_[place.site];
        const TensorLabels& labels = site.labels.tensors[place.tensor.index()];
        const std::string what = tensor.kind == TensorKind::Constant ? "a constant" : "parameter " + tensor.name;
        if (has(labels, Mark::Capacity) || has(labels, Mark::Routed))
          return refuse(site, nullptr,
                        fmt::format("{} {} has {}", what, print(labels),
                                    region_.routed ? "a number for each row" : "the capacity dimension"),
                        batched_help());
        for (size_t d = 0; d < labels.dims.size(); ++d)
          for (size_t f = 0; f < labels.dims[d].size(); ++f)
            if (labels.dims[d][f].mark == Mark::Expert && (d > 0 || f > 0))
              return refuse(site, nullptr, fmt::format("{} {} has the expert dimension inside", what, print(labels)),
                            "make it the first: [experts, ...]");
      }
    }
    for (const Site& site : sites_)
      for (const ExternalUse& use : site.body->gradients) {
        const TensorLabels& labels = site.labels.tensors[use.inside.index()];
        if (has(labels, Mark::Expert) == labels.sums_divided)
          return refuse(site, nullptr,
                        fmt::format("the gradient {} of {} is {}", print(labels), graph_[use.outside].name,
                                    labels.sums_divided ? "only a part on each device" : "not a sum over experts"),
                        batched_help());
      }
    return Ok{};
  }

  struct Forbidden {
    size_t site;
    const Call* call;
    MustBePlain plain;
  };

  const OperatorGraph& graph_;
  const std::vector<ChunkBodies>& chunks_;
  const Readers& readers_;
  const Region& region_;
  const std::vector<TensorLabels>& known_;
  std::vector<Site> sites_;
  std::map<Content, std::vector<Use>> contents_;
  std::map<TensorId, std::vector<Use>> externals_;
  std::set<Content> made_here_;
  std::vector<Forbidden> plain_;
};

/// Of all experts in one value.
bool has_sorted_rows(const OperatorGraph& graph, const ChunkBodies& chunk) {
  const ChunkIr* forward = chunk.find(Pass::F);
  return forward && std::ranges::any_of(forward->calls,
                                        [&](const Call& call) { return graph[call.op].name == "piper::grouped_mm"; });
}

}  // namespace

Readers find_readers(const std::vector<ChunkBodies>& chunks) {
  Readers readers;
  for (size_t c = 0; c < chunks.size(); ++c)
    for (const auto& body : chunks[c].passes)
      if (body)
        for (const ContentUse& use : body->reads)
          if (std::vector<size_t>& of = readers[use.content]; of.empty() || of.back() != c) of.push_back(c);
  return readers;
}

std::vector<Region> find_regions(const OperatorGraph& graph, const std::vector<ChunkBodies>& chunks) {
  std::map<ScopeId, std::vector<size_t>> inside;
  std::set<ScopeId> sorted;
  for (size_t c = 0; c < chunks.size(); ++c)
    for (ScopeId scope = chunks[c].scope; scope.valid(); scope = graph[scope].parent) {
      if (graph[scope].attributes.experts > 0 || graph[scope].tp) inside[scope].push_back(c);
      if (has_sorted_rows(graph, chunks[c])) sorted.insert(scope);
    }
  std::vector<Region> regions;
  for (auto& [scope, of] : inside) {
    regions.push_back({scope, graph[scope].attributes.experts, graph[scope].tp, false, std::move(of)});
    regions.back().routed = !graph[scope].tp && sorted.contains(scope);
  }
  return regions;
}

std::optional<ContentUse> ends_of_rows(const OperatorGraph& graph, const ChunkIr& body) {
  for (const Call& call : body.calls) {
    if (!call.op.valid() || graph[call.op].name != "piper::grouped_mm") continue;
    const TensorId ends = std::get<TensorId>(call.arguments[2]);
    for (const ContentUse& use : body.reads)
      if (use.inside == ends) return use;
    return std::nullopt;
  }
  return std::nullopt;
}

Result<RegionLabels> label_region(const OperatorGraph& graph, const std::vector<ChunkBodies>& chunks,
                                  const Readers& readers, const Region& region,
                                  const std::vector<TensorLabels>& known) {
  return Labeler(graph, chunks, readers, region, known).label();
}

}  // namespace piper
