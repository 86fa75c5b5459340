// Every model of the table has the published number of parameters, and those of its analytic form.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "model/analytic/analytic_model.h"
#include "model/analytic/builtin_models.h"
#include "models/configurations.h"

namespace piper {
namespace {

using Sizes = std::map<std::string, std::vector<int64_t>>;

Sizes sizes(const TrainableModel& model) {
  Sizes out;
  for (const NamedTensor& item : model.meta.parameters) out[item.name] = item.tensor.sizes().vec();
  return out;
}

Sizes analytic_sizes(const ModelConfig& config) {
  auto graph = analytic_model(config, resolve({}, config));
  if (!graph) throw std::runtime_error(render(graph.error()));
  Sizes out;
  for (const Parameter& parameter : graph->parameters)
    for (const Dim& dim : parameter.shape) out[parameter.name].push_back(dim.size);
  return out;
}

int64_t count(const TrainableModel& model) {
  int64_t total = 0;
  for (const NamedTensor& item : model.meta.parameters) total += item.tensor.numel();
  return total;
}

TEST(Parameters, OfEveryBuiltinModelAreThoseOfItsAnalyticForm) {
  for (const std::string& name : builtin_model_names()) {
    const auto config = builtin_model(name);
    ASSERT_TRUE(config);
    auto model = build_model(ConfigFile{*config, {}, {}}, 1);
    if (config->arch == Architecture::DeepSeekV3) {
      ASSERT_FALSE(model);
      EXPECT_NE(model.error().message.find("latent attention"), std::string::npos);
      continue;
    }
    ASSERT_TRUE(model) << render(model.error());
    EXPECT_EQ(sizes(*model), analytic_sizes(*config)) << name;
  }
}

TEST(Parameters, AreAsManyAsPublished) {
  std::ifstream file(PIPER_SOURCE_DIR "/../shared/oracles/models.json");
  if (!file) GTEST_SKIP() << "no table of published models";
  const nlohmann::json all = nlohmann::json::parse(file);
  int compared = 0;
  for (const auto& [name, published] : all.items()) {
    if (published.at("arch") == "deepseek_v3") continue;
    const TrainableModel model = built("[model]\nname = \"" + name + "\"\n", BuildOn::Meta);
    EXPECT_EQ(count(model), published.at("params").get<int64_t>()) << name;
    ++compared;
  }
  EXPECT_EQ(compared, 16);
}

TEST(Parameters, OfTheReferenceDecoder) {
  const std::map<std::string, int64_t> expected = {
      {"tiny", 888'896}, {"S", 7'508'224}, {"M", 27'927'040}, {"MoE-S", 20'500'736}};
  for (const auto& [name, parameters] : expected)
    EXPECT_EQ(count(built(reference_size(name).config(), BuildOn::Meta)), parameters) << name;
}

}  // namespace
}  // namespace piper
