#include "capture/chunk/min_cut.h"

#include <gtest/gtest.h>

namespace piper {
namespace {

/// a -> b -> c in a row: the edge between a and b is the cheapest.
TEST(MinCut, CutsWhereItIsCheapest) {
  FlowNetwork network;
  const int source = network.add_node(), sink = network.add_node(), a = network.add_node(), b = network.add_node(),
            c = network.add_node();
  network.add_edge(source, a, uncuttable);
  network.add_edge(a, b, 3);
  network.add_edge(b, c, 5);
  network.add_edge(c, sink, uncuttable);
  const auto side = network.on_side_of_sink(source, sink);
  EXPECT_FALSE(side[static_cast<size_t>(a)]);
  EXPECT_TRUE(side[static_cast<size_t>(b)]);
  EXPECT_TRUE(side[static_cast<size_t>(c)]);
}

TEST(MinCut, OfEqualCutsTakesTheOneNearTheSink) {
  FlowNetwork network;
  const int source = network.add_node(), sink = network.add_node(), a = network.add_node(), b = network.add_node();
  network.add_edge(source, a, 4);
  network.add_edge(a, b, 4);
  network.add_edge(b, sink, 4);
  const auto side = network.on_side_of_sink(source, sink);
  EXPECT_FALSE(side[static_cast<size_t>(a)]);
  EXPECT_FALSE(side[static_cast<size_t>(b)]);
}

/// Two ways of 2 each leave a, one of 3 leads to it: what was pushed along one way must be taken back.
TEST(MinCut, FollowsSeveralWays) {
  FlowNetwork network;
  const int source = network.add_node(), sink = network.add_node(), a = network.add_node(), b = network.add_node(),
            c = network.add_node();
  network.add_edge(source, a, 3);
  network.add_edge(a, b, 2);
  network.add_edge(a, c, 2);
  network.add_edge(b, sink, 2);
  network.add_edge(c, sink, uncuttable);
  const auto side = network.on_side_of_sink(source, sink);
  EXPECT_FALSE(side[static_cast<size_t>(source)]);
  EXPECT_TRUE(side[static_cast<size_t>(a)]);
  EXPECT_TRUE(side[static_cast<size_t>(c)]);
}

TEST(MinCut, WithoutAnyWayEverythingBeforeTheSinkIsOnItsSide) {
  FlowNetwork network;
  const int source = network.add_node(), sink = network.add_node(), a = network.add_node();
  network.add_edge(a, sink, 1);
  const auto side = network.on_side_of_sink(source, sink);
  EXPECT_TRUE(side[static_cast<size_t>(a)]);
  EXPECT_FALSE(side[static_cast<size_t>(source)]);
}

}  // namespace
}  // namespace piper
