// Training DAGs as text: what is printed reads back, after every pass; what is malformed is refused at its place.
#include "ir/dag_text.h"

#include <gtest/gtest.h>

#include "../compiled_examples.h"
#include "ir/verify_dag.h"

namespace piper {
namespace {

class CompiledDag : public testing::TestWithParam<examples::Example> {};

TEST_P(CompiledDag, ReadsBackAfterEveryPass) {
  CompileOptions options;
  options.verify_every_pass = true;
  options.after_pass = [](std::string_view pass, const TrainingDag& dag) {
    const std::string text = print(dag);
    auto back = parse_dag(make_source("dag", text), dag.model);
    ASSERT_TRUE(back) << pass << ": " << render(back.error());
    EXPECT_EQ(print(*back), text) << pass;
    EXPECT_EQ(back->nodes, dag.nodes) << pass;
    EXPECT_EQ(back->groups, dag.groups) << pass;
    EXPECT_EQ(back->residences, dag.residences) << pass;
    EXPECT_EQ(back->buckets, dag.buckets) << pass;
    EXPECT_EQ(back->brackets, dag.brackets) << pass;
    EXPECT_EQ(back->prefetches, dag.prefetches) << pass;
    EXPECT_EQ(back->origins, dag.origins) << pass;
    EXPECT_EQ(back->edges.size(), dag.edges.size()) << pass;
    EXPECT_TRUE(verify(*back)) << pass;
  };
  auto compiled = examples::compile(GetParam(), options);
  ASSERT_TRUE(compiled) << render(compiled.error());
}
INSTANTIATE_TEST_SUITE_P(Examples, CompiledDag, testing::ValuesIn(examples::all()), examples::name_of);

/// Chunks, values and dims that look like words of the form.
constexpr std::string_view odd_model = R"(model "an odd one"
step batch=4
input after int64 [b]
value weights float32 [b, 8]
value scalars float32 [b, 8]
value gradients float32 [b, 8]
value "%1" float32 [b, 8]
loss over float32 []
parameter k0 float32 [8]
chunk on {layer=0}
  F (after) -> (weights) parameters(k0)
  B (gradients) -> () gradients(k0)
chunk F {layer=1}
  F (weights) -> (scalars) parameters(k0)
  B (weights, "%1") -> (gradients) gradients(k0)
chunk "- x" {layer=2}
  F (scalars) -> (over)
  B (scalars) -> ("%1")
)";

TEST(DagText, NamesThatLookLikeSyntaxReadBack) {
  auto model = parse_model(make_source("odd", std::string(odd_model)));
  ASSERT_TRUE(model) << render(model.error());
  auto shared = std::make_shared<const ModelGraph>(*std::move(model));
  const std::string text = R"(mesh(pp=2)
split(batch, parts=2, as=F)
split(batch, parts=2, as="after(")
place({}, along=pp, stages=2, as=on, stream="on", transfers="by=1")
)";
  auto schedule = parse_schedule(make_source("s", text));
  ASSERT_TRUE(schedule) << render(schedule.error());
  auto compiled = compile(shared, *schedule);
  ASSERT_TRUE(compiled) << render(compiled.error());
  const std::string printed = print(compiled->linear.dag);
  auto back = parse_dag(make_source("dag", printed), shared);
  ASSERT_TRUE(back) << render(back.error());
  EXPECT_EQ(print(*back), printed);
  EXPECT_EQ(back->nodes, compiled->linear.dag.nodes);
}

TEST(DagText, ExampleInTheDocsReadsBack) {
  auto model = parse_model(make_source("tiny", examples::block_in_docs("model.md", "model tiny")));
  ASSERT_TRUE(model) << render(model.error());
  const std::string text = examples::block_in_docs("dag.md", "dag tiny");
  auto dag = parse_dag(make_source("dag", text), std::make_shared<const ModelGraph>(*std::move(model)));
  ASSERT_TRUE(dag) << render(dag.error());
  EXPECT_EQ(print(*dag), text);
}

struct Malformed {
  std::string text;
  ErrorCode code;
  int line;
  std::string message;
};

/// The model is examples::model(1): chunks embed, attention.0, experts.0, combine.0, head.
const std::string header =
    "dag small devices=2\n"
    "directive 0 \"s:1\" \"place({}, devices=[0, 1])\"\n"
    "stream compute\n"
    "group g0 [0, 1] (\"\"=2)\n"
    "partition p0 g0 size=2 [0, 1]\n"
    "bucket k0 float32 trainable 8 (table)\n";  // 6 lines

class MalformedDag : public testing::TestWithParam<Malformed> {};

TEST_P(MalformedDag, IsRefusedAtItsPlace) {
  auto dag = parse_dag(make_source("dag", GetParam().text), examples::model(1));
  ASSERT_FALSE(dag);
  const Diagnostic& problem = dag.error();
  EXPECT_EQ(name(problem.code), name(GetParam().code)) << render(problem);
  EXPECT_NE(problem.message.find(GetParam().message), std::string::npos) << render(problem);
  ASSERT_TRUE(problem.where);
  EXPECT_EQ(position_of(problem.where).line, GetParam().line) << render(problem);
}
INSTANTIATE_TEST_SUITE_P(
    DagText, MalformedDag,
    testing::Values(
        Malformed{"", ErrorCode::E101, 1, "expected 'dag'"},
        Malformed{"dag other devices=1", ErrorCode::E410, 1, "of model other, not small"},
        Malformed{"dag small devices=-1", ErrorCode::E410, 1, "number of devices"},
        Malformed{"dag small devices=99999999", ErrorCode::E410, 1, "number of devices"},
        Malformed{"dag small devices=1\nnonsense", ErrorCode::E101, 2, "a table, a node"},
        Malformed{"dag small devices=1\ndirective 1 a b", ErrorCode::E410, 2, "stands where 0 must"},
        Malformed{"dag small devices=2\nmesh (pp=3)", ErrorCode::E410, 2, "do not make 2 devices"},
        Malformed{"dag small devices=2\nmesh (a=100000, b=100000, c=100000)", ErrorCode::E410, 2, "do not make 2"},
        Malformed{"dag small devices=1\ndim mb 8", ErrorCode::E410, 2, "8 slices do not fit"},
        Malformed{"dag small devices=1\ndim mb 999999999999", ErrorCode::E410, 2, "number of parts"},
        Malformed{"dag small devices=1\nstages stage (0, 1)", ErrorCode::E410, 2, "2 stages for 5 chunks"},
        Malformed{"dag small devices=1\nstream a\nstream a", ErrorCode::E410, 3, "stands twice"},
        Malformed{"dag small devices=1\ngroup g1 [0] (\"\"=1)", ErrorCode::E410, 2, "stands where g0 must"},
        Malformed{"dag small devices=1\ngroup g0 [1] (\"\"=1)", ErrorCode::E410, 2, "device 1 does not exist"},
        Malformed{"dag small devices=2\ngroup g0 [1, 1] (\"\"=2)", ErrorCode::E410, 2, "twice"},
        Malformed{"dag small devices=2\ngroup g0 [0, 1] (\"\"=3)", ErrorCode::E410, 2, "do not make 2"},
        Malformed{header + "group g1 [0, 1] (\"\"=2)", ErrorCode::E101, 7, "too late"},
        Malformed{"dag small devices=1\ngroup g0 [0] (\"\"=1)\ngroup g1 [0] (\"\"=1)", ErrorCode::E410, 3,
                  "equal to g0"},
        Malformed{"dag small devices=1\ngroup g0 [0] (\"\"=1)\npartition p0 g0 size=2 [0]", ErrorCode::E410, 3,
                  "does not cut"},
        Malformed{"dag small devices=1\ngroup g0 [0] (\"\"=1)\nresidence body g0", ErrorCode::E410, 3,
                  "unknown chunk \"body\""},
        Malformed{"dag small devices=1\ngroup g0 [0] (\"\"=1)\nresidence embed g0\nsharded expert stream=ep by=0",
                  ErrorCode::E410, 4, "there is none"},
        Malformed{"dag small devices=1\ngroup g0 [0] (\"\"=1)\nsharded expert stream=ep", ErrorCode::E410, 3,
                  "below no residence"},
        Malformed{"dag small devices=1\ngroup g0 [0] (\"\"=1)\nresidence embed g0\nsharded tokens stream=ep",
                  ErrorCode::E101, 4, "expert, tp, sequence, context or heads"},
        Malformed{"dag small devices=1\ngroup g0 [0] (\"\"=1)\nresidence embed g0\nreplicated zero=1", ErrorCode::E410,
                  4, "needs over="},
        Malformed{header + "bucket k1 float33 trainable 8 (table)", ErrorCode::E410, 7, "unknown dtype"},
        Malformed{header + "bucket k1 float32 trainable 8 (tables)", ErrorCode::E410, 7, "unknown parameter"},
        Malformed{header + "holder k1 g0 over=p0", ErrorCode::E410, 7, "unknown bucket k1"},
        Malformed{header + "holder k0 g0 over=p0 zero=4", ErrorCode::E410, 7, "ZeRO level"},
        Malformed{header + "holder k0 g0 over=p0 zero=1", ErrorCode::E410, 7, "needs over="},
        Malformed{header + "holder k0 g0 over=p0 by=0", ErrorCode::E410, 7, "directive 0 is place, expected replicate"},
        Malformed{header + "%1 = compute embed F whole", ErrorCode::E410, 7, "stands where %0 must"},
        Malformed{header + "%0 = dance embed F whole", ErrorCode::E101, 7, "compute, transfer"},
        Malformed{header + "%0 = compute embed F whole @ g1", ErrorCode::E410, 7, "unknown group g1"},
        Malformed{header + "%0 = compute embed F whole @ g0 on dp", ErrorCode::E410, 7, "unknown stream"},
        Malformed{header + "%0 = compute embed F whole after(%1:x.0)", ErrorCode::E410, 7, "unknown node %1"},
        Malformed{header + "%0 = compute embed F whole after(%0:y)", ErrorCode::E410, 7, "unknown value"},
        Malformed{header + "%0 = compute embed F whole after(%0/1)", ErrorCode::E410, 7, "a directive must be"},
        Malformed{header + "%0 = compute embed F whole by=0 by=0", ErrorCode::E101, 7, "one more of"},
        Malformed{header + "%0 = all_reduce gradients(k1) over p0 - @ g0", ErrorCode::E410, 7, "unknown bucket k1"},
        Malformed{header + "%0 = all_reduce gradients(k0) over p1 - @ g0", ErrorCode::E410, 7, "unknown partition p1"},
        Malformed{header + "%0 = update k0 -\n", ErrorCode::E410, 7, "node %0 is not placed"},
        Malformed{header + "%0 = compute embed\n", ErrorCode::E410, 7, "node %0"},
        Malformed{header + "%0 = compute embed F whole\n%1 = compute head B whole after(%0:d.x.1)", ErrorCode::E410, 8,
                  "does not write it"},
        Malformed{header + "%0 = compute embed F whole after(\n%0:x.0)", ErrorCode::E410, 1, "no node"},
        Malformed{header + "%0 = compute embed F whole\nbracket (%0) by=0", ErrorCode::E410, 8, "expected order"},
        Malformed{header + "%0 = compute embed F whole\nprefetch %0 -1", ErrorCode::E410, 8, "a distance"}));

TEST(DagText, TextCutAnywhereIsRefusedOrShorter) {
  auto compiled = examples::compile(examples::all()[3]);
  ASSERT_TRUE(compiled);
  const std::string text = print(compiled->linear.dag);
  for (size_t cut = 0; cut < text.size(); cut += 31)
    (void)parse_dag(make_source("dag", text.substr(0, cut)), examples::model());
}

}  // namespace
}  // namespace piper
