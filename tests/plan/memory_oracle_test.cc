// Published memory tables, out of the general accountant: plans are compiled, nothing here knows a formula of theirs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <sstream>

#include "compile/compile.h"
#include "model/analytic/analytic_model.h"
#include "model/analytic/builtin_models.h"
#include "model/analytic/step_overrides.h"
#include "model/model_text.h"
#include "must.h"
#include "plan/issue_order_memory.h"
#include "plan/memory_report.h"
#include "read_csv.h"
#include "schedule/schedule_text.h"

namespace piper {
namespace {

std::string oracle(const std::string& name) {
  return PIPER_SOURCE_DIR "/../shared/oracles/memory/" + name;
}

/// One layer with so many parameters on n replicas.
Plan compile_replicated(int64_t parameters, const std::string& dtypes, int replicas, int zero) {
  const std::string model = fmt::format(R"(model flat
step batch={} sequence=1 {} optimizer=adamw
input t int64 [b]
loss l float32 []
parameter w {} [{}]
chunk layer {{layer=0}}
  F (t) -> (l) parameters(w)
  B (t) -> () parameters(w) gradients(w)
)",
                                        replicas, dtypes, dtypes.substr(8, dtypes.find(' ') - 8), parameters);
  std::string schedule = fmt::format("devices({})\nplace({{}}, devices=[0..{}])\n", replicas, replicas - 1);
  if (replicas > 1) schedule += fmt::format("replicate({{}}, devices=[0..{}], zero={})\n", replicas - 1, zero);
  auto graph = std::make_shared<const ModelGraph>(must(parse_model(make_source("model", model))));
  return must(compile(graph, must(parse_schedule(make_source("schedule", schedule))))).plan;
}

/// Weights, gradients and optimizer state of a device.
int64_t state_bytes(const Plan& plan) {
  int64_t bytes = 0;
  for (const PlanBuffer& buffer : plan.templates.front().buffers)
    if (buffer.persistent) bytes += buffer.bytes;
  return bytes;
}

TEST(MemoryOracle, ZeroPaperTable1) {
  const auto rows = read_csv(oracle("zero_paper_table1.csv"));
  if (rows.empty()) GTEST_SKIP() << "no oracles beside the project";
  for (size_t r = 1; r < rows.size(); ++r) {
    const auto parameters = static_cast<int64_t>(std::stod(rows[r][1]) * 1e9);
    const int replicas = std::stoi(rows[r][2]);
    for (int zero = 0; zero <= 3; ++zero) {
      SCOPED_TRACE(fmt::format("{} dp {} zero {}", rows[r][0], replicas, zero));
      const Plan plan =
          compile_replicated(parameters, "weights=float16 gradients=float16 master=float32", replicas, zero);
      // shards are padded to whole elements of equal number, at most one more than the table's fraction of one
      const double padding =
          static_cast<double>(state_bytes(plan)) - std::stod(rows[r][4 + static_cast<size_t>(zero)]) * 1e9;
      EXPECT_GE(padding, 0);
      EXPECT_LE(padding, parameters % replicas == 0 ? 0 : 16.0 * replicas);
    }
  }
}

TEST(MemoryOracle, ZeroRestated) {  // 7.5 B parameters on 64 devices, from the same table
  const std::string mixed = "weights=float16 gradients=float16 master=float32";
  EXPECT_EQ(state_bytes(compile_replicated(7'500'000'000, mixed, 64, 0)), 120'000'000'000);
  EXPECT_EQ(state_bytes(compile_replicated(7'500'000'000, mixed, 64, 1)), 31'406'250'000);
  EXPECT_EQ(state_bytes(compile_replicated(7'500'000'000, mixed, 64, 2)), 16'640'625'000);
  EXPECT_EQ(state_bytes(compile_replicated(7'500'000'000, mixed, 64, 3)), 1'875'000'000);
}

/// `4 + 16/d`
double bytes_per_parameter(const std::string& formula, int d) {
  const size_t plus = formula.find('+');
  if (plus == std::string::npos) return std::stod(formula);
  return std::stod(formula.substr(0, plus)) + std::stod(formula.substr(plus + 1)) / d;
}

TEST(MemoryOracle, MegatronBytesPerParameter) {
  const auto rows = read_csv(oracle("megatron_bytes_per_param.csv"));
  if (rows.empty()) GTEST_SKIP() << "no oracles beside the project";
  const std::map<std::string, std::string> settings = {
      {"fp16 param, fp16 grads", "weights=float16 gradients=float16 master=float32 master_gradients=float32"},
      {"bf16 param, fp32 grads", "weights=bfloat16 gradients=float32 master=float32"},
      {"fp32 param, fp32 grads", "weights=float32 gradients=float32 master=float32"}};
  constexpr int64_t parameters = 1 << 20;
  for (size_t r = 1; r < rows.size(); ++r) {
    SCOPED_TRACE(rows[r][0]);
    const std::string& dtypes = settings.at(rows[r][0]);
    for (const int d : {1, 2, 4, 8, 64}) {
      EXPECT_EQ(static_cast<double>(state_bytes(compile_replicated(parameters, dtypes, d, 0))) / parameters,
                bytes_per_parameter(rows[r][1], d));
      if (d > 1) {
        EXPECT_EQ(static_cast<double>(state_bytes(compile_replicated(parameters, dtypes, d, 1))) / parameters,
                  bytes_per_parameter(rows[r][2], d));
      }
    }
  }
}

/// Activations that wait for backward when forward has ended.
int64_t bytes_between_passes(const ModelConfig& config, int64_t micro_batch, const std::string& schedule,
                             LayerForm form) {
  StepOverrides step;
  step.batch = micro_batch;
  step.sequence = 2048;
  step.weights = DType::Float16;
  auto model = std::make_shared<const ModelGraph>(must(analytic_model(config, resolve(step, config), form)));
  const Plan plan = must(compile(model, must(parse_schedule(make_source("schedule", schedule))))).plan;
  const PlanTemplate& t = plan.templates.front();
  const FirstTouches touches(t);
  int64_t live = 0;
  for (const OpId i : t.ops.ids()) {
    if (t.ops[i].label.pass != Pass::F) break;
    for (const BufferId b : touches.of(i)) live += t.buffers[b].bytes;
    for (const BufferId b : t.ops[i].frees) live -= t.buffers[b].bytes;
  }
  return live;
}

TEST(MemoryOracle, ActivationsOfALayer) {
  const auto rows = read_csv(oracle("korthikanti_activation_memory.csv"));
  if (rows.empty()) GTEST_SKIP() << "no oracles beside the project";
  for (size_t r = 1; r < rows.size(); ++r) {
    SCOPED_TRACE(rows[r][0]);
    ModelConfig config = must(builtin_model("GPT-3-175B"));
    config.heads = std::stoi(rows[r][1]);
    config.hidden = std::stoi(rows[r][2]);
    config.head_dim = config.hidden / config.heads;
    config.ffn = 4 * config.hidden;
    const int64_t micro_batch = std::stoi(rows[r][8]);
    const auto layer_bytes = [&](const std::string& schedule, LayerForm form) {
      config.layers = 3;
      const int64_t three = bytes_between_passes(config, micro_batch, schedule, form);
      config.layers = 2;
      return three - bytes_between_passes(config, micro_batch, schedule, form);
    };
    const auto expect = [&](size_t column, const std::string& schedule, LayerForm form) {
      EXPECT_EQ(layer_bytes(schedule, form), std::llround(std::stod(rows[r][column]))) << rows[0][column];
    };
    const std::string one = "devices(1)\nplace({}, devices=[0])\n", selective = "recompute({core=*})\n";
    expect(10, one, LayerForm::Blocks);
    expect(10, one, LayerForm::Sharded);
    expect(15, one + "recompute({layer=*})\n", LayerForm::Blocks);
    const std::string cut = fmt::format("mesh(tp={})\nplace({{}}, mesh={{}})\nshard({{layer=*}}, along=tp", rows[r][4]);
    expect(11, cut + ")\n", LayerForm::Sharded);
    expect(12, cut + ", sequence=on, regather=on)\n", LayerForm::Sharded);
    expect(13, cut + ")\n" + selective, LayerForm::Sharded);
    expect(14, cut + ", sequence=on, regather=on)\n" + selective, LayerForm::Sharded);
    const std::string all =
        fmt::format("mesh(tp={})\nplace({{}}, mesh={{}})\nshard({{}}, along=tp, vocabulary=on", rows[r][4]);
    expect(11, all + ")\n", LayerForm::ShardedVocabulary);
    expect(12, all + ", sequence=on, regather=on)\n", LayerForm::ShardedVocabulary);
  }
}

}  // namespace
}  // namespace piper
