// Attention within documents: every document has the loss that it would have alone.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "schedule/schedule_text.h"
#include "train/loop/training.h"

namespace piper {
namespace {

constexpr int64_t length = 8;
const std::map<std::string, std::string> schedules = {
    {"one device", "devices(1)\nplace({}, devices=[0])\n"},
    {"1f1b, zero 2",
     "mesh(pp=2, dp=2)\nsplit(batch, parts=2, as=mb)\nplace({}, along=pp, stages=2)\nreplicate({}, along=dp, zero=2)\n"
     "use 1f1b(stages=stage, microbatches=mb)\n"},
    {"dualpipev",
     "mesh(pp=2)\nsplit(batch, parts=4, as=mb)\nplace({}, along=pp, stages=4, shape=v)\n"
     "use dualpipev(stages=stage, microbatches=mb)\n"},
    {"tp 2", "mesh(tp=2)\nsplit(batch, parts=2, as=mb)\nplace({}, mesh={})\nshard({layer=*}, along=tp)\n"},
    {"tp 2, sequence and vocabulary",
     "mesh(tp=2)\nplace({}, mesh={})\nshard({}, along=tp, vocabulary=on, sequence=on)\n"},
};

class Documents : public testing::TestWithParam<const char*> {
 protected:
  Documents() : folder_(std::filesystem::path(testing::TempDir()) / fmt::format("documents-{}", ::getpid())) {
    std::filesystem::create_directories(folder_);
    int length = 3;
    for (int document = 0; document < 40; ++document, length = (length * 5 + 3) % 11 + 1) {
      std::ofstream out(folder_ / fmt::format("{:02}.txt", document), std::ios::binary);
      for (int i = 0; i < length; ++i) out << static_cast<char>('a' + (document * 7 + i * i) % 26);
    }
  }
  ~Documents() override { std::filesystem::remove_all(folder_); }

  std::string text(const std::string& attention = "document") const {
    return fmt::format(
        "[model]\nname = \"small\"\narch = \"{}\"\nlayers = 4\nhidden = 16\nheads = 2\nvocab = 256\nffn = 32\nseq = "
        "{}\n{}"
        "[step]\nbatch = 8\nsequence = {}\nweights = \"float64\"\ngradients = \"float64\"\n[optimizer]\nlearning_rate "
        "= 0.01\n"
        "[data]\nkind = \"text\"\npaths = \"{}\"\nattention = \"{}\"\n[run]\nsteps = 2\n[evaluation]\nbatches = 1\n",
        GetParam(), length, std::string(GetParam()) == "gpt" ? "dropout = false\n" : "", length, folder_.string(),
        attention);
  }
  static std::unique_ptr<Training> run(const std::string& text, const std::string& schedule) {
    const SourceFilePtr file = make_source("config.toml", text);
    auto out = Training::make(file, *parse_train_config(file), *parse_schedule(make_source("schedule", schedule)), {});
    if (!out) throw std::runtime_error(render(out.error()));
    return *std::move(out);
  }

  const std::filesystem::path folder_;
};

/// Each document of the samples alone, behind it padding that no loss counts: by the module, on one device.
double loss_alone(const TrainableModel& module, const TokenSource& data, int64_t first, int64_t samples) {
  const at::NoGradGuard no_gradient;
  double sum = 0, counted = 0;
  std::vector<int64_t> tokens(length), targets(length), places(length);
  for (int64_t s = first; s < first + samples; ++s) {
    EXPECT_TRUE(data.sample(s, tokens, targets));
    data.places(s, places);
    for (size_t begin = 0, end = 0; begin < length; begin = end) {
      const at::Tensor alone = at::zeros({1, length}, at::kLong), wanted = at::full({1, length}, -100, at::kLong);
      double here = 0;
      for (end = begin; end < length && (end == begin || places[end] > 0); ++end) {
        alone[0][static_cast<int64_t>(end - begin)] = tokens[end];
        wanted[0][static_cast<int64_t>(end - begin)] = targets[end];
        here += targets[end] >= 0;
      }
      if (here > 0) sum += here * module.meta.loss({alone, wanted}).item<double>();
      counted += here;
    }
  }
  return sum / counted;
}

TEST_P(Documents, AreAloneUnderEverySchedule) {
  const SourceFilePtr file = make_source("config.toml", text());
  TrainableModel module = *build_model(*parse_config(file, training_sections), 0, BuildOn::Cpu);
  std::vector<double> of_one_device;
  for (const auto& [name, schedule] : schedules) {
    auto training = run(text(), schedule);
    std::vector<double> losses;
    if (name == "one device") {
      EXPECT_NEAR(training->evaluate().loss, loss_alone(module, training->data(), 16, 8), 1e-12);
    }
    for (int step = 0; step < 2; ++step) losses.push_back(training->step().loss);
    losses.push_back(training->evaluate().loss);
    if (of_one_device.empty()) of_one_device = losses;
    for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], of_one_device[i], 1e-12) << name << ", " << i;
    const at::NoGradGuard no_gradient;
    for (NamedTensor& parameter : module.meta.parameters)
      parameter.tensor.copy_(training->run().parameter(parameter.name, Kept::Weight));
    EXPECT_NEAR(losses.back(), loss_alone(module, training->data(), 16, 8), 1e-12) << name;
    for (NamedTensor& parameter : module.meta.parameters) module.initialize(parameter.name, parameter.tensor);
  }
}

TEST_P(Documents, SeeEachOtherOtherwise) {
  const double apart = run(text(), schedules.at("one device"))->step().loss;
  EXPECT_GT(std::abs(run(text("sample"), schedules.at("one device"))->step().loss - apart), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Architectures, Documents, testing::Values("llama3", "gpt"));

}  // namespace
}  // namespace piper
