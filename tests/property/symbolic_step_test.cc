// The symbolic step is only worth something if it notices faults: one planted fault of every kind, each found.
#include "property/symbolic_step.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "compiled_examples.h"
#include "plan/lower.h"

namespace piper::property {
namespace {

using testing::Contains;
using testing::HasSubstr;

LinearDag compiled(const std::string& schedule) {
  auto result = examples::compile({"example", schedule});
  if (!result) throw std::runtime_error(render(result.error()));
  return std::move(result->linear);
}

std::vector<std::string> faults_of(const LinearDag& linear) {
  return run_symbolically(linear, lower(linear, 0));
}

/// The n-th node of the order whose name has all these words in it.
NodeId find(const LinearDag& linear, const std::vector<std::string>& words, int n = 0) {
  for (const NodeId id : linear.order) {
    const std::string name = name_of(linear.dag, id);
    const bool all = std::all_of(words.begin(), words.end(),
                                 [&](const std::string& w) { return name.find(w) != std::string::npos; });
    if (all && n-- == 0) return id;
  }
  throw std::runtime_error("no such node");
}

size_t place_of(const LinearDag& linear, NodeId id) {
  return static_cast<size_t>(std::find(linear.order.begin(), linear.order.end(), id) - linear.order.begin());
}
void drop(LinearDag& linear, NodeId id) {
  std::erase(linear.order, id);
}
void repeat(LinearDag& linear, NodeId id) {
  linear.order.insert(linear.order.begin() + static_cast<std::ptrdiff_t>(place_of(linear, id)), NodeId(id));
}
void move_before(LinearDag& linear, NodeId id, NodeId other) {
  drop(linear, id);
  linear.order.insert(linear.order.begin() + static_cast<std::ptrdiff_t>(place_of(linear, other)), id);
}
Collective& collective(LinearDag& linear, NodeId id) {
  return std::get<Collective>(linear.dag[id].op);
}

std::string replicated(int zero) {
  return fmt::format(
      "devices(2)\nsplit(batch, parts=2, as=mb)\nplace({{}}, devices=[0, 1])\n"
      "replicate({{}}, devices=[0, 1], zero={}, bucket=8KB)\n",
      zero);
}
const std::string pipeline =
    "mesh(pp=2, dp=2)\nsplit(batch, parts=4, as=mb)\nplace({}, along=pp, stages=2)\nreplicate({}, along=dp)\n";
const std::string experts =
    "mesh(edp=2, ep=2)\nplace({}, mesh={})\nreplicate({}, along=[edp, ep])\nshard({experts=*}, along=ep)\n";
const std::string different_groups =
    "devices(3)\nsplit(batch, parts=2, as=mb)\nplace({embed=0}, devices=[0, 1])\nplace({layer=*}, devices=[0, 1])\n"
    "place({head=0}, devices=[2])\nreplicate({layer=*}, devices=[0, 1], zero=1)\nreplicate({embed=0}, devices=[0, 1], "
    "zero=0)\n";

class ExampleStep : public testing::TestWithParam<examples::Example> {};

TEST_P(ExampleStep, IsRight) {
  auto result = examples::compile(GetParam());
  ASSERT_TRUE(result) << render(result.error());
  EXPECT_THAT(run_symbolically(result->linear, result->plan), testing::IsEmpty());
}
INSTANTIATE_TEST_SUITE_P(Examples, ExampleStep, testing::ValuesIn(examples::all()), examples::name_of);

TEST(PlantedFault, ReductionIsLeftOut) {
  LinearDag linear = compiled(replicated(0));
  drop(linear, find(linear, {"all_reduce.gradients"}));
  EXPECT_THAT(faults_of(linear), Contains(HasSubstr("is not complete, each once")));
}

TEST(PlantedFault, ReductionRunsTwice) {
  LinearDag linear = compiled(replicated(0));
  repeat(linear, find(linear, {"all_reduce.gradients"}));
  EXPECT_THAT(faults_of(linear), Contains(HasSubstr("2 times")));
}

TEST(PlantedFault, ReductionDoesNotWaitForTheLastBackward) {
  LinearDag linear = compiled(replicated(0));
  move_before(linear, find(linear, {"all_reduce.gradients0"}), find(linear, {"head.B.mb1"}));
  EXPECT_THAT(faults_of(linear), Contains(HasSubstr("is not complete, each once")));
}

TEST(PlantedFault, OneSliceIsNotReduced) {
  for (const int zero : {2, 3}) {
    LinearDag linear = compiled(replicated(zero));
    drop(linear, find(linear, {"reduce_scatter.gradients", "mb1"}));
    EXPECT_THAT(faults_of(linear), Contains(HasSubstr("is not complete, each once")));
  }
}

TEST(PlantedFault, BackwardRunsTwice) {
  LinearDag linear = compiled(replicated(1));
  repeat(linear, find(linear, {"attention.1.B.mb0"}));
  const std::vector<std::string> faults = faults_of(linear);
  EXPECT_THAT(faults, Contains(HasSubstr("does not run once")));
  EXPECT_THAT(faults, Contains(HasSubstr("2 times")));
}

TEST(PlantedFault, ExpertsAreReducedOverOtherExperts) {
  LinearDag linear = compiled(experts);
  for (size_t b = 0; b < linear.dag.buckets.size(); ++b) {
    const Holder& holder = linear.dag.buckets[b].holders[0];
    if (linear.dag.groups[holder.copies].part_size != 2) continue;
    collective(linear, find(linear, {fmt::format("all_reduce.gradients{}[", b)})).over =
        linear.dag.groups.whole(holder.group);
    EXPECT_THAT(faults_of(linear), Contains(HasSubstr("mixes gradients of different experts")));
    return;
  }
  FAIL() << "no bucket of experts";
}

TEST(PlantedFault, ReducedAlongOneAxisOnly) {
  LinearDag linear = compiled(experts);
  for (size_t b = 0; b < linear.dag.buckets.size(); ++b) {
    const Holder& holder = linear.dag.buckets[b].holders[0];
    if (linear.dag.groups[holder.copies].part_size != 4) continue;
    for (const char* axis : {"ep", "edp"}) {
      collective(linear, find(linear, {fmt::format("all_reduce.gradients{}[", b)})).over =
          linear.dag.groups.along(holder.group, {axis});
      EXPECT_THAT(faults_of(linear), Contains(HasSubstr("is not complete, each once")));
    }
    return;
  }
  FAIL() << "no bucket without experts";
}

/// Only between groups does a reduction run on devices that no holder is.
NodeId between_groups(const LinearDag& linear) {
  for (const NodeId id : linear.order)
    if (const auto* c = std::get_if<Collective>(&linear.dag[id].op); c && c->item.kind == Item::Kind::Gradients) {
      const auto& holders = linear.dag[c->item.bucket_id()].holders;
      if (std::none_of(holders.begin(), holders.end(),
                       [&](const Holder& h) { return h.group == linear.dag[id].group; }))
        return id;
    }
  throw std::runtime_error("no reduction between groups");
}

TEST(PlantedFault, GroupsThatShareAParameterDoNotReduceIt) {
  const std::string two_way =
      "mesh(pp=2)\nsplit(batch, parts=4, as=mb)\nplace({}, along=pp, stages=2, shape=two_way)\n";
  for (const std::string& schedule : {pipeline, different_groups, two_way}) {
    LinearDag linear = compiled(schedule);
    drop(linear, between_groups(linear));
    EXPECT_THAT(faults_of(linear), Contains(HasSubstr("is not complete, each once")));
  }
}

TEST(PlantedFault, EveryMemberOfAGroupCountsItsSum) {
  LinearDag linear = compiled(pipeline);
  collective(linear, find(linear, {"reduce_scatter.gradients"})).kind = CollectiveKind::AllReduce;
  EXPECT_THAT(faults_of(linear), Contains(HasSubstr("2 times")));
}

TEST(PlantedFault, TransferCarriesAnotherMicrobatch) {
  LinearDag linear = compiled(pipeline);
  const NodeId one = find(linear, {"transfer.", ".F.mb0"}), two = find(linear, {"transfer.", ".F.mb1"});
  Edge *into_one = nullptr, *into_two = nullptr;
  for (Edge& edge : linear.dag.edges) {
    if (edge.to == one) into_one = &edge;
    if (edge.to == two) into_two = &edge;
  }
  std::swap(into_one->from, into_two->from);
  move_before(linear, one, find(linear, {"head.F.mb0"}));  // both have been computed by then
  move_before(linear, two, find(linear, {"head.F.mb0"}));
  EXPECT_THAT(faults_of(linear), Contains(HasSubstr("which is not for it")));
}

TEST(PlantedFault, TransferDeliversToTheWrongReplica) {
  for (const std::string& schedule : {pipeline, different_groups}) {
    LinearDag linear = compiled(schedule);
    Node& node = linear.dag[find(linear, {"transfer."}, schedule == pipeline ? 0 : 2)];
    GroupId& side = schedule == pipeline ? node.group : node.group;
    DeviceGroup turned = linear.dag.groups[side];
    if (turned.size() == 1) continue;
    std::reverse(turned.devices.begin(), turned.devices.end());
    side = linear.dag.groups.intern(turned);
    EXPECT_THAT(faults_of(linear), Contains(HasSubstr("which is not for it")));
  }
}

TEST(PlantedFault, ExchangeIsLeftOut) {
  for (const int n : {0, 1, 2, 3}) {
    LinearDag linear = compiled(experts);
    const NodeId exchange = find(linear, {"all_to_all."}, n);
    NodeId source;
    for (const Edge& edge : linear.dag.edges)
      if (edge.to == exchange) source = edge.from;
    for (Edge& edge : linear.dag.edges)
      if (edge.from == exchange) edge.from = source;
    drop(linear, exchange);
    EXPECT_THAT(faults_of(linear), Contains(HasSubstr("which is not for it")));
  }
}

TEST(PlantedFault, ExchangeIsAmongTheWrongDevices) {
  LinearDag linear = compiled(experts);
  Collective& exchange = collective(linear, find(linear, {"all_to_all."}));
  exchange.over = linear.dag.groups.along(linear.dag.groups[exchange.over].group, {"edp"});
  EXPECT_THAT(faults_of(linear), Contains(HasSubstr("which is not for it")));
}

TEST(PlantedFault, NewWeightsAreNotGathered) {
  for (const int zero : {1, 2}) {
    LinearDag linear = compiled(replicated(zero));
    drop(linear, find(linear, {"all_gather.weights"}));
    EXPECT_THAT(faults_of(linear), Contains(HasSubstr("ends with old weights")));
  }
}

TEST(PlantedFault, WeightsAreNotGatheredBeforeUse) {
  LinearDag linear = compiled(replicated(3));
  drop(linear, find(linear, {"all_gather.weights", ".F.mb0"}));
  EXPECT_THAT(faults_of(linear), Contains(HasSubstr("misses the weights")));
}

TEST(PlantedFault, WeightsAreUsedAfterTheUpdate) {
  LinearDag linear = compiled(replicated(0));
  move_before(linear, find(linear, {"update."}), find(linear, {"embed.F.mb0"}));
  const std::vector<std::string> faults = faults_of(linear);
  EXPECT_THAT(faults, Contains(HasSubstr("does not wait for the step's scalars")));
  EXPECT_THAT(faults, Contains(HasSubstr("uses wrong weights")));
}

TEST(PlantedFault, UpdateIsLeftOut) {
  LinearDag linear = compiled(replicated(3));
  drop(linear, find(linear, {"update."}));
  EXPECT_THAT(faults_of(linear), Contains(HasSubstr("ends with old weights")));
}

TEST(PlantedFault, ForwardIsNotComputedAgain) {
  LinearDag linear = compiled("devices(1)\nplace({}, devices=[0])\nrecompute({layer=*})\n");
  drop(linear, find(linear, {"attention.1.R"}));
  EXPECT_THAT(faults_of(linear), Contains(HasSubstr("misses")));
}

TEST(PlantedFault, LossIsNotCounted) {
  LinearDag linear = compiled(replicated(0));
  const NodeId scalars = find(linear, {"all_reduce.scalars"});
  const auto loss = std::find_if(linear.dag.edges.begin(), linear.dag.edges.end(),
                                 [&](const Edge& e) { return e.to == scalars && e.item.is_value(); });
  linear.dag.edges.erase(loss);
  EXPECT_THAT(faults_of(linear), Contains(HasSubstr("counts the losses of 8 samples")));
}

}  // namespace
}  // namespace piper::property
