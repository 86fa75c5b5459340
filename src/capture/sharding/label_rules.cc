#include "capture/sharding/label_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "base/invariant.h"
#include "capture/sharding/operator_rules.h"

namespace piper {
namespace {

struct RuleResult {
  bool learned = false;
  std::optional<LabelProblem> problem;
  std::vector<MustBePlain> must_be_plain;
};

/// One application of one rule.
class Rule {
 public:
  Rule(const OperatorGraph& graph, const std::vector<GraphTensor>& tensors, const Call& call, BodyLabels& labels)
      : graph_(graph), tensors_(tensors), call_(call), labels_(labels) {
    each_tensor(call.arguments, [&](TensorId id) { in_.push_back(id); });
    each_tensor(call.results, [&](TensorId id) { out_.push_back(id); });
  }

  RuleResult apply() {
    const int64_t before = known();
    follow();
    const int64_t after = known();
    invariant(after >= before, "a rule takes nothing away of what is known");
    result_.learned = after > before;
    return std::move(result_);
  }

 private:
  int64_t known() {
    int64_t sum = 0;
    for (const auto* list : {&in_, &out_})
      for (const TensorId id : *list) sum += knowledge(of(id));
    return sum;
  }

  void follow() {
    if (out_.empty() || !has_dimensions()) return;
    const Operator& op = graph_[call_.op];
    const std::string name = base_name(op);
    const bool by_blocks = labels_.tp && !labels_.tokens;  // tokens stay in their order
    switch (rule_of(op).dims) {
      case DimRule::Unknown:
        return refuse_labels(name);
      case DimRule::Pointwise:
        return pointwise();
      case DimRule::View:
        return whole(in_[0], out_[0]);
      case DimRule::Factory:
        return;
      case DimRule::Expand:
        return broadcast(in_[0], out_[0]);
      case DimRule::Permute:
        return permute(name);
      case DimRule::Complex:
        return take_apart();
      case DimRule::Repeat:
        return repeat();
      case DimRule::Pad:
        return pad();
      case DimRule::Flip:
        return flip();
      case DimRule::Product:
        return product(name);
      case DimRule::GroupedProduct:
        return grouped_product(name);
      case DimRule::Convolution:
        return std::get<int64_t>(argument("groups")) > 1 ? convolve() : refuse_labels(name);
      case DimRule::Reduction:
        return reduce(name);
      case DimRule::Extreme:
        if (find_argument(graph_, call_, "dim")) return take_extreme(name);
        return op.pointwise ? pointwise() : refuse_labels(name);
      case DimRule::AlongOne:
        return along(name);
      case DimRule::Norm:
        return normalise();
      case DimRule::Attention:
        return attend();
      case DimRule::Repeated:
        for (const size_t d : {0, 2, 3}) same(of(in_[0]).dims[d], of(out_[0]).dims[d]);
        return;
      case DimRule::Embedding:
        return embed(name == "embedding");
      case DimRule::Loss:
        return pick(name == "nll_loss_forward");
      case DimRule::TakeRows:
        return take_rows(name == "take_rows");
      case DimRule::TakeColumns:
        for (const TensorId id : {in_[0], in_[1]}) same(of(id).dims[0], of(out_[0]).dims[0]);
        return;
      case DimRule::Logits:
        return make_logits(name);
      case DimRule::Part:
        return narrow(name);
      case DimRule::PartBackward:
        return put_part(name);
      case DimRule::Join:
        return join(name);
      case DimRule::Gather:
        return by_blocks ? gather(name) : refuse_labels(name);
      case DimRule::Selection:
        return by_blocks ? pick_out(name, in_[0], out_[0]) : refuse_labels(name);
      case DimRule::Insertion:
        if (!by_blocks) return refuse_labels(name);
        for (const TensorId out : out_) whole(in_[0], out);
        return pick_out(name, in_[0], in_.back());
    }
  }
  /// Numbers have none to speak about, whatever their operators are called with.
  bool has_dimensions() const {
    const auto has = [&](TensorId id) { return rank(id) > 0; };
    return std::ranges::any_of(in_, has) || std::ranges::any_of(out_, has);
  }
  void pointwise() {
    for (const TensorId out : out_)
      for (const TensorId in : in_) broadcast(in, out);
  }

  TensorLabels& of(TensorId id) { return labels_.tensors[id.index()]; }
  size_t rank(TensorId id) const { return tensors_[id.index()].layout.sizes.size(); }
  int64_t size(TensorId id, size_t d) const { return tensors_[id.index()].layout.sizes[d]; }
  const Argument& argument(std::string_view name) const {
    const Argument* found = find_argument(graph_, call_, name);
    invariant(found, "an operator has the arguments its rule names");
    return *found;
  }
  size_t dim(std::string_view name, size_t rank) const { return normal(std::get<int64_t>(argument(name)), rank); }
  static size_t normal(int64_t dim, size_t rank) {
    return static_cast<size_t>(dim < 0 ? dim + static_cast<int64_t>(rank) : dim);
  }

  void match(const std::vector<Factors*>& a, const std::vector<Factors*>& b) {
    if (result_.problem) return;
    Factor left, right;
    note(unify(a, b, &left, &right), left, right);
  }
  void note(Match match, const Factor& left, const Factor& right) {
    switch (match) {
      case Match::Same:
      case Match::Learned:
        break;
      case Match::Conflict:
        result_.problem = {fmt::format("{} meets {}", describe(left), describe(right))};
        break;
      case Match::Straddles:
        result_.problem = {labels_.tp ? "a border lies inside of what is sharded"
                                      : "a view cuts through the expert or capacity dimension"};
        break;
    }
  }
  void same(Factors& a, Factors& b) { match({&a}, {&b}); }
  static std::vector<Factors*> all(TensorLabels& labels) {
    std::vector<Factors*> dims;
    for (Factors& dim : labels.dims) dims.push_back(&dim);
    return dims;
  }
  void whole(TensorId a, TensorId b) { match(all(of(a)), all(of(b))); }
  /// Aligned at the last dimension; a size of 1 matches anything.
  void broadcast(TensorId a, TensorId b) {
    if (a == b) return;
    auto &x = of(a).dims, &y = of(b).dims;
    for (size_t i = 1; i <= std::min(x.size(), y.size()); ++i) {
      Factors &p = x[x.size() - i], &q = y[y.size() - i];
      if (!p.empty() && !q.empty()) same(p, q);
    }
  }
  void forbid(TensorId tensor, size_t dim, std::string why) {
    if (dim < rank(tensor)) result_.must_be_plain.push_back({tensor, dim, std::move(why)});
  }

  void permute(const std::string& name) {
    const size_t r = rank(out_[0]);
    std::vector<size_t> from(r);
    std::iota(from.begin(), from.end(), size_t{0});
    if (name == "t") {
      if (r == 2) std::swap(from[0], from[1]);
    } else if (name == "transpose") {
      std::swap(from[dim("dim0", r)], from[dim("dim1", r)]);
    } else {
      const Ints& dims = std::get<Ints>(argument("dims"));
      for (size_t i = 0; i < r; ++i) from[i] = normal(dims[i], r);
    }
    for (size_t i = 0; i < r; ++i) same(of(out_[0]).dims[i], of(in_[0]).dims[from[i]]);
  }

  /// Complex numbers, and their real and imaginary parts as one dimension more.
  void take_apart() {
    const TensorId whole = rank(in_[0]) < rank(out_[0]) ? in_[0] : out_[0];
    const TensorId parts = whole == in_[0] ? out_[0] : in_[0];
    for (size_t d = 0; d < rank(whole); ++d) same(of(whole).dims[d], of(parts).dims[d]);
    forbid(parts, rank(whole), "complex numbers along");
  }

  /// A dimension that is repeated has the repetitions outside of what it had.
  void repeat() {
    const Ints& counts = std::get<Ints>(argument("repeats"));
    const size_t more = rank(out_[0]) - rank(in_[0]);
    for (size_t d = 0; d < rank(in_[0]); ++d) {
      const int64_t count = counts[d + more];
      if (labels_.tokens && count > 1) forbid(in_[0], d, "repeat of");  // they would no longer be in their order
      Factors times = count > 1 ? Factors{{count}} : Factors{};
      match({&of(out_[0]).dims[d + more]}, {&times, &of(in_[0]).dims[d]});
      if (is_labelled(times)) forbid(out_[0], d + more, "repeat along");
    }
  }

  /// From the last dimension on, how much is added before and behind.
  void pad() {
    const Ints& added = std::get<Ints>(argument("pad"));
    for (size_t d = 0; d < rank(out_[0]); ++d) {
      const size_t pair = 2 * (rank(out_[0]) - 1 - d);
      if (pair >= added.size() || (added[pair] == 0 && added[pair + 1] == 0)) {
        same(of(in_[0]).dims[d], of(out_[0]).dims[d]);
      } else {
        forbid(in_[0], d, "padding of");
        forbid(out_[0], d, "padding of");
      }
    }
  }

  void flip() {
    whole(in_[0], out_[0]);
    for (const int64_t d : std::get<Ints>(argument("dims"))) forbid(in_[0], normal(d, rank(in_[0])), "flip along");
  }

  void product(const std::string& name) {
    const bool adds = name == "addmm" || name == "baddbmm", batched = name == "bmm" || name == "baddbmm";
    const TensorId a = in_[adds ? 1 : 0], b = in_[adds ? 2 : 1], out = out_[0];
    const size_t row = batched ? 1 : 0, column = row + 1;
    if (batched) {
      same(of(a).dims[0], of(b).dims[0]);
      same(of(a).dims[0], of(out).dims[0]);
    }
    same(of(a).dims[row], of(out).dims[row]);
    same(of(b).dims[column], of(out).dims[column]);
    same(of(a).dims[column], of(b).dims[row]);
    if (adds) broadcast(in_[0], out);
  }

  /// Groups of rows by themselves. Otherwise rows stay where they are, because groups are counted by them.
  void grouped_product(const std::string& name) {
    const TensorId a = in_[0], b = in_[1], out = out_[0];
    const bool matrices = rank(b) == 3;
    same(of(a).dims[matrices ? 1 : 0], matrices ? of(b).dims[1] : of(out).dims[1]);
    same(of(b).dims.back(), of(out).dims.back());
    if (!labels_.tp) {
      same(of(a).dims[matrices ? 0 : 1], matrices ? of(out).dims[0] : of(b).dims[0]);
      same(of(matrices ? b : out).dims[0], of(in_[2]).dims[0]);
      return;
    }
    forbid(a, matrices ? 0 : 1, name + " of rows of");
    forbid(matrices ? b : out, 0, name + " of groups of");
    forbid(matrices ? out : b, 0, name + " of rows of");
  }

  void reduce(const std::string& name) {
    const TensorId in = in_[0], out = out_[0];
    std::set<size_t> over;
    bool keeps = false;
    if (const Argument* dims = find_argument(graph_, call_, "dim"); dims && std::holds_alternative<Ints>(*dims)) {
      for (const int64_t d : std::get<Ints>(*dims)) over.insert(normal(d, rank(in)));
      keeps = std::get<bool>(argument("keepdim"));
    }
    if (over.empty())
      for (size_t d = 0; d < rank(in); ++d) over.insert(d);
    size_t kept = 0;
    for (size_t d = 0; d < rank(in); ++d) {
      if (!over.contains(d)) {
        same(of(in).dims[d], of(out).dims[kept++]);
        continue;
      }
      if (name != "sum" && !(name == "amax" && labels_.tp)) forbid(in, d, name + " over");
      if (keeps) ++kept;
    }
  }

  /// The greatest along a dimension, and where it is.
  void take_extreme(const std::string& name) {
    const TensorId in = in_[0];
    const size_t over = dim("dim", rank(in));
    const bool keeps = std::get<bool>(argument("keepdim"));
    for (const TensorId out : out_) {
      size_t kept = 0;
      for (size_t d = 0; d < rank(in); ++d) {
        if (d != over) same(of(in).dims[d], of(out).dims[kept]);
        if (d != over || keeps) ++kept;
      }
    }
    forbid(in, over, name + " over");
  }

  /// Along one dimension; in the others every index stands where what it names stands.
  void gather(const std::string& name) {
    const size_t over = dim("dim", rank(in_[0]));
    for (const auto* list : {&in_, &out_})
      for (const TensorId id : *list)
        for (size_t d = 0; d < rank(id); ++d)
          if (d == over)
            forbid(id, d, name + " along");
          else if (size(id, d) == size(in_[0], d))
            same(of(in_[0]).dims[d], of(id).dims[d]);
          else
            forbid(id, d, name + " of a part of");
  }

  /// Indices stand for one dimension, or several that follow each other: what is picked out has theirs instead.
  void pick_out(const std::string& name, TensorId from, TensorId picked) {
    size_t first = 0, count = 1, own = 1;
    if (find_argument(graph_, call_, "dim")) {
      first = dim("dim", rank(from));
    } else {
      const auto& indices = std::get<TensorList>(argument("indices")).tensors;
      const auto is_there = [](TensorId id) { return id.valid(); };
      const auto begin = std::find_if(indices.begin(), indices.end(), is_there);
      const auto end = std::find_if_not(begin, indices.end(), is_there);
      if (begin == indices.end() || std::any_of(end, indices.end(), is_there)) return refuse_labels(name);
      first = static_cast<size_t>(begin - indices.begin());
      count = static_cast<size_t>(end - begin);
      own = 0;
      for (auto index = begin; index != end; ++index) own = std::max(own, rank(*index));
    }
    if (rank(picked) != rank(from) - count + own) return refuse_labels(name);  // values that are broadcast
    for (size_t d = 0; d < first; ++d) same(of(from).dims[d], of(picked).dims[d]);
    for (size_t d = first + count; d < rank(from); ++d) same(of(from).dims[d], of(picked).dims[d - count + own]);
    for (size_t d = first; d < first + count; ++d) forbid(from, d, name + " by indices of");
    for (size_t d = first; d < first + own; ++d) forbid(picked, d, name + " by indices of");
    for (const TensorId id : in_)
      if (id != from && id != picked)
        for (size_t d = 0; d < rank(id); ++d) forbid(id, d, name + " by indices of");
  }

  void along(const std::string& name) {
    for (const TensorId in : in_) {
      if (name != "topk")
        for (const TensorId out : out_) broadcast(in, out);
      forbid(in, dim("dim", rank(in)), name + " along");
    }
  }

  void normalise() {
    const TensorId x = std::get<TensorId>(argument("input"));
    const size_t over = std::get<Ints>(argument("normalized_shape")).size();
    for (size_t d = rank(x) - over; d < rank(x); ++d) forbid(x, d, "normalisation over");
    const auto aligned = [&](const Argument& other) { each_tensor(other, [&](TensorId id) { broadcast(id, x); }); };
    for (const char* other : {"weight", "bias", "mean", "rstd"})
      if (const Argument* found = find_argument(graph_, call_, other)) aligned(*found);
    if (const Argument* gradient = find_argument(graph_, call_, "grad_out")) whole(std::get<TensorId>(*gradient), x);
    for (const Argument& result : call_.results) aligned(result);
  }

  /// Heads by themselves; several of the queries may share one of the keys.
  void attend() {
    const TensorId query = std::get<TensorId>(argument("query"));
    Factors& heads = of(query).dims[1];
    for (const auto* list : {&in_, &out_})
      for (const TensorId id : *list) {
        if (rank(id) < 3) continue;
        same(of(query).dims[0], of(id).dims[0]);
        const int64_t own = tensors_[id.index()].layout.sizes[1], all = tensors_[query.index()].layout.sizes[1];
        if (own == all) {
          same(heads, of(id).dims[1]);
        } else if (own > 1) {
          Factors group = {{all / own, Mark::Plain}};
          match({&heads}, {&of(id).dims[1], &group});
        }
        for (size_t d = 2; d < rank(id); ++d) {
          if (labels_.context && d == 2 && goes_with_queries(id))
            same(of(query).dims[2], of(id).dims[2]);
          else
            forbid(id, d, "attention along");
        }
      }
  }
  bool goes_with_queries(TensorId id) const {
    for (const char* role : {"key", "value"})
      if (std::get<TensorId>(argument(role)) == id) return false;
    const bool backward = find_argument(graph_, call_, "grad_out") != nullptr;
    return !backward || (id != out_[1] && id != out_[2]);
  }

  /// Groups of channels by themselves, in values [samples, channels, ...] and weights [channels, ...].
  void convolve() {
    const int64_t count = std::get<int64_t>(argument("groups"));
    Factors groups = {{count}};
    const auto apart = [&](const Argument& role, size_t channels) {
      each_tensor(role, [&](TensorId id) {
        const int64_t each = size(id, channels) / count;
        Factors group = each > 1 ? Factors{{each, Mark::Plain}} : Factors{};
        match({&of(id).dims[channels]}, {&groups, &group});
        for (size_t d = 0; d < rank(id); ++d)
          if (d != channels) forbid(id, d, "convolution along");
      });
    };
    const bool forward = call_.results.size() == 1;
    for (int round = 0; round < 2; ++round) {  // what one of them says, then to all
      apart(argument("input"), 1);
      apart(argument("weight"), 0);
      if (forward) apart(argument("bias"), 0);
      if (!forward) apart(argument("grad_output"), 1);
      for (size_t i = 0; i < call_.results.size(); ++i) apart(call_.results[i], i == 0 ? 1 : 0);
    }
  }

  /// Rows that indices name: every index by itself.
  void embed(bool forward) {
    const TensorId weight = forward ? std::get<TensorId>(argument("weight")) : out_[0],
                   rows = forward ? out_[0] : std::get<TensorId>(argument("grad_output")),
                   indices = std::get<TensorId>(argument("indices"));
    look_up(weight, indices, rows);
    forbid(weight, 0, "embedding by rows of");
  }
  /// The same of a part of the rows.
  void take_rows(bool forward) {
    const TensorId table = forward ? in_[0] : out_[0], rows = forward ? out_[0] : in_[0];
    look_up(table, in_[1], rows);
  }
  void look_up(TensorId table, TensorId indices, TensorId rows) {
    for (size_t d = 0; d < rank(indices); ++d) same(of(indices).dims[d], of(rows).dims[d]);
    same(of(table).dims[1], of(rows).dims[rank(indices)]);
  }

  /// Of every token by itself; of a part of the words there are operators of their own. Where only some chunks divide
  /// tokens, blocks of all of them are made.
  void make_logits(const std::string& name) {
    const TensorId table = std::get<TensorId>(argument("table")), hidden = std::get<TensorId>(argument("hidden"));
    same(of(table).dims[1], of(hidden).dims[1]);
    forbid(hidden, 1, "logits over");
    if (labels_.tokens && !labels_.context) forbid(hidden, 0, "logits of");
    if (name == "logits_in_blocks") forbid(table, 0, "logits of");
    for (const auto* list : {&in_, &out_})
      for (const TensorId id : *list)
        if (rank(id) == 1) same(of(hidden).dims[0], of(id).dims[0]);
    if (name != "logits_in_blocks_backward") return;
    each_tensor(call_.results[0], [&](TensorId id) { whole(hidden, id); });
    each_tensor(call_.results[1], [&](TensorId id) { whole(table, id); });
  }

  /// A number of every row.
  void pick(bool forward) {
    const TensorId scores = std::get<TensorId>(argument("self")), targets = std::get<TensorId>(argument("target")),
                   values = forward ? out_[0] : std::get<TensorId>(argument("grad_output"));
    if (!forward) whole(scores, out_[0]);
    const bool rows = rank(targets) > 0;  // otherwise the scores are one
    if (rows) same(of(scores).dims[0], of(targets).dims[0]);
    if (rows && rank(values) > 0)
      same(of(scores).dims[0], of(values).dims[0]);
    else if (rows && !labels_.context)
      forbid(scores, 0, "a mean of losses over");
    for (size_t d = rows ? 1 : 0; d < rank(scores); ++d) forbid(scores, d, "nll_loss along");
    if (const Argument& weight = argument("weight"); std::holds_alternative<TensorId>(weight))
      each_tensor(weight, [&](TensorId id) { forbid(id, 0, "nll_loss along"); });
  }

  /// A dimension of `part` is what lies in one of `whole` from `start` on. False: nothing can be said.
  bool is_block(TensorId whole, size_t d, TensorId part, size_t own, int64_t start) {
    if (!labels_.tp || labels_.tokens || size(part, own) <= 1) return false;
    if (result_.problem) return true;
    Factor left, right;
    const Match match = unify_block(of(whole).dims[d], of(part).dims[own], start, &left, &right);
    if (match == Match::Conflict)
      result_.problem = {"one block of the dimension would be sharded and another whole"};
    else
      note(match, left, right);
    return true;
  }
  /// It has every so manieth element of the whole: one of each group of `step`.
  bool is_every(TensorId whole, size_t d, TensorId part, size_t own, int64_t start, int64_t step) {
    if (!labels_.tp || labels_.tokens || start >= step || size(part, own) * step != size(whole, d)) return false;
    Factors group = {{step, Mark::Plain}};
    match({&of(whole).dims[d]}, {&of(part).dims[own], &group});
    return true;
  }
  /// A slice, or where its gradient is put.
  bool is_slice(TensorId whole, size_t d, TensorId part) {
    const auto number = [&](const char* name, int64_t otherwise) {
      const Argument* found = find_argument(graph_, call_, name);
      const auto* value = found ? std::get_if<int64_t>(found) : nullptr;
      return value ? *value : otherwise;
    };
    const int64_t step = number("step", 1);
    int64_t start = number("start", 0);
    if (start < 0) start = std::max<int64_t>(0, start + size(whole, d));
    return step == 1 ? is_block(whole, d, part, d, start) : is_every(whole, d, part, d, start, step);
  }

  void narrow(const std::string& name) {
    const TensorId in = in_[0];
    const size_t d = dim("dim", rank(in));
    const bool drops = name == "select" || name == "unbind";
    int64_t start = 0;  // of the next of several parts
    for (const TensorId out : out_) {
      size_t kept = 0;
      for (size_t i = 0; i < rank(in); ++i)
        if (i != d)
          same(of(in).dims[i], of(out).dims[kept++]);
        else if (!drops)
          ++kept;
      if (!drops && size(out, d) == size(in, d)) {
        same(of(in).dims[d], of(out).dims[d]);
        continue;
      }
      const bool said = !drops && (name == "slice" ? is_slice(in, d, out) : is_block(in, d, out, d, start));
      if (!drops) start += size(out, d);
      if (said) continue;
      forbid(in, d, name + " of");
      if (!drops) forbid(out, d, name + " of");
    }
  }

  void put_part(const std::string& name) {
    const TensorId in = in_[0], out = out_[0];
    const size_t d = dim("dim", rank(out));
    const bool drops = name == "select_backward";
    size_t kept = 0;
    for (size_t i = 0; i < rank(out); ++i)
      if (i != d)
        same(of(out).dims[i], of(in).dims[kept++]);
      else if (!drops)
        ++kept;
    if (!drops && size(out, d) == size(in, d))
      same(of(in).dims[d], of(out).dims[d]);
    else if (drops || !is_slice(out, d, in))
      forbid(out, d, name + " of");
  }

  void join(const std::string& name) {
    const TensorId out = out_[0];
    const size_t d = dim("dim", rank(out));
    int64_t start = 0;
    bool blocks = name == "cat";
    for (const TensorId in : in_) {
      if (name == "cat" && rank(in) != rank(out)) continue;  // an empty one
      size_t own = 0;
      for (size_t i = 0; i < rank(out); ++i)
        if (i != d)
          same(of(out).dims[i], of(in).dims[own++]);
        else if (name == "cat")
          ++own;
      if (name != "cat") continue;
      if (size(in, d) == size(out, d)) {
        same(of(in).dims[d], of(out).dims[d]);
      } else if (size(in, d) > 0 && !is_block(out, d, in, d, start)) {
        blocks = false;
        forbid(in, d, "cat along");
      }
      start += size(in, d);
    }
    if (!blocks) forbid(out, d, name + " along");
  }

  void refuse_labels(const std::string& name) {
    const auto contains = [&](std::string_view part) { return name.find(part) != std::string::npos; };
    const std::string why = contains("index") || contains("scatter") || contains("gather")
                                ? name + ", whose indices name experts and slots of one slice, on"
                            : name == "arange" ? "arange, whose values depend on the position, along"
                                               : fmt::format("{}, of which nothing is known,", name) + " on";
    for (const auto* list : {&in_, &out_})
      for (const TensorId id : *list)
        for (size_t d = 0; d < rank(id); ++d) forbid(id, d, why);
  }

  const OperatorGraph& graph_;
  const std::vector<GraphTensor>& tensors_;
  const Call& call_;
  BodyLabels& labels_;
  std::vector<TensorId> in_, out_;
  RuleResult result_;
};

}  // namespace

LabelSweep sweep_rules(const OperatorGraph& graph, const std::vector<GraphTensor>& tensors,
                       const std::vector<const Call*>& calls, BodyLabels& labels) {
  LabelSweep out;
  const auto run = [&](const Call* call) {
    if (out.stopped_at) return;
    RuleResult result = Rule(graph, tensors, *call, labels).apply();
    out.learned |= result.learned;
    for (MustBePlain& one : result.must_be_plain) out.must_be_plain.emplace_back(call, std::move(one));
    if (!result.problem) return;
    out.stopped_at = call;
    out.problem = *std::move(result.problem);
  };
  for (const Call* call : calls) run(call);
  for (auto call = calls.rbegin(); call != calls.rend(); ++call) run(*call);
  return out;
}

}  // namespace piper
