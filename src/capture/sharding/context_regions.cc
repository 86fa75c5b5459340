#include "capture/sharding/context_regions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/invariant.h"
#include "capture/chunk/chunk_calls.h"
#include "capture/sharding/localize.h"
#include "capture/sharding/operator_rules.h"
#include "capture/sharding/partial_sums.h"

namespace piper {
namespace {

constexpr std::string_view attention_of_cpus = "aten::_scaled_dot_product_flash_attention_for_cpu";

class ContextMarker {
 public:
  ContextMarker(OperatorGraph graph, TokenOrder order, int heads_among)
      : graph_(std::move(graph)), zigzag_(order == TokenOrder::Zigzag), heads_among_(heads_among) {}

  Result<ContextGraph> mark() {
    if (heads_among_ > 0) PIPER_CHECK(check_heads());
    own_operands();
    find_free();
    PIPER_CHECK(find_labels());
    PIPER_CHECK(check_sums());
    put_gradients();
    slice_tokens();
    PIPER_CHECK(weigh_losses());
    PIPER_CHECK(rewrite_attention());
    split_segments();
    return ContextGraph{std::move(graph_), std::move(labels_.tensors), std::move(all_tokens_)};
  }

 private:
  bool is_attention(const Call& call) const { return rule_of(graph_[call.op]).dims == DimRule::Attention; }
  TensorId tensor(const Call& call, std::string_view name) const {
    const Argument* found = find_argument(graph_, call, name);
    return found && std::holds_alternative<TensorId>(*found) ? std::get<TensorId>(*found) : TensorId();
  }

  Diagnostic refuse(const Call& call, const std::string& what) const {
    std::vector<std::string> operands;
    each_tensor(call.arguments, [&](TensorId id) { operands.push_back(print(labels_.tensors[id.index()])); });
    const Call& said = call.forward.valid() ? graph_[call.forward] : call;
    return error(ErrorCode::E317, {},
                 fmt::format("shard: {}, {}: {} on {}: {}",
                             scope_name(graph_, graph_.segments[static_cast<size_t>(said.segment)].scope),
                             call.backward ? "backward" : "forward", graph_[call.op].name, fmt::join(operands, ", "),
                             what))
        .help("T marks the tokens, of which each device has some: only scaled_dot_product_attention may look at all");
  }

  /// A key or value, or the gradient of one.
  bool is_key(const Call& call, TensorId id) const {
    if (id == tensor(call, "key") || id == tensor(call, "value")) return true;
    return call.backward && (id == std::get<TensorId>(call.results[1]) || id == std::get<TensorId>(call.results[2]));
  }

  // ---- what is gathered or exchanged are tensors of its own: keys and values, or all that attention reads

  bool is_whole(TensorId id) const {
    return element_count(graph_[id].layout) == element_count(graph_[graph_[graph_[id].storage].base].layout);
  }
  void own_operands() {
    std::map<TensorId, TensorId> copies;
    rewrite_calls([&](const std::vector<Call>& old, Call call, std::vector<Call>& calls) {
      std::vector<Call> behind;
      if (is_attention(call)) {
        if (call.backward && heads_among_ > 0) own_gradients(old, call, calls, behind);
        std::set<StorageId> seen;
        for (const std::string_view role : {"query", "key", "value"}) {
          const TensorId id = tensor(call, role);
          const bool query = role == "query", shared = !seen.insert(graph_[id].storage).second;
          if (query && heads_among_ == 0) continue;
          const int64_t times = query ? 1 : copies_of_heads(id);
          const bool needed = shared || !is_whole(id) || times > 1;
          if (needed && !call.backward && !copies.contains(id))
            copies[id] = times > 1 ? repeat_heads(calls, call, id, times) : add_copy(calls, call, id, query);
          if (const auto copy = copies.find(id); copy != copies.end())
            map_tensors(call.arguments, [&](TensorId argument) { return argument == id ? copy->second : argument; });
        }
      }
      calls.push_back(std::move(call));
      const CallId place(calls.size() - 1);
      for (Call& more : behind) calls.push_back(std::move(more));
      return place;
    });
  }
  /// What follows from queries is laid out as they are.
  TensorId add_copy(std::vector<Call>& calls, const Call& before, TensorId of, bool keeps_order = false) {
    const TensorId id = new_tensor(of, graph_[of].layout.sizes);
    if (keeps_order) graph_.tensors[id.index()].layout.strides = dense_strides(graph_[of].layout);
    const Argument format = keeps_order ? Argument(None{}) : Argument(int64_t{0});  // contiguous
    calls.push_back(beside(before, "aten::clone", {of, format}, id));
    return id;
  }

  // ---- heads

  /// They divide; among more devices than there are heads of keys, those are repeated.
  Checked check_heads() const {
    for (const Call& call : graph_.calls) {
      if (!is_attention(call) || call.backward) continue;
      const int64_t queries = heads_of(tensor(call, "query")), keys = heads_of(tensor(call, "key"));
      if (queries % heads_among_ == 0 && (keys % heads_among_ == 0 || heads_among_ % keys == 0)) continue;
      return error(ErrorCode::E317, {},
                   fmt::format("shard: {}: attention with {} heads of queries and {} of keys does not divide among {} "
                               "devices",
                               scope_name(graph_, graph_.segments[static_cast<size_t>(call.segment)].scope), queries,
                               keys, heads_among_))
          .help(fmt::format("use a number of devices that divides {}, and divides {} or is a multiple of it", queries,
                            keys))
          .help("or let attention gather keys and values: sequence=gather");
    }
    return Ok{};
  }
  int64_t heads_of(TensorId id) const { return graph_[id].layout.sizes[1]; }
  int64_t copies_of_heads(TensorId key) const {
    return heads_among_ > heads_of(key) ? heads_among_ / heads_of(key) : 1;
  }
  ///   before:  o = attention(q, k, v)        after:  c = repeat_heads(k, 2); d = repeat_heads(v, 2);
  ///                                                  o = attention(q, c, d)
  TensorId repeat_heads(std::vector<Call>& calls, const Call& before, TensorId of, int64_t times) {
    std::vector<int64_t> sizes = graph_[of].layout.sizes;
    sizes[1] *= times;
    const TensorId id = new_tensor(of, sizes);
    calls.push_back(beside(before, "piper::repeat_heads", {of, times}, id));
    return id;
  }
  /// The gradient that comes in, where it is a part of something, and those of keys that were repeated.
  ///   before:  dq, dk, dv = backward(do, q, k, v)        after:  dq, dc, dd = backward(do, q, c, d)
  ///                                                              dk = add_repeated(dc, 2); dv = add_repeated(dd, 2)
  void own_gradients(const std::vector<Call>& old, Call& call, std::vector<Call>& calls, std::vector<Call>& behind) {
    const TensorId gradient = tensor(call, "grad_out");
    const CallId maker = graph_[gradient].producer;
    if (!is_whole(gradient) && maker.valid() && old[maker.index()].forward.valid()) {
      const TensorId copy = add_copy(calls, call, gradient);
      calls.back().forward = old[maker.index()].forward;
      map_tensors(call.arguments, [&](TensorId argument) { return argument == gradient ? copy : argument; });
    }
    for (const auto& [role, at] : {std::pair("key", size_t{1}), std::pair("value", size_t{2})}) {
      const TensorId key = tensor(call, role), sum = std::get<TensorId>(call.results[at]);
      const int64_t times = copies_of_heads(key);
      if (times == 1 || !sum.valid()) continue;
      std::vector<int64_t> sizes = graph_[sum].layout.sizes;
      sizes[1] *= times;
      const TensorId repeated = new_tensor(sum, sizes);
      const int64_t heads = sizes[1], tokens = sizes[2], width = sizes[3];
      if (graph_[call.op].name.find("cudnn") == std::string::npos)  // which lays it out as the keys
        graph_.tensors[repeated.index()].layout.strides = {tokens * heads * width, width, heads * width, 1};
      call.results[at] = repeated;
      behind.push_back(beside(call, "piper::add_repeated", {repeated, times}, sum));
      behind.back().forward = graph_[key].producer;  // where the keys come from
    }
  }
  TensorId new_tensor(TensorId like, const std::vector<int64_t>& sizes) {
    const TensorId id(graph_.tensors.size());
    GraphTensor made = graph_[like];
    made.kind = TensorKind::Result;
    made.name.clear();
    made.constant = -1;
    made.storage = StorageId(graph_.storages.size());
    made.layout.sizes = sizes;
    made.layout.offset = 0;
    made.layout.strides.assign(sizes.size(), 1);
    for (size_t d = sizes.size(); d-- > 1;) made.layout.strides[d - 1] = made.layout.strides[d] * sizes[d];
    graph_.storages.push_back({element_count(made.layout) * made.layout.element_bytes, id});
    graph_.tensors.push_back(std::move(made));
    return id;
  }

  // ---- what follows from inputs and constants alone

  void find_free() {
    free_.assign(graph_.tensors.size(), 0);
    for (size_t t = 0; t < graph_.tensors.size(); ++t) {
      const TensorKind kind = graph_.tensors[t].kind;
      free_[t] = kind == TensorKind::Input || kind == TensorKind::Constant || kind == TensorKind::Buffer;
    }
    for (const Call& call : graph_.calls) {
      bool follows = !call.backward && call.random < 0;
      each_tensor(call.arguments, [&](TensorId id) { follows = follows && free_[id.index()]; });
      each_tensor(call.results, [&](TensorId id) { free_[id.index()] = free_[id.index()] || follows; });
    }
  }
  bool is_free(const Call& call) const {
    bool all = !call.results.empty();
    each_tensor(call.results, [&](TensorId id) { all = all && free_[id.index()]; });
    return all;
  }
  /// It, or a parameter, which has a row for each token then.
  bool is_whole_everywhere(TensorId id) const {
    return id.index() < free_.size() &&
           (free_[id.index()] || graph_[graph_[graph_[id].storage].base].kind == TensorKind::Parameter);
  }
  bool gives_whole(const Call& call) const {
    bool all = !call.results.empty();
    each_tensor(call.results, [&](TensorId id) { all = all && is_whole_everywhere(id); });
    return all;
  }

  // ---- labels

  Checked find_labels() {
    for (const CallId id : live_calls(graph_)) followed_.push_back(&graph_[id]);
    while (true) {
      PIPER_TRY(const bool done, label());
      if (done) break;
    }
    for (TensorLabels& tensor : labels_.tensors) settle(tensor);
    return Ok{};
  }
  /// From the inputs to the end. False: calls on inputs were found that mix tokens, so that nothing may follow from
  /// them.
  Result<bool> label() {
    labels_ = {{}, true, true, true};
    for (const GraphTensor& tensor : graph_.tensors) labels_.tensors.push_back(unknown_labels(tensor.layout.sizes));
    for (const TensorId input : graph_.inputs) {
      std::vector<Factors>& dims = labels_.tensors[input.index()].dims;
      if (dims.size() < 2) continue;
      for (Factor& factor : dims[0]) factor.mark = Mark::Plain;
      for (Factor& factor : dims[1]) factor.mark = Mark::Sharded;
    }
    for (bool learned = true; learned;) {
      const LabelSweep sweep = sweep_rules(graph_, graph_.tensors, followed_, labels_);
      std::map<const Call*, std::string> mixing;
      for (const auto& [call, must] : sweep.must_be_plain)
        if (!(is_attention(*call) && is_key(*call, must.tensor)) &&
            has(labels_.tensors[must.tensor.index()].dims[must.dim], Mark::Sharded))
          mixing.emplace(call, fmt::format("{} tokens", must.why));
      if (sweep.stopped_at) mixing.emplace(sweep.stopped_at, sweep.problem.what);
      for (const auto& [call, why] : mixing)
        if (!is_free(*call)) return refuse(*call, why);
      if (!mixing.empty()) {
        std::erase_if(followed_, [&](const Call* call) { return mixing.contains(call); });
        return false;
      }
      learned = sweep.learned;
      for (const Contribution& contribution : graph_.gradients)
        learned |=
            unify_tensors(labels_.tensors[contribution.parameter.index()], labels_.tensors[contribution.value.index()]);
    }
    return true;
  }

  /// Only a loss adds up over tokens, and is scaled and averaged afterwards: what else would follow from a device's
  /// part of a sum is not known.
  Checked check_sums() const {
    std::set<StorageId> losses;
    for (const CallId id : live_calls(graph_)) {
      const Call& call = graph_[id];
      if (call.backward || is_free(call)) continue;
      const bool loss = base_name(graph_[call.op]) == "nll_loss_forward";
      TensorId result;
      each_tensor(call.results, [&](TensorId id) {
        if (!result.valid()) result = id;
      });
      if (!result.valid()) continue;
      const bool adds = loss ? has(labels_.tensors[tensor(call, "self").index()], Mark::Sharded) &&
                                   graph_[result].layout.sizes.empty()
                             : sums_over(graph_, labels_, call, result, Mark::Sharded);
      if (!adds) {
        PIPER_CHECK(check_linear(call, losses));
        continue;
      }
      if (!loss) return refuse(call, "it adds up over tokens, of which each device has some");
      losses.insert(graph_[result].storage);
    }
    return Ok{};
  }
  /// A multiple of a loss, or a sum of losses, is a loss; nothing else is made of them.
  Checked check_linear(const Call& call, std::set<StorageId>& losses) const {
    int used = 0, all = 0;
    each_tensor(call.arguments, [&](TensorId id) {
      ++all;
      used += static_cast<int>(losses.contains(graph_[id].storage));
    });
    if (used == 0) return Ok{};
    const OperatorRule rule = rule_of(graph_[call.op]);
    const auto* first = std::get_if<TensorId>(&call.arguments[0]);
    const bool divides = rule.name == "div" && !(first && losses.contains(graph_[*first].storage)),
               adds = rule.terms == TermRule::Sum && used == all && !graph_[call.op].name.ends_with(".Scalar"),
               scales = rule.terms == TermRule::Linear && used == 1 && !divides;
    if (!adds && !scales) return refuse(call, "it works on a loss of which each device has that of its own tokens");
    each_tensor(call.results, [&](TensorId id) { losses.insert(graph_[id].storage); });
    return Ok{};
  }

  // ---- parts of what is whole

  /// The dimension that has tokens, as local_slice wants it.
  static std::vector<Argument> place_of_tokens(const TensorLabels& labels) {
    for (size_t d = 0; d < labels.dims.size(); ++d) {
      int64_t outer = 1, tokens = 0, inner = 1;
      for (const Factor& factor : labels.dims[d]) {
        if (factor.mark == Mark::Sharded)
          tokens = factor.size;
        else
          (tokens == 0 ? outer : inner) *= factor.size;
      }
      if (tokens > 0) return {PartStart{tokens}, static_cast<int64_t>(d), outer, inner};
    }
    internal_error("a tensor with tokens has a dimension of them");
  }
  /// local_slice or its backward, beside another call.
  Call part_call(std::string_view op, TensorId of, const TensorLabels& labels, TensorId result, const Call& other) {
    std::vector<Argument> arguments = {of, graph_[of].layout.sizes};
    for (Argument& argument : place_of_tokens(labels)) arguments.push_back(std::move(argument));
    arguments.push_back(zigzag_);
    return beside(other, op, std::move(arguments), result);
  }
  /// New calls before or behind old ones.
  template <class Rewrite>
  void rewrite_calls(Rewrite rewrite) {
    const std::vector<Call> old = std::move(graph_.calls);
    std::vector<Call> calls;
    std::vector<CallId> place(old.size());
    for (size_t c = 0; c < old.size(); ++c) place[c] = rewrite(old, old[c], calls);
    for (Call& call : calls)
      if (call.forward.valid()) call.forward = place[call.forward.index()];
    graph_.calls = std::move(calls);
    find_producers(graph_.tensors, graph_.calls);
  }

  /// Of a parameter that has a row for each token.
  ///   before:  gradient(w) = g        after:  gradient(w) = local_slice_backward(g, first): rows of others are zero
  void put_gradients() {
    std::map<CallId, std::vector<Contribution*>> behind;  // by what makes the gradient
    for (Contribution& contribution : graph_.gradients)
      if (has(labels_.tensors[contribution.parameter.index()], Mark::Sharded))
        behind[graph_[contribution.value].producer].push_back(&contribution);
    rewrite_calls([&](const std::vector<Call>& old, const Call& call, std::vector<Call>& calls) {
      calls.push_back(call);
      const CallId place(calls.size() - 1);
      if (const auto found = behind.find(CallId(static_cast<size_t>(&call - old.data()))); found != behind.end())
        for (Contribution* contribution : found->second) {
          const TensorId whole = new_tensor(contribution->value, graph_[contribution->value].layout.sizes);
          labels_.tensors.push_back(unknown_labels(graph_[whole].layout.sizes));
          settle(labels_.tensors.back());
          calls.push_back(part_call("piper::local_slice_backward", contribution->value,
                                    labels_.tensors[contribution->value.index()], whole, call));
          contribution->value = whole;
        }
      return place;
    });
  }

  ///   before:  y = x * cos        after:  c = local_slice(cos, first); y = x * c
  void slice_tokens() {
    rewrite_calls([&](const std::vector<Call>& old, Call call, std::vector<Call>& calls) {
      const int segment = call.forward.valid() ? old[call.forward.index()].segment : call.segment;
      const bool has_all = heads_among_ > 0 && is_attention(call);
      if (!has_all && !gives_whole(call))
        map_tensors(call.arguments, [&](TensorId id) {
          if (!is_whole_everywhere(id) || !has(labels_.tensors[id.index()], Mark::Sharded)) return id;
          TensorId& part = parts_[{id, segment}];
          if (part.valid()) return part;
          part = new_tensor(id, graph_[id].layout.sizes);
          const TensorLabels labels = labels_.tensors[id.index()];
          labels_.tensors.push_back(labels);
          calls.push_back(part_call("piper::local_slice", id, labels, part, call));
          return part;
        });
      calls.push_back(std::move(call));
      return CallId(calls.size() - 1);
    });
    for (size_t t = 0; t < free_.size(); ++t)
      if (is_whole_everywhere(TensorId(t))) {
        labels_.tensors[t] = unknown_labels(graph_.tensors[t].layout.sizes);
        settle(labels_.tensors[t]);
      }
  }

  // ---- losses

  /// Losses of devices are averaged, so that each has its part of the sum as many times as there are devices, over the
  /// number of tokens that count on all of them.
  ///   before:  s, _ = nll_loss(x, t, sum)         after:  s', _ = nll_loss(x, t, sum); s = times_parts(s')
  ///   before:  loss, n = nll_loss(x, t, mean)     after:  s, _ = nll_loss(x, t, sum); n = counted_share(t); loss = s /
  ///   n
  Checked weigh_losses() {
    std::map<TensorId, TensorId> counts;  // by what they stand for
    Checked fine = Ok{};
    rewrite_calls([&](const std::vector<Call>&, Call call, std::vector<Call>& calls) {
      const std::string name = base_name(graph_[call.op]);
      const auto last = [&] {
        calls.push_back(std::move(call));
        return CallId(calls.size() - 1);
      };
      const bool forward = name == "nll_loss_forward";
      if ((!forward && name != "nll_loss_backward") || is_free(call) ||
          !has(labels_.tensors[tensor(call, "self").index()], Mark::Sharded))
        return last();
      const auto reduction = std::get<int64_t>(*find_argument(graph_, call, "reduction"));
      const TensorId scores = tensor(call, "self"), targets = tensor(call, "target");
      const auto number = [&](TensorId like) {
        labels_.tensors.push_back(unknown_labels({}));
        return new_tensor(like, {});
      };
      const auto times_parts = [&](TensorId of, TensorId result) {
        return beside(call, "piper::times_parts", {of, targets, element_count(graph_[targets].layout)}, result);
      };
      if (!forward) {
        if (const auto share = counts.find(tensor(call, "total_weight")); share != counts.end()) {
          set_argument(call, "total_weight", share->second);
          return last();
        }
        if (reduction == 0) return last();
        const TensorId gradient = tensor(call, "grad_output"), scaled = number(gradient);
        calls.push_back(times_parts(gradient, scaled));
        set_argument(call, "grad_output", scaled);
        return last();
      }
      if (reduction == 0) return last();
      const TensorId loss = std::get<TensorId>(call.results[0]), sum = number(loss);
      std::vector<Call> behind;
      if (reduction == 2) {
        behind.push_back(times_parts(sum, loss));
      } else {
        const auto whole = std::ranges::find_if(parts_, [&](const auto& part) { return part.second == targets; });
        if (whole == parts_.end() || tensor(call, "weight").valid()) {
          fine = refuse(call, "the number of tokens that count is not known from the batch alone");
          return last();
        }
        const TensorId share = number(loss);
        behind.push_back(beside(call, "piper::counted_share",
                                {whole->first.first, targets, *find_argument(graph_, call, "ignore_index"),
                                 int64_t{graph_[scores].layout.element}},
                                share));
        behind.push_back(beside(call, "aten::div.Tensor", {sum, share}, loss));
        set_argument(call, "reduction", int64_t{2});
        counts[std::get<TensorId>(call.results[1])] = share;
      }
      call.results[0] = sum;
      const CallId place = last();
      for (Call& more : behind) calls.push_back(std::move(more));
      return place;
    });
    return fine;
  }
  Call beside(const Call& other, std::string_view op, std::vector<Argument> arguments, TensorId result) {
    Call call;
    call.op = operator_named(graph_, op);
    call.arguments = std::move(arguments);
    call.results = {result};
    call.segment = other.segment;
    call.backward = other.backward;
    call.forward = other.forward;
    return call;
  }
  void set_argument(Call& call, std::string_view name, Argument to) const {
    const std::vector<std::string>& names = graph_[call.op].arguments;
    call.arguments[static_cast<size_t>(std::ranges::find(names, name) - names.begin())] = std::move(to);
  }

  // ---- attention

  ///   before:  attention(q, k, v, causal)        after:  context_attention(q, k, v, causal, first)
  /// Without a mask the order of the keys is all the same. With all tokens of some heads, that of all tokens is:
  ///   before:  attention(q, k, v, causal)        after:  heads_attention(q, k, v, causal, heads)
  Checked rewrite_attention() {
    for (Call& call : graph_.calls) {
      if (!is_attention(call)) continue;
      const std::string& name = graph_[call.op].name;
      for (const char* role : {"key", "value"}) all_tokens_.insert(graph_[tensor(call, role)].storage);
      if (call.backward)
        for (const size_t gradient : {size_t{1}, size_t{2}})
          if (const TensorId id = std::get<TensorId>(call.results[gradient]); id.valid())
            all_tokens_.insert(graph_[id].storage);
      const bool on_cpu = name.starts_with(attention_of_cpus), heads = heads_among_ > 0;
      const bool causal = std::get<bool>(*find_argument(graph_, call, "is_causal"));
      const TensorId mask = tensor(call, on_cpu ? "attn_mask" : "attn_bias"), query = tensor(call, "query");
      if (std::get<double>(*find_argument(graph_, call, "dropout_p")) > 0)
        return refuse(call, "context parallelism knows attention without dropout of its scores");
      if (!on_cpu && mask.valid()) return refuse(call, "context parallelism on GPUs knows attention without a mask");
      if (heads && mask.valid()) PIPER_CHECK(check_mask(call, mask));
      const bool ordered = causal || mask.valid();  // it matters which keys come first
      if (heads ? !zigzag_ || !ordered : on_cpu && !causal && !(zigzag_ && mask.valid())) continue;
      const Argument scale = *find_argument(graph_, call, "scale");
      std::vector<Argument> arguments = {query, tensor(call, "key"), tensor(call, "value")};
      if (call.backward)
        arguments = {tensor(call, "grad_out"), query,
                     tensor(call, "key"),      tensor(call, "value"),
                     tensor(call, "out"),      sums_of_rows(tensor(call, "logsumexp"))};
      else
        call.results = {call.results[0], sums_of_rows(std::get<TensorId>(call.results[1]))};
      for (const Argument& more : std::vector<Argument>{mask, causal, scale}) arguments.push_back(more);
      if (heads)
        arguments.push_back(heads_of(query));
      else
        for (const Argument& more : std::vector<Argument>{PartStart{graph_[query].layout.sizes[2]}, zigzag_})
          arguments.push_back(more);
      call.op = operator_named(
          graph_, fmt::format("piper::{}_attention{}", heads ? "heads" : "context", call.backward ? "_backward" : ""));
      call.arguments = std::move(arguments);
    }
    find_producers(graph_.tensors, graph_.calls);
    return Ok{};
  }
  /// The same for all heads, and of what every device has.
  Checked check_mask(const Call& call, TensorId mask) const {
    const std::vector<int64_t>& sizes = graph_[mask].layout.sizes;
    if (sizes.size() > 3 && sizes[1] > 1) return refuse(call, "its mask is another one for every head");
    if (!is_whole_everywhere(mask) || graph_[graph_[graph_[mask].storage].base].kind == TensorKind::Parameter)
      return refuse(call, "its mask follows from more than inputs and constants");
    return Ok{};
  }
  /// One for every head and query, however the recorded operator shows them.
  TensorId sums_of_rows(TensorId id) {
    std::vector<int64_t> sizes = graph_[id].layout.sizes;
    if (sizes.size() == 3) return id;
    TensorId& found = row_sums_[id];
    if (found.valid()) return found;
    sizes.resize(3);
    found = new_tensor(id, sizes);
    TensorLabels labels = labels_.tensors[id.index()];
    labels.dims.resize(3);
    labels_.tensors.push_back(std::move(labels));
    return found;
  }

  /// Every attention is a segment of its own; backward follows forward.
  void split_segments() {
    std::vector<std::vector<CallId>> forward(graph_.segments.size());
    for (size_t c = 0; c < graph_.calls.size(); ++c)
      if (!graph_.calls[c].backward) forward[static_cast<size_t>(graph_.calls[c].segment)].emplace_back(c);
    const std::vector<Segment> old = std::move(graph_.segments);
    graph_.segments.clear();
    std::vector<int> first(old.size());
    std::map<ScopeId, int> cores;
    for (size_t s = 0; s < old.size(); ++s) {
      first[s] = static_cast<int>(graph_.segments.size());
      graph_.segments.push_back(old[s]);
      for (const CallId id : forward[s]) {
        Call& call = graph_.calls[id.index()];
        const bool core = is_attention(call);
        if (core) {
          graph_.scopes.push_back({old[s].scope, "core", cores[old[s].scope]++, {}, false});
          graph_.segments.push_back({ScopeId(graph_.scopes.size() - 1)});
        }
        call.segment = static_cast<int>(graph_.segments.size()) - 1;
        if (core) graph_.segments.push_back(old[s]);
      }
    }
    for (Call& call : graph_.calls)
      if (call.backward)
        call.segment = call.forward.valid() ? graph_[call.forward].segment : first[static_cast<size_t>(call.segment)];
  }

  OperatorGraph graph_;
  BodyLabels labels_;
  std::vector<char> free_;                              // by tensor: follows from inputs and constants alone
  std::vector<const Call*> followed_;                   // labels follow from these
  std::map<std::pair<TensorId, int>, TensorId> parts_;  // of free tensors, by segment
  std::map<TensorId, TensorId> row_sums_;               // of what cuDNN gives
  std::set<StorageId> all_tokens_;
  bool zigzag_;
  int heads_among_;  // 0: keys and values are gathered
};

}  // namespace

Result<ContextGraph> mark_context_regions(OperatorGraph graph, TokenOrder order, int heads_among) {
  return ContextMarker(name_slices(std::move(graph)), order, heads_among).mark();
}

void label_new_tensors(const OperatorGraph& graph, std::vector<TensorLabels>& known) {
  const size_t old = known.size();
  std::vector<const Call*> about_new;
  for (const CallId id : live_calls(graph)) {
    bool is_new = false;
    for (const auto* list : {&graph[id].arguments, &graph[id].results})
      each_tensor(*list, [&](TensorId tensor) { is_new = is_new || tensor.index() >= old; });
    if (is_new) about_new.push_back(&graph[id]);
  }
  BodyLabels labels{std::move(known), true, true, true};
  for (size_t t = old; t < graph.tensors.size(); ++t)
    labels.tensors.push_back(unknown_labels(graph.tensors[t].layout.sizes));
  while (sweep_rules(graph, graph.tensors, about_new, labels).learned) {
  }
  for (size_t t = old; t < graph.tensors.size(); ++t) settle(labels.tensors[t]);
  known = std::move(labels.tensors);
}

}  // namespace piper
