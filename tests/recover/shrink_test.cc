// The schedules that go on when devices are lost, line by line; what does not fit, or is nowhere left, is not offered.
#include "recover/shrink.h"

#include <gtest/gtest.h>

#include "compile/compile.h"
#include "cost/load_cluster.h"
#include "model/load_model.h"
#include "must.h"
#include "recover/sharing.h"
#include "schedule/schedule_text.h"

namespace piper {
namespace {

struct Case {
  std::string schedule;
  DeviceList lost;
  std::string model = "examples/moe.toml";
  Cluster cluster = must(load_cluster("h100"));

  Result<Evaluated> run() const {
    const auto graph =
        std::make_shared<const ModelGraph>(must(load_model(std::string(PIPER_SOURCE_DIR) + "/" + model)));
    return shrink({parsed(), graph, cluster, costs}, lost);
  }
  Schedule parsed() const { return must(parse_schedule(make_source("a.piper", schedule))); }
  std::optional<CostTable> costs = {};
};

/// What of a text a line of the other does not have.
std::string new_lines(const std::string& before, const std::string& after) {
  std::string out;
  for (size_t at = 0; at < after.size();) {
    const size_t end = after.find('\n', at) + 1;
    const std::string line = after.substr(at, end - at);
    if (before.find(line) == before.npos) out += line;
    at = end;
  }
  return out;
}

std::string changes(const Case& of) {
  const auto without = of.run();
  return without ? new_lines(print(of.parsed()), print(without->schedule)) : render(without.error());
}

const std::string pipeline = R"(mesh(pp=4, dp=2)
split(batch, parts=8, as=mb)
place({}, along=pp, stages=4)
replicate({}, along=dp, zero=1)
use 1f1b(stages=stage, microbatches=mb)
)";

TEST(Shrink, AReplicaDoesTheWorkOfTheOther) {
  EXPECT_EQ(changes({pipeline, {3}}), R"(place({}, along=pp, stages=4, at=[5, 7, 11])
lose(devices=[3], along=dp)
use list(stages=stage, microbatches=mb)
)");
}

TEST(Shrink, StagesWithoutReplicasAreCutAnew) {
  EXPECT_EQ(changes({pipeline, {2, 3}}), R"(place({}, along=pp, stages=3, ranks=[0, 2, 3])
lose(devices=[2, 3])
use list(stages=stage, microbatches=mb)
)");
}

TEST(Shrink, AnEarlierLossStays) {
  const Case once{pipeline, {3}};
  const Schedule after = must(once.run()).schedule;
  Case twice{print(after), {6}};
  EXPECT_EQ(print(must(twice.run()).schedule), print(must(Case{pipeline, {3, 6}}.run()).schedule));
}

TEST(Shrink, OfEightReplicasSevenTakeTurns) {
  EXPECT_EQ(changes({"mesh(dp=8)\nsplit(batch, parts=4, as=mb)\nplace({}, mesh={})\nreplicate({}, along=dp)\n", {5}}),
            R"(split(batch, parts=32, as=mb)
lose(devices=[5], along=dp, replicas=1)
)");
}

const std::string lists = R"(devices(3)
split(batch, parts=4, as=mb)
place({embed=*}, devices=[0], stage=0)
place({layer=0..7}, devices=[0], stage=0)
place({layer=8..11}, devices=[1], stage=1)
place({layer=12..15}, devices=[2], stage=2)
place({head=*}, devices=[2], stage=2)
use 1f1b(stages=stage, microbatches=mb)
)";

TEST(Shrink, ListsGoOnWithAnothersDevices) {
  EXPECT_EQ(changes({lists, {1}}), R"(place({layer=8..11}, devices=[2], stage=1)
lose(devices=[1])
use list(stages=stage, microbatches=mb)
)");
}

TEST(Shrink, IdleDevicesAreNoLoss) {
  const std::string idle = "devices(2)\nplace({}, devices=[0])\n";
  const Evaluated without = must(Case{idle, {1}}.run());
  EXPECT_EQ(print(without.schedule), idle + "lose(devices=[1])\n");
}

ErrorCode refused(const Case& of) {
  const auto without = of.run();
  EXPECT_FALSE(without) << print(without->schedule);
  return without.error().code;
}

TEST(Shrink, SaysWhyNothingGoesOn) {
  EXPECT_EQ(refused({pipeline, {8}}), ErrorCode::E205);
  EXPECT_EQ(refused({pipeline, {0, 1, 2, 3, 4, 5, 6, 7}}), ErrorCode::E319);
  EXPECT_EQ(refused({"devices(1)\nplace({}, devices=[0])\n", {0}}), ErrorCode::E319);
}

/// One byte less than what the best needs: something else, or nothing.
TEST(Shrink, OffersOnlyWhatFits) {
  Case of{pipeline, {3}};
  const Evaluated best = must(of.run());
  for (DeviceKind& kind : of.cluster.kinds) kind.memory = best.memory.total;
  EXPECT_EQ(print(must(of.run()).schedule), print(best.schedule));
  for (DeviceKind& kind : of.cluster.kinds) kind.memory = best.memory.total - 1;
  const auto other = of.run();
  if (other) {
    EXPECT_LT(other->memory.total, best.memory.total);
  }
  for (DeviceKind& kind : of.cluster.kinds) kind.memory = 1'000'000;
  EXPECT_EQ(refused(of), ErrorCode::E405);
}

TEST(SingleLosses, AreThoseOfTheFirstOfEachKind) {
  const Case of{pipeline, {}};
  const auto graph =
      std::make_shared<const ModelGraph>(must(load_model(std::string(PIPER_SOURCE_DIR) + "/" + of.model)));
  const Schedule schedule = of.parsed();
  const auto losses = single_losses({schedule, graph, of.cluster, of.costs}, {{0, 1}, {2, 3}});
  ASSERT_EQ(losses.size(), 2u);
  for (const SingleLoss& loss : losses) {
    const Evaluated alone = must(shrink({schedule, graph, of.cluster, of.costs}, {loss.devices[0]}));
    EXPECT_EQ(print(must(Result<Evaluated>(loss.without)).schedule), print(alone.schedule));
    EXPECT_EQ(loss.without->report.seconds, alone.report.seconds);
  }
}

}  // namespace
}  // namespace piper
