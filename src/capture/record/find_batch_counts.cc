#include <ATen/core/Reduction.h>

#include <algorithm>
#include <optional>
#include <set>

#include "capture/record/batch_counts.h"
#include "capture/record/origin.h"
#include "capture/sharding/operator_rules.h"

namespace piper {
namespace {

constexpr auto mean_reduction = static_cast<int64_t>(at::Reduction::Mean);

/// What becomes of a tensor when the slice has more samples of the same kind.
struct Growth {
  bool sliced = false;   // it depends on the inputs
  bool total = false;    // it is made of sums and means over the slice
  bool learned = false;  // it depends on parameters, buffers or random numbers
  /// It grows with this power of the samples; none: the loss of a batch is not known from those of its slices.
  std::optional<int> power = 0;
};

/// `aten::div_.Tensor` is `div`.
std::string functional_name(const Operator& op) {
  std::string out = base_name(op);
  if (out.ends_with('_')) out.pop_back();
  return out;
}

bool is_any(const std::string& name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

class CountFinder {
 public:
  CountFinder(const OperatorGraph& graph, bool declared)
      : graph_(graph), declared_(declared), calls_(origin_of(graph, graph.loss).calls), growths_(graph.tensors.size()) {
    for (size_t t = 0; t < graph.tensors.size(); ++t) {
      const TensorKind kind = graph.tensors[t].kind;
      growths_[t].sliced = kind == TensorKind::Input;
      growths_[t].learned = kind == TensorKind::Parameter || kind == TensorKind::Buffer;
    }
    for (const CallId call : calls_) follow(call);
    roots_ = {graph.loss};
    if (!graph.reports) return;
    roots_.clear();
    each_tensor(graph_[graph_[graph.loss].producer].arguments, [&](TensorId number) { roots_.push_back(number); });
  }

  BatchCounts run() {
    for (const CallId id : calls_) {
      const Call& call = graph_[id];
      const std::string name = functional_name(graph_[call.op]);
      if (declared_ && !makes_loss(call)) continue;
      if (is_any(name, {"nll_loss_forward", "nll_loss2d_forward"}))
        add_labels(id);
      else if (name == "div")
        add_divisor(id, call.arguments[1]);
      else if (name == "reciprocal")
        add_divisor(id, call.arguments[0]);
    }
    find_those_of_loss();
    out_.whole_loss = divides_whole_loss();
    return std::move(out_);
  }

 private:
  Growth& of(TensorId id) { return growths_[id.index()]; }
  bool is_number(TensorId id) const { return graph_[id].layout.sizes.empty(); }
  bool makes_loss(const Call& call) const {
    const auto* result = std::get_if<TensorId>(&call.results[0]);
    return result && graph_[*result].storage == graph_[roots_[0]].storage;
  }
  int64_t integer(const Call& call, std::string_view name) const {
    const Argument* argument = find_argument(graph_, call, name);
    const auto* number = argument ? std::get_if<int64_t>(argument) : nullptr;
    return number ? *number : 0;
  }

  // ---- how tensors grow

  void follow(CallId id) {
    const Call& call = graph_[id];
    Growth out;
    std::vector<Growth> given;
    bool of_totals = true;
    each_tensor(call.arguments, [&](TensorId argument) {
      given.push_back(of(argument));
      out.sliced |= given.back().sliced;
      out.learned |= given.back().learned;
      of_totals &= !given.back().sliced || given.back().total;
    });
    out.learned |= call.random >= 0;
    each_tensor(call.results, [&](TensorId result) {
      out.total = out.sliced && (of_totals || is_number(result));
      out.power = out.sliced ? power_of(call, given, out) : 0;
      of(result) = out;
    });
  }
  std::optional<int> power_of(const Call& call, const std::vector<Growth>& given, const Growth& result) const {
    const std::string name = functional_name(graph_[call.op]);
    const bool reduces =
        result.total && !std::any_of(given.begin(), given.end(), [](const Growth& g) { return g.total; });
    if (reduces && is_any(name, {"sum", "count_nonzero"}))
      return given[0].power ? std::optional(*given[0].power + 1) : std::nullopt;
    if (reduces && find_argument(graph_, call, "reduction"))
      return integer(call, "reduction") == mean_reduction ? 0 : 1;
    if (name == "div") return combined(given, -1);
    if (name == "mul") return combined(given, 1);
    if (name == "reciprocal") return given[0].power && !result.learned ? std::optional(-*given[0].power) : std::nullopt;
    if (is_any(name, {"add", "sub", "stack", "cat"})) return common(given);
    if (name == "where" && given.size() == 3 && !given[0].learned) return common({given[1], given[2]});
    if (is_linear(name) || (!result.learned && is_limit(name))) return given[0].power;
    // anything may be computed of each sample, nothing else of what all samples gave
    const bool plain =
        std::all_of(given.begin(), given.end(), [](const Growth& g) { return g.power == 0 && !g.total; });
    return plain && (!result.total || reduces) ? std::optional(0) : std::nullopt;
  }
  /// Of a product or quotient with a second number, or one that the model's code has. At most one of both is what the
  /// model has learned from the whole slice. Whether a fixed divisor of a sum is the size of the slice is not known.
  static std::optional<int> combined(const std::vector<Growth>& given, int sign) {
    const Growth second = given.size() > 1 ? given[1] : Growth();
    if (!given[0].power || !second.power) return std::nullopt;
    const bool both = given[0].total && second.total && given[0].learned && second.learned;
    if (both || (sign < 0 && second.total && second.learned)) return std::nullopt;
    if (sign < 0 && !second.sliced && *given[0].power != 0) return std::nullopt;
    return *given[0].power + sign * *second.power;
  }
  /// Of a sum: a mean over samples stays one, whatever else is added to it.
  static std::optional<int> common(const std::vector<Growth>& given) {
    std::optional<int> out;
    for (const Growth& one : given)
      if (one.sliced && one.power && out.value_or(1) != 0) out = one.power;
    return out;
  }
  static bool is_linear(const std::string& name) {
    return is_any(name, {"sum", "mean", "neg", "view", "_unsafe_view", "reshape", "expand", "squeeze", "unsqueeze",
                         "alias", "detach", "clone", "_to_copy", "to", "select", "slice", "lift_fresh_copy"});
  }
  static bool is_limit(const std::string& name) {
    return is_any(name, {"clamp", "clamp_min", "clamp_max", "maximum", "minimum"});
  }

  // ---- what is counted

  /// Whether only multiples and sums of what the call makes enter the loss, as a mean over samples.
  bool enters_as_mean(CallId from) {
    std::set<TensorId> carried;
    const auto carry = [&](const Call& call) { each_tensor(call.results, [&](TensorId id) { carried.insert(id); }); };
    carry(graph_[from]);
    for (const CallId id : calls_) {
      if (id <= from) continue;
      bool given = false;
      each_tensor(graph_[id].arguments, [&](TensorId argument) { given |= carried.contains(argument); });
      if (given) carry(graph_[id]);
    }
    for (const TensorId id : carried)
      if (!of(id).power && id != graph_.loss && reaches_loss(id)) return false;
    return std::all_of(roots_.begin(), roots_.end(),
                       [&](TensorId root) { return !carried.contains(root) || of(root).power == 0; });
  }
  bool reaches_loss(TensorId id) {
    if (!wanted_.empty()) return wanted_.contains(id);
    wanted_.insert(graph_.loss);
    for (const CallId call : calls_)
      each_tensor(graph_[call].arguments, [&](TensorId argument) { wanted_.insert(argument); });
    return wanted_.contains(id);
  }
  void add(CallId call, int8_t element, std::variant<CountedLabels, CountedDivisor> what) {
    if (!declared_ && !enters_as_mean(call)) return refuse(call);
    out_.counts.push_back({"loss.count." + std::to_string(out_.counts.size()), element, std::move(what)});
  }
  void refuse(CallId id) {
    const Call& call = graph_[id];
    out_.uncounted.push_back(
        {graph_[call.op].name, scope_name(graph_, graph_.segments[static_cast<size_t>(call.segment)].scope)});
  }

  void add_labels(CallId id) {
    const Call& call = graph_[id];
    if (integer(call, "reduction") != mean_reduction) return;
    const TensorId labels = std::get<TensorId>(*find_argument(graph_, call, "target"));
    CountedLabels found{id, computable(graph_, labels, id), {}, integer(call, "ignore_index")};
    const auto* weights = std::get_if<TensorId>(find_argument(graph_, call, "weight"));
    if (weights && weights->valid()) {
      if (of(*weights).sliced || of(*weights).learned) return refuse(id);
      found.weights = computable(graph_, *weights, id);
    }
    if (of(labels).learned) return refuse(id);
    add(id, graph_[std::get<TensorId>(call.results[0])].layout.element, std::move(found));
  }
  void add_divisor(CallId id, const Argument& argument) {
    const auto* divisor = std::get_if<TensorId>(&argument);
    if (!divisor || !divisor->valid()) return;
    const Growth& growth = of(*divisor);
    if (!growth.sliced || growth.learned || element_count(graph_[*divisor].layout) != 1) return;
    if (!is_number(*divisor)) {
      if (graph_[*divisor].producer.valid() && reduces_samples(*divisor)) refuse(id);
      return;
    }
    for (const BatchCount& known : out_.counts)
      if (const auto* other = std::get_if<CountedDivisor>(&known.what); other && other->divisor.tensor == *divisor)
        return;
    const std::optional<std::vector<CallId>> totals = totals_of(*divisor, id);
    if (!totals || (growth.power != 0 && growth.power != 1)) return refuse(id);
    CountedDivisor found{id, {}, {}, growth.power == 1};
    std::vector<TensorId> given;
    for (const CallId total : *totals) {
      given.push_back(std::get<TensorId>(graph_[total].results[0]));
      found.totals.push_back(computable(graph_, given.back(), CallId(total.index() + 1)));
    }
    found.divisor = computable(graph_, *divisor, id, given);
    add(id, graph_[std::get<TensorId>(graph_[id].results[0])].layout.element, std::move(found));
  }
  /// Not of a single sample.
  bool reduces_samples(TensorId id) const {
    return !graph_.inputs.empty() && graph_[graph_.inputs[0]].layout.sizes[0] > 1 &&
           element_count(graph_[id].layout) == 1;
  }
  /// The sums and means over the slice that it is a function of; none: it has other numbers of the slice in it.
  std::optional<std::vector<CallId>> totals_of(TensorId divisor, CallId before) {
    std::set<TensorId> wanted = {divisor};
    std::vector<CallId> out;
    for (auto id = calls_.rbegin(); id != calls_.rend(); ++id) {
      if (*id >= before) continue;
      const Call& call = graph_[*id];
      bool makes = false, of_totals = true;
      each_tensor(call.results, [&](TensorId result) { makes |= wanted.contains(result); });
      if (!makes) continue;
      each_tensor(call.arguments, [&](TensorId argument) { of_totals &= !of(argument).sliced || of(argument).total; });
      const std::string name = functional_name(graph_[call.op]);
      if (!of_totals && !is_any(name, {"sum", "mean", "count_nonzero"})) return std::nullopt;
      if (!of_totals)
        out.push_back(*id);
      else
        each_tensor(call.arguments, [&](TensorId argument) {
          if (of(argument).sliced) wanted.insert(argument);
        });
    }
    return out;
  }

  // ---- what else is in the loss

  enum class Divided { No, Once, Otherwise };  // by counts

  /// Whether the loss is a sum of parts, each of them divided by one of the counts.
  bool divides_whole_loss() const {
    std::vector<Divided> divided(graph_.tensors.size(), Divided::No);
    for (const CallId id : calls_) {
      const Divided result = result_of(id, divided);
      each_tensor(graph_[id].results, [&](TensorId tensor) { divided[tensor.index()] = result; });
    }
    return divided[roots_[0].index()] == Divided::Once;
  }
  Divided result_of(CallId id, const std::vector<Divided>& divided) const {
    const Call& call = graph_[id];
    const std::string name = functional_name(graph_[call.op]);
    int once = 0, others = 0, constants = 0;
    bool otherwise = false;
    each_tensor(call.arguments, [&](TensorId argument) {
      const Growth& growth = growths_[argument.index()];
      const Divided given = divided[argument.index()];
      otherwise |= given == Divided::Otherwise;
      if (given == Divided::Once)
        ++once;
      else
        ++(growth.sliced || growth.learned ? others : constants);
    });
    if (otherwise) return Divided::Otherwise;
    if (divides_by_count(id)) return once == 0 ? Divided::Once : Divided::Otherwise;
    if (once == 0) return Divided::No;
    if (is_any(name, {"add", "sub", "stack", "cat"})) return others == 0 ? Divided::Once : Divided::Otherwise;
    const auto* first = std::get_if<TensorId>(&call.arguments[0]);
    const bool is_first = first && divided[first->index()] == Divided::Once;
    const bool one = once == 1 && (is_linear(name) || name == "mul" || (name == "div" && is_first));
    return one ? Divided::Once : Divided::Otherwise;
  }
  bool divides_by_count(CallId id) const {
    return std::any_of(out_.counts.begin(), out_.counts.end(),
                       [&](const BatchCount& count) { return divides_by(id, count); });
  }
  bool divides_by(CallId id, const BatchCount& count) const {
    if (const auto* labels = std::get_if<CountedLabels>(&count.what)) return labels->loss == id;
    const Call& call = graph_[id];
    const std::string name = functional_name(graph_[call.op]);
    if (name != "div" && name != "reciprocal") return false;
    return call.arguments[name == "div" ? 1 : 0] == Argument(std::get<CountedDivisor>(count.what).divisor.tensor);
  }
  /// Metrics may count otherwise.
  void find_those_of_loss() {
    const std::vector<CallId> calls = origin_of(graph_, roots_[0]).calls;
    for (BatchCount& count : out_.counts)
      count.in_loss = std::any_of(calls.begin(), calls.end(), [&](CallId id) { return divides_by(id, count); });
  }

  const OperatorGraph& graph_;
  const bool declared_;
  const std::vector<CallId> calls_;  // that the loss takes, all of them forward
  std::vector<Growth> growths_;      // by tensor
  std::vector<TensorId> roots_;      // the loss, and metrics
  std::set<TensorId> wanted_;        // what those calls read
  BatchCounts out_;
};

}  // namespace

BatchCounts find_batch_counts(const OperatorGraph& graph, bool declared) {
  return CountFinder(graph, declared).run();
}

}  // namespace piper
