// Plans as text: what is printed reads back equal, and what is malformed is refused at its place.
#include "plan/plan_text.h"

#include <gtest/gtest.h>

#include "../compiled_examples.h"
#include "plan/verify_plan.h"

namespace piper {
namespace {

Result<Plan> parse(const std::string& text) {
  return parse_plan(make_source("plan", text));
}

class CompiledPlan : public testing::TestWithParam<examples::Example> {};

TEST_P(CompiledPlan, ReadsBackEqual) {
  auto compiled = examples::compile(GetParam());
  ASSERT_TRUE(compiled) << render(compiled.error());
  const std::string text = print(compiled->plan);
  auto back = parse(text);
  ASSERT_TRUE(back) << render(back.error());
  EXPECT_EQ(*back, compiled->plan);
  EXPECT_EQ(print(*back), text);
  EXPECT_EQ(hash(*back), hash(compiled->plan));
  auto sound = verify(*back);
  EXPECT_TRUE(sound) << render(sound.error());
}
INSTANTIATE_TEST_SUITE_P(Examples, CompiledPlan, testing::ValuesIn(examples::all()), examples::name_of);

TEST(PlanText, NamesThatLookLikeSyntaxReadBack) {
  Plan plan;
  plan.model = "a model";
  plan.costs = ~uint64_t{0};
  plan.dims = {{"F", 2}, {"on", 3}};
  plan.streams = {"on", "compute", "on", "with \"quotes\" and \\"};
  plan.names = {"F", "persistent", "F", "on", "a // b # c", "", "whole", "F"};
  plan.origins = {{"file:1", "place({}, devices=[0])"}, {"", ""}};
  plan.groups = {{0}, {7, 3, 4, 5, 6, 1}};
  plan.partitions = {{2, {0, 2, 1, 3}}};
  plan.losses = 12;
  const GroupId first{0}, second{1};
  const PartitionId whole{0};
  plan.buckets = {{NameId(7),
                   DType::BFloat16,
                   DType::Float32,
                   {{NameId(0), 12, true}, {NameId(5), 0, false}},
                   {{first, whole, true}, {second, whole, false}}},
                  {NameId(2), DType::Float64, DType::Float64, {}, {}}};
  plan.works = {
      {NameId(2), Pass::BI, 3, DType::BFloat16, {12, 0, DeviceOperators{{{1, 8, 3, 4}, {2, 5, 6, 7}}, 9, 10}}, second},
      {NameId(2), Pass::F, 3, DType::BFloat16, {12, 0, DeviceOperators{}}, second},
      {NameId(5), std::nullopt, 0, DType::Float32, {0, 7, {}}, first}};
  plan.works.front().shards.of.fill(whole);
  plan.works.front().float8 = true;
  plan.works.front().does.operators->products[1].kind = ProductKind::Float8;
  plan.communications = {{{NameId(2), Pass::B, 5}, true, first, second, {}, 12},
                         {{NameId(4), std::nullopt, -1}, false, {}, {}, whole, 0},
                         {{NameId(4), std::nullopt, -1}, false, {}, {}, whole, 8, Exchange::Divide},
                         {{NameId(4), std::nullopt, -1}, false, {}, {}, whole, 8, Exchange::Gather}};
  PlanTemplate t{{0, 1, 2}, {}, {}};
  for (int n = 0; n < 8; ++n)
    for (const bool persistent : {false, true}) {
      t.buffers.push_back({{NameId(n), Pass::F, n % 6}, static_cast<Category>(n % category_count), n, persistent});
      t.buffers.push_back({{NameId(n), std::nullopt, -1}, Category::Weights, n, persistent});
      t.buffers.push_back({{NameId(n), Pass::R, -1}, Category::Weights, n, persistent});
    }
  for (int k = 0; k < op_kinds; ++k)
    t.ops.push_back({static_cast<OpKind>(k),
                     PlanStreamId(k % 4),
                     {NameId(k % 8), std::nullopt, k % 6},
                     WorkId(k % 3 - 1),
                     CommunicationId(k % 3 - 1),
                     DirectiveId(k % 3 - 1),
                     {OpId(k), OpId(1)},
                     {BufferId(0), BufferId(3)},
                     {BufferId(2)},
                     {}});
  plan.templates = {t};
  auto back = parse(print(plan));
  ASSERT_TRUE(back) << render(back.error());
  EXPECT_EQ(*back, plan) << print(plan);
}

TEST(PlanText, ExampleInTheDocsIsSound) {
  auto plan = parse(examples::block_in_docs("plan.md", "plan tiny"));
  ASSERT_TRUE(plan) << render(plan.error());
  auto sound = verify(*plan);
  EXPECT_TRUE(sound) << render(sound.error());
}

TEST(PlanText, CommentsAndSpacesDoNotMatter) {
  auto plan = parse("# a plan\nplan m costs=1 // hash\nstream s\nname x\n\ntemplate [0]\n  op 0 run x on s # done\n");
  ASSERT_TRUE(plan) << render(plan.error());
  EXPECT_EQ(plan->templates.front().ops.size(), 1u);
}

struct Malformed {
  std::string text;
  ErrorCode code;
  int line;
  std::string message;
};

const std::string header = "plan m costs=1\ndim mb 2\nstream s\nname x\ngroup [0, 1]\npartition 2 [0, 1]\n";

class MalformedPlan : public testing::TestWithParam<Malformed> {};

TEST_P(MalformedPlan, IsRefusedAtItsPlace) {
  auto plan = parse(GetParam().text);
  ASSERT_FALSE(plan);
  const Diagnostic& problem = plan.error();
  EXPECT_EQ(name(problem.code), name(GetParam().code)) << render(problem);
  EXPECT_NE(problem.message.find(GetParam().message), std::string::npos) << render(problem);
  ASSERT_TRUE(problem.where);
  EXPECT_EQ(position_of(problem.where).line, GetParam().line) << render(problem);
}
INSTANTIATE_TEST_SUITE_P(
    PlanText, MalformedPlan,
    testing::Values(
        Malformed{"", ErrorCode::E101, 1, "expected 'plan'"},
        Malformed{"plan m", ErrorCode::E101, 1, "expected 'costs'"},
        Malformed{"plan m costs=x", ErrorCode::E101, 1, "hash"},
        Malformed{header + "parameter x elements=3", ErrorCode::E101, 7, "belongs to a bucket"},
        Malformed{header + "holder 0 over 0", ErrorCode::E101, 7, "belongs to a bucket"},
        Malformed{header + "bucket x float31 float32", ErrorCode::E101, 7, "type of its weights"},
        Malformed{header + "bucket x float32 float32\nholder 1 over 0", ErrorCode::E408, 8, "a group"},
        Malformed{header + "work x F samples=1 float32 flops=0 bytes=0", ErrorCode::E101, 7, "group"},
        Malformed{"plan m costs=99999999999999999999999", ErrorCode::E408, 1, "64 bits"},
        Malformed{"plan m costs=1 dim mb 2", ErrorCode::E101, 1, "end of the line"},
        Malformed{"plan m costs=1\ndims mb 2", ErrorCode::E101, 2, "expected dim"},
        Malformed{"plan m costs=1\ndim mb 0", ErrorCode::E408, 2, "number of parts"},
        Malformed{"plan m costs=1\ndim mb -3", ErrorCode::E408, 2, "not -3"},
        Malformed{"plan m costs=1\ndim mb 1.5", ErrorCode::E101, 2, "number of parts"},
        Malformed{"plan m costs=1\ndim a 100000\ndim b 100000", ErrorCode::E408, 3, "slices together"},
        Malformed{"plan m costs=1\nstream s\ndim mb 2", ErrorCode::E101, 3, "dim cannot stand after stream"},
        Malformed{"plan m costs=1\nop 0 run x on s", ErrorCode::E101, 2, "belongs to a template"},
        Malformed{"plan m costs=1\ngroup []", ErrorCode::E101, 2, "a device"},
        Malformed{"plan m costs=1\ngroup [0..99999999]", ErrorCode::E408, 2, "last device"},
        Malformed{"plan m costs=1\ngroup [5..3]", ErrorCode::E408, 2, "last device"},
        Malformed{"plan m costs=1\ngroup [0, 1", ErrorCode::E101, 2, "expected ']'"},
        Malformed{"plan m costs=1\npartition 0 [0, 1]", ErrorCode::E408, 2, "size of a part"},
        Malformed{header + "communication y transfer 0 -> 0 bytes=1", ErrorCode::E408, 7, "unknown name \"y\""},
        Malformed{header + "communication x transfer 0 -> 1 bytes=1", ErrorCode::E408, 7, "a group must be"},
        Malformed{header + "communication x over 1 bytes=1", ErrorCode::E408, 7, "a partition must be"},
        Malformed{header + "communication x over 0 bytes=-1", ErrorCode::E408, 7, "bytes"},
        Malformed{header + "communication x mb=2 over 0 bytes=1", ErrorCode::E408, 7, "mb must be from 0 to 1"},
        Malformed{header + "communication x", ErrorCode::E101, 7, "'transfer' or 'over'"},
        Malformed{header + "template [0]\n buffer 1 weights 8 x", ErrorCode::E408, 8, "stands where 0 must"},
        Malformed{header + "template [0]\n buffer 0 weight 8 x", ErrorCode::E101, 8, "category"},
        Malformed{header + "template [0]\n buffer 0 weights 9999999999999999999 x", ErrorCode::E408, 8, "bytes"},
        Malformed{
            header + "template [0]\n buffer 0 weights 900000000000000000 x\n buffer 1 weights 900000000000000000 x",
            ErrorCode::E408, 9, "10^18"},
        Malformed{header + "template [0]\n op 0 run x on s\n buffer 0 weights 8 x", ErrorCode::E101, 9,
                  "buffer cannot stand after op"},
        Malformed{header + "template [0]\n op 1 run x on s", ErrorCode::E408, 8, "stands where 0 must"},
        Malformed{header + "template [0]\n op 0 walk x on s", ErrorCode::E101, 8, "kind of operation"},
        Malformed{header + "template [0]\n op 0 run x on t", ErrorCode::E408, 8, "unknown stream \"t\""},
        Malformed{header + "template [0]\n op 0 run x@1 on s", ErrorCode::E408, 8, "number of a name"},
        Malformed{header + "template [0]\n op 0 run x on s reads(%0)", ErrorCode::E408, 8, "unknown buffer %0"},
        Malformed{header + "template [0]\n op 0 run x on s reads(0)", ErrorCode::E101, 8, "buffer such as %0"},
        Malformed{header + "template [0]\n op 0 run x on s waits(-1)", ErrorCode::E408, 8, "an op must be"},
        Malformed{header + "template [0]\n op 0 run x on s waits(99999999999)", ErrorCode::E408, 8, "an op must be"},
        Malformed{header + "template [0]\n op 0 run x on s origin=0", ErrorCode::E408, 8, "there is none"},
        Malformed{"plan m costs=1\nstream s\nname x\norigin a b\ntemplate [0]\n op 0 run x on s origin=0 origin=0",
                  ErrorCode::E101, 6, "twice"},
        Malformed{header + "template [0]\n op 0 run x on s color=1", ErrorCode::E101, 8, "property"}));

TEST(PlanText, ASmallTextMakesNoLargePlan) {
  std::string text = "plan m costs=1\n";
  for (int i = 0; i < 1000; ++i) text += "group [0..1000000]\n";
  auto plan = parse(text);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, ErrorCode::E113);
}

TEST(PlanText, TextCutAnywhereIsRefusedOrShorter) {
  auto compiled = examples::compile(examples::all()[3]);
  ASSERT_TRUE(compiled);
  const std::string text = print(compiled->plan);
  for (size_t cut = 0; cut < text.size(); cut += 31) {
    auto plan = parse(text.substr(0, cut));
    if (plan) (void)verify(*plan);
  }
}

}  // namespace
}  // namespace piper
