// precision in predictions: which work is in float8, and how long it takes (memory: golden/directives/precision.test).
#include <gtest/gtest.h>

#include <set>

#include "compile/compile.h"
#include "model/load_model.h"
#include "must.h"
#include "plan/plan_text.h"
#include "schedule/schedule_text.h"
#include "sim/simulate.h"

namespace piper {
namespace {

Compiled compiled(const std::string& schedule, const std::string& model = "analytic:Llama-3-8B",
                  LayerForm form = LayerForm::Blocks) {
  return must(compile(std::make_shared<const ModelGraph>(must(load_model(model, {}, form))),
                      must(parse_schedule(make_source("schedule", schedule)))));
}

const std::string one = "devices(1)\nplace({}, devices=[0])\n";
const std::string layers = "precision({layer=*}, matmul=float8)\n";

double step_seconds(const Compiled& of) {
  return must(simulate(of.plan, Cluster())).seconds;
}

const PlanWork& work_of(const Plan& plan, const std::string& chunk, Pass pass) {
  for (const PlanWork& work : plan.works)
    if (work.pass == pass && plan.names[work.name] == chunk) return work;
  throw std::runtime_error("no work of " + chunk);
}

TEST(Precision, MarksLinearProductsOfItsChunks) {
  const Plan plan = compiled(one + layers).plan;
  for (const Pass pass : {Pass::F, Pass::B}) {
    const PlanWork &layer = work_of(plan, "layer.3.mlp", pass), &head = work_of(plan, "head", pass);
    EXPECT_TRUE(layer.float8);
    EXPECT_FALSE(head.float8);
    for (const MatrixProduct& product : layer.does.operators->products) EXPECT_EQ(product.kind, ProductKind::Float8);
    for (const MatrixProduct& product : head.does.operators->products) EXPECT_EQ(product.kind, ProductKind::Other);
  }
  const Plan back = must(parse_plan(make_source("plan", print(plan))));
  EXPECT_EQ(back, plan);
  EXPECT_NE(hash(plan), hash(compiled(one).plan));
}

/// Attention multiplies as ever.
TEST(Precision, LeavesAttention) {
  const Plan plan = compiled(one + layers).plan;
  int float8 = 0, other = 0;
  for (const MatrixProduct& product : work_of(plan, "layer.0.attention", Pass::F).does.operators->products)
    ++(product.kind == ProductKind::Float8 ? float8 : other);
  EXPECT_EQ(float8, 4);
  EXPECT_EQ(other, 2);
}

TEST(Precision, TakesLessTime) {
  const double gain = step_seconds(compiled(one)) / step_seconds(compiled(one + layers));
  EXPECT_GT(gain, 1.2);
  EXPECT_LT(gain, 2);
}

/// Of a divided layer each device has its part of the products.
TEST(Precision, OfDividedLayers) {
  const Plan plan = compiled("mesh(tp=2)\nplace({}, mesh={})\nshard({layer=*}, along=tp)\n" + layers,
                             "analytic:Llama-3-8B", LayerForm::Sharded)
                        .plan;
  std::set<int64_t> widths;
  for (const PlanWork& work : plan.works)
    if (work.float8 && work.pass == Pass::F)
      for (const MatrixProduct& product : work.does.operators->products)
        if (product.kind == ProductKind::Float8) widths.insert({product.columns, product.depth});
  EXPECT_EQ(widths, (std::set<int64_t>{512, 2048, 4096, 7168}));
}

}  // namespace
}  // namespace piper
