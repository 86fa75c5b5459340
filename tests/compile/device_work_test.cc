// What a device does of a step: how much it computes and moves follows from what it has.
#include <gtest/gtest.h>

#include "compile/compile.h"
#include "model/load_model.h"
#include "must.h"
#include "schedule/schedule_text.h"

namespace piper {
namespace {

/// The work of a chunk's forward, or of the first update.
DeviceWork work_of(const std::string& schedule, const std::string& chunk) {
  const auto model = std::make_shared<const ModelGraph>(
      must(load_model(std::string(PIPER_SOURCE_DIR) + "/examples/moe.toml", {}, LayerForm::Blocks)));
  const Plan plan = must(compile(model, must(parse_schedule(make_source("schedule", schedule))))).plan;
  for (const PlanWork& work : plan.works)
    if (chunk.empty() ? !work.pass : work.pass == Pass::F && plan.names[work.name] == chunk) return work.does;
  ADD_FAILURE() << "no work of " << chunk;
  return {};
}

TEST(DeviceWork, DividedExpertsReadTheirOwnWeightsOnly) {
  const std::string replicas = "mesh(dp=4)\nplace({}, mesh={})\nreplicate({}, along=dp)\n";
  const DeviceWork all = work_of(replicas, "layer.0.experts"),
                   quarter = work_of(replicas + "shard({experts=*}, along=dp)\n", "layer.0.experts");
  const auto model = must(load_model(std::string(PIPER_SOURCE_DIR) + "/examples/moe.toml", {}, LayerForm::Blocks));
  int64_t weights = 0;
  for (const Parameter& parameter : model.parameters)
    if (parameter.name.starts_with("layer.0.experts."))
      weights += elements(parameter.shape, 1) * bytes_of(parameter.dtype);
  EXPECT_EQ(all.flops, quarter.flops);  // a quarter of the experts, of four devices' tokens
  EXPECT_EQ(all.bytes - quarter.bytes, weights - weights / 4);
}

TEST(DeviceWork, OnlyZeroDividesUpdates) {
  const auto update = [](int zero) {
    return work_of(fmt::format("mesh(dp=4)\nplace({{}}, mesh={{}})\nreplicate({{}}, along=dp, zero={})\n", zero), "");
  };
  EXPECT_EQ(update(0).bytes, 4 * update(1).bytes);
}

}  // namespace
}  // namespace piper
