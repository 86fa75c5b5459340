#include "capture/cut_regions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/match_pattern.h"
#include "base/suggest.h"
#include "capture/chunk_calls.h"

namespace piper {
namespace {

class Cutter {
 public:
  explicit Cutter(OperatorGraph graph) : graph_(std::move(graph)) {
    labels_.cut = true;
    for (const GraphTensor& tensor : graph_.tensors) labels_.tensors.push_back(unknown_labels(tensor.layout.sizes));
  }

  Result<CutGraph> cut(const std::vector<CutSeed>& seeds) {
    for (size_t t = 0; t < graph_.tensors.size(); ++t)
      if (graph_.tensors[t].kind == TensorKind::Parameter) parameters_.emplace_back(t);
    for (const CutSeed& seed : seeds) PIPER_CHECK(plant(seed));
    live_ = live_calls(graph_);
    PIPER_CHECK(find_labels());
    part_biases();
    PIPER_CHECK(split_segments());
    return CutGraph{std::move(graph_), std::move(labels_.tensors)};
  }

 private:
  Checked plant(const CutSeed& seed) {
    bool found = false;
    for (const TensorId id : parameters_) {
      const GraphTensor& tensor = graph_[id];
      if (!matches_pattern(tensor.name, seed.pattern)) continue;
      found = true;
      if (static_cast<size_t>(seed.dim) >= tensor.layout.sizes.size())
        return error(ErrorCode::E317, {},
                     fmt::format("cut: parameter {} [{}] has no dimension {}", tensor.name,
                                 fmt::join(tensor.layout.sizes, ", "), seed.dim))
            .help("dimensions count from 0");
      for (Factor& factor : labels_.tensors[id.index()].dims[static_cast<size_t>(seed.dim)]) factor.mark = Mark::Cut;
    }
    if (found) return Ok{};
    std::vector<std::string> names;
    for (const TensorId id : parameters_) names.push_back(graph_[id].name);
    return error(ErrorCode::E317, {}, fmt::format("cut: no parameter has a name like \"{}\"", seed.pattern))
        .help(did_you_mean(seed.pattern, names))
        .help("* stands for any part of a name, as in *.wo");
  }

  // ---- labels

  Diagnostic refuse(const Call& call, const std::string& what) const {
    std::vector<std::string> operands;
    each_tensor(call.arguments, [&](TensorId id) { operands.push_back(print(labels_.tensors[id.index()])); });
    const Call& said = call.forward.valid() ? graph_[call.forward] : call;
    return error(ErrorCode::E317, {},
                 fmt::format("cut: {}, {}: {} on {}: {}",
                             scope_name(graph_, graph_.segments[static_cast<size_t>(said.segment)].scope),
                             call.backward ? "backward" : "forward", graph_[call.op].name, fmt::join(operands, ", "),
                             what))
        .help("T marks what lies on different devices: cut a dimension that operators keep apart, such as heads")
        .help("or leave this region out of the filter and of parameters=");
  }

  Checked find_labels() {
    std::vector<const Call*> calls;
    for (const CallId id : live_) calls.push_back(&graph_[id]);
    for (bool learned = true; learned;) {
      const LabelSweep sweep = sweep_rules(graph_, graph_.tensors, calls, labels_);
      for (const auto& [call, must] : sweep.must_be_plain)
        if (has(labels_.tensors[must.tensor.index()].dims[must.dim], Mark::Cut))
          return refuse(*call, fmt::format("{} the cut dimension", must.why));
      if (sweep.stopped_at) return refuse(*sweep.stopped_at, sweep.problem.what);
      learned = sweep.learned;
      for (const Contribution& contribution : graph_.gradients)
        learned |=
            unify_tensors(labels_.tensors[contribution.parameter.index()], labels_.tensors[contribution.value.index()]);
    }
    for (TensorLabels& tensor : labels_.tensors) settle(tensor);
    return Ok{};
  }

  /// A bias inside a product over what is cut is added behind the sum, once.
  ///   before:  y = addmm(b, x, w)        after:  p = mm(x, w); y = add(p, b)
  void part_biases() {
    const auto operator_named = [&](std::string_view name) {
      for (size_t i = 0; i < graph_.operators.size(); ++i)
        if (graph_.operators[i].name == name) return OperatorId(i);
      return OperatorId();
    };
    const OperatorId mm = operator_named("aten::mm"), add = operator_named("aten::add.Tensor");
    const auto is_one = [](const Argument& argument) {
      const auto* whole = std::get_if<int64_t>(&argument);
      const auto* number = std::get_if<double>(&argument);
      return (whole && *whole == 1) || (number && *number == 1);
    };
    std::vector<Call> calls;
    std::vector<CallId> place(graph_.calls.size());  // new ids of old calls
    std::set<TensorId> fresh;
    for (size_t c = 0; c < graph_.calls.size(); ++c) {
      Call call = std::move(graph_.calls[c]);
      if (!call.backward && base_name(graph_[call.op]) == "addmm" && is_one(call.arguments[3]) &&
          is_one(call.arguments[4])) {
        const TensorId result = std::get<TensorId>(call.results[0]);
        if (sums_over(graph_, labels_, call, result, Mark::Cut)) {
          GraphTensor product = graph_[result];
          product.storage = StorageId(graph_.storages.size());
          product.producer = CallId(calls.size());
          const TensorId id(graph_.tensors.size());
          graph_.storages.push_back({graph_[graph_[result].storage].bytes, id});
          graph_.tensors.push_back(std::move(product));
          const TensorLabels labels = labels_.tensors[result.index()];
          labels_.tensors.push_back(labels);
          fresh.insert(id);
          Call first = call;
          first.op = mm;
          first.arguments = {call.arguments[1], call.arguments[2]};
          first.results = {id};
          product_of_[CallId(calls.size() + 1)] = CallId(calls.size());
          calls.push_back(std::move(first));
          call.op = add;
          call.arguments = {id, call.arguments[0], int64_t{1}};
        }
      }
      place[c] = CallId(calls.size());
      calls.push_back(std::move(call));
    }
    if (fresh.empty()) {
      graph_.calls = std::move(calls);
      return;
    }
    for (size_t t = 0; t < graph_.tensors.size(); ++t)
      if (GraphTensor& tensor = graph_.tensors[t]; tensor.producer.valid() && !fresh.contains(TensorId(t)))
        tensor.producer = place[tensor.producer.index()];
    for (Call& call : calls)
      if (call.forward.valid()) call.forward = place[call.forward.index()];
    graph_.calls = std::move(calls);
    live_ = live_calls(graph_);
  }

  // ---- regions

  bool touches_cut(const Call& call) const {
    bool found = false;
    const auto look = [&](TensorId id) { found = found || has(labels_.tensors[id.index()], Mark::Cut); };
    each_tensor(call.arguments, look);
    each_tensor(call.results, look);
    return found;
  }
  bool has_partial(const Call& call) const {
    bool found = false;
    each_tensor(call.arguments, [&](TensorId id) { found = found || labels_.tensors[id.index()].sums_divided; });
    return found;
  }

  bool is_region(int segment) const {
    const ScopeId scope = graph_.segments[static_cast<size_t>(segment)].scope;
    return scope.valid() && graph_[scope].cut;
  }

  /// Parts of sums stay such through views, and where only parts are added; everything else waits for the whole. In
  /// backward of a region all that is linear keeps them, so that gradients of whole parameters are summed once.
  void follow_sums(CallId id) {
    static const std::set<std::string_view> carrying = {"view",    "_unsafe_view", "t",       "transpose", "permute",
                                                        "reshape", "unsqueeze",    "squeeze", "alias",     "detach",
                                                        "clone",   "_to_copy",     "add",     "add_",      "sum"};
    const Call& call = graph_[id];
    const bool in_region = call.backward && call.forward.valid() && is_region(graph_[call.forward].segment);
    const bool carries = has_partial(call) && (in_region || carrying.contains(base_name(graph_[call.op]))) &&
                         keeps_partial_sums(graph_, graph_.tensors, labels_, call);
    carries_[id.index()] = carries;
    inside_[id.index()] = carries || touches_cut(call);
    each_tensor(call.results, [&](TensorId result) {
      labels_.tensors[result.index()].sums_divided = carries || sums_over(graph_, labels_, call, result, Mark::Cut);
    });
  }

  /// Segments fall into what is outside and the regions, one after the other; backward follows forward.
  Checked split_segments() {
    inside_.assign(graph_.calls.size(), 0);
    carries_.assign(graph_.calls.size(), 0);
    for (const CallId id : live_)
      if (!graph_[id].backward) follow_sums(id);
    std::vector<std::vector<CallId>> forward(graph_.segments.size());
    for (size_t c = 0; c < graph_.calls.size(); ++c)
      if (!graph_.calls[c].backward) forward[static_cast<size_t>(graph_.calls[c].segment)].push_back(CallId(c));
    std::vector<Segment> old = std::move(graph_.segments);
    graph_.segments.clear();
    std::vector<int> first(old.size());  // of the new segments of an old one
    for (size_t s = 0; s < old.size(); ++s) {
      first[s] = static_cast<int>(graph_.segments.size());
      graph_.segments.push_back(old[s]);
      split(forward[s], old[s].scope);
    }
    for (Call& call : graph_.calls)
      if (call.backward)
        call.segment = call.forward.valid() ? graph_[call.forward].segment : first[static_cast<size_t>(call.segment)];
    std::set<TensorId> behind;  // what is made of sums that are complete only behind backward of a region
    std::set<TensorId> gradients;
    for (const Contribution& contribution : graph_.gradients) gradients.insert(contribution.value);
    for (const CallId id : live_) {
      Call& call = graph_.calls[id.index()];
      if (!call.backward) continue;
      follow_sums(id);
      if (inside_[id.index()]) {
        call.segment = region_near(call);
        continue;
      }
      bool waits = has_partial(call);
      each_tensor(call.arguments, [&](TensorId argument) { waits = waits || behind.contains(argument); });
      if (!waits || !is_region(call.segment)) continue;
      bool is_gradient = false;  // of a parameter that only the region has
      each_tensor(call.results, [&](TensorId result) {
        behind.insert(result);
        is_gradient = is_gradient || gradients.contains(result);
      });
      if (is_gradient) return refuse(call, "it uses a sum over the cut dimension before it is complete");
      --call.segment;  // what is outside comes before every region, so behind it in backward
    }
    return Ok{};
  }

  void split(const std::vector<CallId>& calls, ScopeId scope) {
    bool open = false;              // the last segment is a region
    std::set<TensorId> parts;       // of sums, made in it
    std::vector<CallId> pending;    // calls behind it, which belong to it if it goes on
    std::set<TensorId> unfinished;  // what they make of sums that are complete only behind it
    const auto assign = [&](CallId id) {
      graph_.calls[id.index()].segment = static_cast<int>(graph_.segments.size()) - 1;
    };
    const auto close = [&] {
      graph_.segments.push_back({scope});
      for (const CallId id : pending) assign(id);
      pending.clear();
      parts.clear();
      unfinished.clear();
      open = false;
    };
    for (const CallId id : calls) {
      bool waits = false;
      each_tensor(graph_[id].arguments, [&](TensorId argument) {
        waits = waits || unfinished.contains(argument) || (!carries_[id.index()] && parts.contains(argument));
      });
      if (!inside_[id.index()]) {
        if (!open) {
          assign(id);
          continue;
        }
        pending.push_back(id);
        if (waits) each_tensor(graph_[id].results, [&](TensorId result) { unfinished.insert(result); });
        continue;
      }
      if (open && (waits || !unfinished.empty())) close();
      if (!open) {
        graph_.scopes.push_back({scope, "cut", regions_[scope]++, {}, true});
        graph_.segments.push_back({ScopeId(graph_.scopes.size() - 1)});
        open = true;
      }
      for (const CallId waiting : pending) assign(waiting);
      pending.clear();
      assign(id);
      each_tensor(graph_[id].results, [&](TensorId result) {
        if (labels_.tensors[result.index()].sums_divided) parts.insert(result);
      });
    }
    if (open) close();
  }

  /// The region of a backward call: that of its forward, or of what it works on.
  int region_near(const Call& call) const {
    if (is_region(call.segment)) return call.segment;
    if (const auto product = product_of_.find(call.forward); product != product_of_.end())
      return graph_[product->second].segment;
    int found = call.segment;
    each_tensor(call.arguments, [&](TensorId argument) {
      const CallId producer = graph_[argument].producer;
      const TensorLabels& labels = labels_.tensors[argument.index()];
      if (producer.valid() && (labels.sums_divided || has(labels, Mark::Cut)) && is_region(graph_[producer].segment))
        found = graph_[producer].segment;
    });
    return found;
  }

  OperatorGraph graph_;
  BodyLabels labels_;
  std::vector<TensorId> parameters_;
  std::vector<CallId> live_;
  std::vector<char> inside_, carries_;   // by call: works on divided tensors or parts of sums; on the latter alone
  std::map<CallId, CallId> product_of_;  // by call that adds a bias
  std::map<ScopeId, int> regions_;
};

}  // namespace

Result<CutGraph> mark_cut_regions(OperatorGraph graph, const std::vector<CutSeed>& seeds) {
  return Cutter(std::move(graph)).cut(seeds);
}

}  // namespace piper
