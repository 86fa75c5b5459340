// Labels of random graphs: the search for them ends, after no more sweeps than there is something to learn.
#include "capture/sharding/label_rules.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <iostream>
#include <numeric>
#include <random>

namespace piper {
namespace {

using Sizes = std::vector<int64_t>;

/// Views, products, sums, slices, joins and attention in random order, on whatever is there.
class RandomGraph {
 public:
  explicit RandomGraph(uint32_t seed) : random_(seed) {
    add_parameter({below(4) + 1, pick({4, 6, 8, 12}), pick({8, 12, 16, 24, 32, 48})});
    for (int64_t calls = 3 + below(25); calls > 0; --calls) add_call();
  }
  const OperatorGraph& graph() const { return graph_; }
  BodyLabels labels(int seeds) {
    BodyLabels out{{}, true};
    for (const GraphTensor& tensor : graph_.tensors) out.tensors.push_back(unknown_labels(tensor.layout.sizes));
    for (; seeds > 0; --seeds) {
      std::vector<Factors>& dims = out.tensors[static_cast<size_t>(below(count()))].dims;
      for (Factor& factor : dims[static_cast<size_t>(below(static_cast<int64_t>(dims.size())))])
        factor.mark = Mark::Sharded;
    }
    return out;
  }

 private:
  int64_t below(int64_t end) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(end)); }
  int64_t pick(const Sizes& from) { return from[static_cast<size_t>(below(static_cast<int64_t>(from.size())))]; }
  int64_t count() const { return static_cast<int64_t>(graph_.tensors.size()); }
  const Sizes& sizes(TensorId id) const { return graph_[id].layout.sizes; }

  TensorId add_parameter(Sizes of) {
    graph_.tensors.push_back({TensorKind::Parameter, {}, {0, 8, std::move(of), {}, 0}, {}, "", -1});
    return TensorId(graph_.tensors.size() - 1);
  }
  TensorId add_result(Sizes of) {
    const TensorId id = add_parameter(std::move(of));
    graph_.tensors.back().kind = TensorKind::Result;
    return id;
  }
  void call(const std::string& name, std::vector<std::string> arguments, std::vector<Argument> with,
            std::vector<Argument> results, bool pointwise = false) {
    graph_.operators.push_back({name, std::move(arguments), pointwise, false});
    Call made;
    made.op = OperatorId(graph_.operators.size() - 1);
    made.arguments = std::move(with);
    made.results = std::move(results);
    graph_.calls.push_back(std::move(made));
  }

  /// As many elements in other dimensions.
  Sizes seen_anew(const Sizes& of) {
    int64_t left = std::accumulate(of.begin(), of.end(), int64_t{1}, std::multiplies());
    Sizes out;
    while (left > 1 && out.size() < 4) {
      Sizes divisors;
      for (int64_t d = 1; d <= left; ++d)
        if (left % d == 0) divisors.push_back(d);
      out.push_back(pick(divisors));
      left /= out.back();
    }
    out.push_back(left);
    return out;
  }

  void add_call() {
    const TensorId x(static_cast<size_t>(below(count())));
    const Sizes of = sizes(x);
    const auto rank = static_cast<int64_t>(of.size());
    const int64_t d = below(rank), at = of[static_cast<size_t>(d)];
    Sizes other = of;
    switch (below(10)) {
      case 0:
        other = seen_anew(of);
        return call("aten::view", {"self", "size"}, {x, other}, {add_result(other)});
      case 1: {
        const int64_t e = below(rank);
        std::swap(other[static_cast<size_t>(d)], other[static_cast<size_t>(e)]);
        return call("aten::transpose.int", {"self", "dim0", "dim1"}, {x, d, e}, {add_result(other)});
      }
      case 2: {
        TensorId with = add_parameter(of);
        for (size_t t = 0; t < static_cast<size_t>(count()); ++t)
          if (sizes(TensorId(t)) == of && below(3) == 0) with = TensorId(t);
        return call("aten::add.Tensor", {"self", "other", "alpha"}, {x, with, int64_t{1}}, {add_result(of)}, true);
      }
      case 3: {
        if (rank != 2) return;
        const TensorId w = add_parameter({of[1], pick({8, 12, 24, 32})});
        return call("aten::mm", {"self", "mat2"}, {x, w}, {add_result({of[0], sizes(w)[1]})});
      }
      case 4:
      case 5: {
        const int64_t step = below(4) == 0 ? 2 : 1, start = below(at), end = start + 1 + below(at - start);
        other[static_cast<size_t>(d)] = (end - start + step - 1) / step;
        const TensorId part = add_result(other);
        call("aten::slice.Tensor", {"self", "dim", "start", "end", "step"}, {x, d, start, end, step}, {part});
        if (below(2) == 0)
          call("aten::slice_backward", {"grad_output", "input_sizes", "dim", "start", "end", "step"},
               {part, of, d, start, end, step}, {add_result(of)});
        return;
      }
      case 6: {
        if (at < 3) return;
        Sizes parts = {1 + below(at - 2)};
        parts.push_back(1 + below(at - parts[0] - 1));
        parts.push_back(at - parts[0] - parts[1]);
        TensorList results;
        for (const int64_t size : parts) {
          other[static_cast<size_t>(d)] = size;
          results.tensors.push_back(add_result(other));
        }
        return call("aten::split_with_sizes", {"self", "split_sizes", "dim"}, {x, parts, d}, {results});
      }
      case 7: {
        other[static_cast<size_t>(d)] = pick({2, 4, 6, 8});
        const TensorId with = add_parameter(other);
        other[static_cast<size_t>(d)] += 2 * at;
        return call("aten::cat", {"tensors", "dim"}, {TensorList{{x, with, x}, false}, d}, {add_result(other)});
      }
      case 8:
        other[static_cast<size_t>(d)] = 1;
        return call("aten::sum.dim_IntList", {"self", "dim", "keepdim", "dtype"}, {x, Ints{d}, true, None{}},
                    {add_result(other)});
      default: {
        if (rank != 4) return;
        const int64_t shared = pick({1, 2, 3, 4});
        if (of[1] % shared != 0) return;
        const TensorId key = add_parameter({of[0], of[1] / shared, 6, of[3]}),
                       value = add_parameter({of[0], of[1] / shared, 6, of[3]});
        return call("aten::_scaled_dot_product_flash_attention_for_cpu", {"query", "key", "value"}, {x, key, value},
                    {add_result(of)});
      }
    }
  }

  std::mt19937 random_;
  OperatorGraph graph_;
};

int64_t known(const BodyLabels& labels) {
  int64_t sum = 0;
  for (const TensorLabels& tensor : labels.tensors) sum += knowledge(tensor);
  return sum;
}

TEST(LabelRules, AreFollowedToAnEnd) {
  int64_t settled = 0, stopped = 0, most = 0;
  for (uint32_t seed = 1; seed <= 3000; ++seed) {
    RandomGraph made(seed);
    const OperatorGraph& graph = made.graph();
    std::vector<const Call*> calls;
    int64_t bound = 1;
    for (const Call& call : graph.calls) calls.push_back(&call);
    for (const GraphTensor& tensor : graph.tensors) bound += most_knowledge(tensor.layout.sizes);
    BodyLabels labels = made.labels(static_cast<int>(seed % 4));
    int64_t before = known(labels), sweeps = 0;
    for (bool learned = true; learned; ++sweeps) {
      ASSERT_LE(sweeps, bound) << seed;
      const LabelSweep sweep = sweep_rules(graph, graph.tensors, calls, labels);
      const int64_t after = known(labels);
      ASSERT_EQ(sweep.learned, after > before) << seed;
      ASSERT_GE(after, before) << seed;
      before = after;
      learned = sweep.learned && !sweep.stopped_at;
      stopped += sweep.stopped_at ? 1 : 0;
      settled += learned || sweep.stopped_at ? 0 : 1;
    }
    ASSERT_LE(before, bound) << seed;
    most = std::max(most, sweeps);
  }
  EXPECT_GT(settled, 1000);
  EXPECT_GT(stopped, 100);
  std::cout << settled << " settled, " << stopped << " stopped, at most " << most << " sweeps\n";
}

Factors factors(std::vector<Factor> of) {
  return of;
}
std::string shown(const Factors& dim) {
  return print(TensorLabels{{dim}});
}

/// Queries, keys and values of one projection: four heads, two and two.
TEST(DimensionLabels, OfBlocksAreThoseOfTheirParts) {
  Factor left, right;
  Factors whole = factors({{64, Mark::Unknown}}), query = factors({{4, Mark::Sharded}, {8, Mark::Plain}}),
          key = factors({{16, Mark::Unknown}}), value = key;
  for (int turn = 0; turn < 2; ++turn) {
    unify_block(whole, query, 0, &left, &right);
    unify_block(whole, key, 32, &left, &right);
    unify_block(whole, value, 48, &left, &right);
  }
  EXPECT_EQ(shown(whole), "[T32|16|16]");
  EXPECT_EQ(shown(key), "[T16]");
  EXPECT_EQ(shown(value), "[T16]");
  Factors seen = factors({{8, Mark::Unknown}, {8, Mark::Unknown}});
  unify({&whole}, {&seen}, &left, &right);
  EXPECT_EQ(shown(whole), "[T4|2|2*8]");
  unify_block(whole, key, 32, &left, &right);
  EXPECT_EQ(shown(key), "[T2*8]");
  TensorLabels labels{{whole}};
  settle(labels);
  EXPECT_EQ(print(labels), "[T4|2|2*8]");
  EXPECT_EQ(local_size(labels.dims[0], {ShardKind::Tp, 2}), 32);
}

/// Two queries share each key: the factors of a block are its own.
TEST(DimensionLabels, OfBlocksMayDifferInside) {
  Factor left, right;
  Factors whole = factors({{64, Mark::Unknown}}),
          query = factors({{2, Mark::Sharded}, {2, Mark::Plain}, {8, Mark::Plain}}),
          key = factors({{2, Mark::Unknown}, {8, Mark::Unknown}});
  unify_block(whole, query, 0, &left, &right);
  unify_block(whole, key, 32, &left, &right);
  EXPECT_EQ(shown(whole), "[T32|16|16]");
  EXPECT_EQ(shown(key), "[T2*8]");
  Factors fused = factors({{64, Mark::Unknown}}), two = factors({{2, Mark::Plain}, {16, Mark::Sharded}});
  unify_block(fused, two, 32, &left, &right);
  EXPECT_EQ(shown(fused), "[T32|16|16]");
}

/// Equal blocks are a factor of their own, however that became known.
TEST(DimensionLabels, OfEqualBlocksAreAFactor) {
  Factor left, right;
  Factors whole = factors({{32, Mark::Unknown}}), gate = factors({{16, Mark::Sharded}}),
          up = factors({{16, Mark::Unknown}});
  unify_block(whole, gate, 0, &left, &right);
  unify_block(whole, up, 16, &left, &right);
  EXPECT_EQ(shown(up), "[T16]");
  Factors seen = factors({{2, Mark::Unknown}, {16, Mark::Unknown}});
  Factors same = whole;
  EXPECT_EQ(unify({&same}, {&seen}, &left, &right), Match::Learned);
  EXPECT_EQ(shown(seen), "[2*T16]");
  TensorLabels labels{{whole}};
  settle(labels);
  EXPECT_EQ(print(labels), "[2*T16]");
}

TEST(DimensionLabels, OfAPartThatCutsThroughAreRefused) {
  Factor left, right;
  Factors whole = factors({{4, Mark::Sharded}, {8, Mark::Plain}}), part = factors({{20, Mark::Unknown}});
  EXPECT_EQ(unify_block(whole, part, 0, &left, &right), Match::Straddles);
  Factors plain = factors({{4, Mark::Plain}, {8, Mark::Plain}});
  EXPECT_EQ(unify_block(plain, part, 0, &left, &right), Match::Same);
  Factors one = factors({{8, Mark::Unknown}});  // all of it on one device
  EXPECT_EQ(unify_block(whole, one, 8, &left, &right), Match::Conflict);
}

}  // namespace
}  // namespace piper
