#include "capture/sharding/label_rules.h"

#include <c10/core/ScalarType.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <string_view>

#include "base/invariant.h"

namespace piper {
namespace {

using Names = std::set<std::string_view>;

const Names views = {"view", "_unsafe_view", "reshape", "_reshape_alias", "unsqueeze", "squeeze", "flatten"};
const Names permutations = {"t", "transpose", "permute"};
const Names products = {"mm", "bmm", "addmm", "baddbmm"};
const Names reductions = {"mean", "amax", "amin"};
const Names along_one = {
    "_softmax", "_log_softmax", "_softmax_backward_data", "_log_softmax_backward_data", "_safe_softmax", "cumsum",
    "sort",     "topk"};
const Names norms = {"native_layer_norm", "native_layer_norm_backward", "_fused_rms_norm", "_fused_rms_norm_backward"};
const Names parts = {"select", "slice", "split", "split_with_sizes", "unbind"};
const Names attentions = {
    "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention_for_cpu_backward",
    "_scaled_dot_product_flash_attention",         "_scaled_dot_product_flash_attention_backward",
    "_scaled_dot_product_cudnn_attention",         "_scaled_dot_product_cudnn_attention_backward"};
const Names embeddings = {"embedding", "embedding_dense_backward"};
const Names losses = {"nll_loss_forward", "nll_loss_backward"};
const Names extremes = {"max", "min"};
/// Along one dimension by indices that lie in the others as the rest does; and by indices instead of dimensions.
const Names gathers = {"gather", "scatter", "scatter_", "scatter_add", "scatter_add_"};
const Names selections = {"index_select", "index"};
const Names insertions = {"index_add", "index_add_", "index_copy",      "index_copy_",
                          "index_put", "index_put_", "_index_put_impl_"};
const Names rows_of_parts = {"take_rows", "take_rows_backward"};
const Names columns_of_parts = {"take_columns", "take_columns_backward"};
const Names convolutions = {"convolution", "convolution_backward"};
const Names parts_backward = {"select_backward", "slice_backward"};
const Names joins = {"cat", "stack"};
const Names factories = {"zeros",    "ones",     "full",      "empty",         "scalar_tensor",     "new_zeros",
                         "new_ones", "new_full", "new_empty", "empty_strided", "new_empty_strided", "rand",
                         "randn",    "randint"};
/// Pointwise, though libtorch does not say so.
const Names pointwise = {"alias",
                         "bernoulli",
                         "bernoulli_",
                         "clone",
                         "copy_",
                         "_to_copy",
                         "detach",
                         "elu_backward",
                         "empty_like",
                         "exponential_",
                         "fill_",
                         "full_like",
                         "gelu_backward",
                         "hardswish_backward",
                         "leaky_relu_backward",
                         "lift_fresh",
                         "masked_fill",
                         "masked_fill_",
                         "native_dropout",
                         "native_dropout_backward",
                         "normal_",
                         "ones_like",
                         "pow",
                         "rand_like",
                         "randint_like",
                         "randn_like",
                         "sigmoid_backward",
                         "silu_backward",
                         "softplus_backward",
                         "tanh_backward",
                         "threshold_backward",
                         "to",
                         "uniform_",
                         "where",
                         "zero_",
                         "zeros_like"};

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
    const std::string name = base_name(graph_[call_.op]);
    if (out_.empty()) return;
    if (views.contains(name)) {
      whole(in_[0], out_[0]);
    } else if (factories.contains(name) || name == "local_slice") {
      // labels are learned from use: factories are uniform, and any part can be taken of what is whole
    } else if (name == "expand") {
      broadcast(in_[0], out_[0]);
    } else if (name == "repeat") {
      repeat();
    } else if (name == "constant_pad_nd") {
      pad();
    } else if (name == "flip") {
      flip();
    } else if (permutations.contains(name)) {
      permute(name);
    } else if (products.contains(name)) {
      product(name);
    } else if (name == "sum" || reductions.contains(name)) {
      reduce(name);
    } else if (along_one.contains(name)) {
      along(name);
    } else if (norms.contains(name)) {
      normalise();
    } else if (attentions.contains(name)) {
      attend();
    } else if (embeddings.contains(name)) {
      embed(name == "embedding");
    } else if (losses.contains(name)) {
      pick(name == "nll_loss_forward");
    } else if (rows_of_parts.contains(name)) {
      take_rows(name == "take_rows");
    } else if (columns_of_parts.contains(name)) {
      for (const TensorId id : {in_[0], in_[1]}) same(of(id).dims[0], of(out_[0]).dims[0]);
    } else if (parts.contains(name)) {
      narrow(name);
    } else if (parts_backward.contains(name)) {
      put_part(name);
    } else if (convolutions.contains(name) && std::get<int64_t>(argument("groups")) > 1) {
      convolve();
    } else if (joins.contains(name)) {
      join(name);
    } else if (extremes.contains(name) && find_argument(graph_, call_, "dim")) {
      take_extreme(name);
    } else if (labels_.tp && !labels_.tokens && gathers.contains(name)) {
      gather(name);
    } else if (labels_.tp && !labels_.tokens && selections.contains(name)) {
      pick_out(name, in_[0], out_[0]);
    } else if (labels_.tp && !labels_.tokens && insertions.contains(name)) {
      for (const TensorId out : out_) whole(in_[0], out);
      pick_out(name, in_[0], in_.back());
    } else if (graph_[call_.op].pointwise || pointwise.contains(name)) {
      for (const TensorId out : out_)
        for (const TensorId in : in_) broadcast(in, out);
    } else {
      refuse_labels(name);
    }
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
        for (size_t d = 2; d < rank(id); ++d) forbid(id, d, "attention along");
      }
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

  /// A number of every row.
  void pick(bool forward) {
    const TensorId scores = std::get<TensorId>(argument("self")), targets = std::get<TensorId>(argument("target")),
                   values = forward ? out_[0] : std::get<TensorId>(argument("grad_output"));
    if (!forward) whole(scores, out_[0]);
    same(of(scores).dims[0], of(targets).dims[0]);
    if (rank(values) > 0)
      same(of(scores).dims[0], of(values).dims[0]);
    else
      forbid(scores, 0, "a mean of losses over");
    for (size_t d = 1; d < rank(scores); ++d) forbid(scores, d, "nll_loss along");
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

int count_marks(const TensorLabels& labels, Mark mark) {
  int count = 0;
  for (const Factors& dim : labels.dims)
    count += static_cast<int>(std::count_if(dim.begin(), dim.end(), [&](const Factor& f) { return f.mark == mark; }));
  return count;
}

}  // namespace

std::string base_name(const Operator& op) {
  const std::string name = op.name.substr(op.name.find("::") + 2);
  return name.substr(0, name.find('.'));
}

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

bool sums_over(const OperatorGraph& graph, const BodyLabels& labels, const Call& call, TensorId result, Mark mark) {
  const std::string name = base_name(graph[call.op]);
  if (products.contains(name)) {
    const size_t left = name == "mm" || name == "bmm" ? 0 : 1;
    return has(labels.tensors[std::get<TensorId>(call.arguments[left]).index()].dims.back(), mark);
  }
  if (name != "sum" && name != "amax" && name != "embedding_dense_backward" && name != "take_rows" &&
      name != "take_columns" && !norms.contains(name) && !attentions.contains(name))
    return false;
  TensorId first;
  each_tensor(call.arguments, [&](TensorId id) {
    if (!first.valid()) first = id;
  });
  if (attentions.contains(name)) first = std::get<TensorId>(*find_argument(graph, call, "query"));
  return count_marks(labels.tensors[first.index()], mark) > count_marks(labels.tensors[result.index()], mark);
}

bool is_maximum(const OperatorGraph& graph, const Call& call) {
  return base_name(graph[call.op]) == "amax";
}

bool keeps_partial_sums(const OperatorGraph& graph, const std::vector<GraphTensor>& tensors, const BodyLabels& labels,
                        const Call& call) {
  static const Names linear = {
      "view", "_unsafe_view", "t",      "transpose", "permute",        "expand",         "unsqueeze", "squeeze",
      "sum",  "mul",          "div",    "neg",       "_to_copy",       "clone",          "detach",    "alias",
      "mm",   "bmm",          "select", "slice",     "slice_backward", "select_backward"};
  static const Names linear_in_first = {"native_layer_norm_backward",
                                        "_fused_rms_norm_backward",
                                        "elu_backward",
                                        "gelu_backward",
                                        "hardswish_backward",
                                        "leaky_relu_backward",
                                        "sigmoid_backward",
                                        "silu_backward",
                                        "softplus_backward",
                                        "tanh_backward",
                                        "threshold_backward"};
  static const Names sums = {"add", "add_", "sub", "cat", "stack"};
  const std::string name = base_name(graph[call.op]);
  int partial = 0, all = 0;
  bool sharded = false;
  const auto look = [&](TensorId id) { sharded = sharded || has(labels.tensors[id.index()], Mark::Sharded); };
  each_tensor(call.arguments, look);
  each_tensor(call.results, look);
  bool maxima = false;
  each_tensor(call.arguments, [&](TensorId id) {
    ++all;
    partial += labels.tensors[id.index()].sums_divided;
    maxima = maxima || labels.tensors[id.index()].are_maxima;
  });
  if (name == "add_" && tensors[std::get<TensorId>(call.arguments[0]).index()].kind == TensorKind::Buffer)
    return true;                        // gradients add up
  if (sharded || maxima) return false;  // a part of a sum times a part of another tensor is nothing that adds up
  const auto ends_with = [&](std::string_view overload) { return graph[call.op].name.ends_with(overload); };
  if (sums.contains(name)) return partial == all && !ends_with(".Scalar");  // every part would get the number
  if (linear_in_first.contains(name))
    return partial == 1 && labels.tensors[std::get<TensorId>(call.arguments[0]).index()].sums_divided;
  if (!linear.contains(name) || partial != 1 || ends_with("_mode")) return false;  // division that rounds
  if (name == "_to_copy") {
    const TensorId result = std::get<TensorId>(call.results[0]);
    return c10::isFloatingType(static_cast<c10::ScalarType>(tensors[result.index()].layout.element));
  }
  if (name != "div") return true;
  const auto* divisor = std::get_if<TensorId>(&call.arguments[1]);
  return !divisor || !divisor->valid() || !labels.tensors[divisor->index()].sums_divided;
}

}  // namespace piper
