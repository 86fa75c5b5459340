// Evaluation of a run from a configuration: what a step would have computed, and a training that does not feel it.
#include <gtest/gtest.h>

#include <map>

#include "plan/memory_report.h"
#include "schedule/schedule_text.h"
#include "train/loop/check_training.h"
#include "train/loop/training.h"

namespace piper {
namespace {

std::string small_gpt(const std::string& model, int64_t steps, const std::string& rest) {
  return "[model]\nname = \"small\"\narch = \"gpt\"\nlayers = 4\nhidden = 16\nheads = 2\nvocab = 32\nffn = 32\nseq = "
         "8\n" +
         model + "[step]\nbatch = 8\nsequence = 8\nweights = \"float64\"\n[run]\nsteps = " + std::to_string(steps) +
         "\n" + rest;
}

constexpr std::string_view two_by_two = R"(mesh(pp=2, dp=2)
split(batch, parts=2, as=mb)
place({}, along=pp, stages=2)
replicate({}, along=dp, zero=2)
use 1f1b(stages=stage, microbatches=mb)
)";

std::unique_ptr<Training> training_of(const std::string& text, std::string_view schedule = two_by_two) {
  const SourceFilePtr file = make_source("config.toml", text);
  const TrainConfig train = *parse_train_config(file);
  auto out = Training::make(file, train, *parse_schedule(make_source("schedule", std::string(schedule))), {});
  if (!out) throw std::runtime_error(render(out.error()));
  return *std::move(out);
}

const std::string no_dropout = "dropout = false\n", every_two = "[evaluation]\nevery = 2\n";

/// Without data of its own an evaluation sees the batch that a further step would see.
TEST(Evaluation, IsTheLossOfTheNextStep) {
  auto longer = training_of(small_gpt(no_dropout, 3, ""));
  for (int step = 0; step < 2; ++step) longer->step();
  const double next = longer->step().loss;
  auto run = training_of(small_gpt(no_dropout, 2, every_two));
  for (int step = 0; step < 2; ++step) run->step();
  const EvaluationMetrics found = run->evaluate();
  EXPECT_EQ(found.loss, next);
  EXPECT_EQ(found.perplexity, std::exp(next));
  EXPECT_EQ(found.steps, 2);
  EXPECT_EQ(found.tokens, 64);
}

TEST(Evaluation, HasNoDropout) {
  auto with = training_of(small_gpt("dropout = true\ndropout_rate = 0.5\n", 2, every_two));
  auto without = training_of(small_gpt(no_dropout, 2, every_two));
  EXPECT_NEAR(with->evaluate().loss, without->evaluate().loss, 1e-12);
  EXPECT_GT(std::abs(with->step().loss - without->step().loss), 1e-6);
}

TEST(Evaluation, ChangesNothing) {
  const std::string model = "dropout = true\ndropout_rate = 0.5\n";
  auto plain = training_of(small_gpt(model, 4, "")),
       evaluated = training_of(small_gpt(model, 4, every_two + "batches = 3\n"));
  for (int step = 0; step < 4; ++step) {
    if (step != 1) evaluated->evaluate();
    const StepMetrics a = plain->step(), b = evaluated->step();
    EXPECT_EQ(a.loss, b.loss);
    EXPECT_EQ(a.gradient_norm, b.gradient_norm);
  }
  EXPECT_EQ(plain->state().samples, evaluated->state().samples);
  for (const Parameter& parameter : plain->graph().parameters)
    EXPECT_TRUE(at::equal(plain->run().parameter(parameter.name, Kept::Weight),
                          evaluated->run().parameter(parameter.name, Kept::Weight)))
        << parameter.name;
}

TEST(Evaluation, ComesEverySoManyStepsAndAtTheEnd) {
  auto run = training_of(small_gpt(no_dropout, 5, every_two));
  std::vector<int64_t> when;
  while (run->run().steps() < 5) {
    run->step();
    if (run->evaluates_now()) when.push_back(run->run().steps());
  }
  EXPECT_EQ(when, (std::vector<int64_t>{2, 4, 5}));
  EXPECT_FALSE(training_of(small_gpt(no_dropout, 1, ""))->evaluates());
}

/// Several batches are one: the mean over all of their tokens, whatever the schedule.
TEST(Evaluation, OfSeveralBatchesUnderAnotherSchedule) {
  const std::string text =
      small_gpt(no_dropout, 1, every_two + "batches = 3\n[evaluation.data]\nkind = \"reference\"\n");
  const double one = training_of(text, "devices(1)\nplace({}, devices=[0])\n")->evaluate().loss;
  EXPECT_NEAR(training_of(text)->evaluate().loss, one, 1e-12);
  EXPECT_NEAR(training_of(text, "mesh(dp=2)\nplace({}, mesh={})\nreplicate({}, along=dp, zero=3)\n")->evaluate().loss,
              one, 1e-12);
}

TEST(Evaluation, IsPartOfWhatIsChecked) {
  const Schedule schedule = *parse_schedule(make_source("schedule", std::string(two_by_two)));
  const auto with = check_training(make_source("config.toml", small_gpt(no_dropout, 1, every_two)), {}, schedule);
  const auto without = check_training(make_source("config.toml", small_gpt(no_dropout, 1, "")), {}, schedule);
  ASSERT_TRUE(with && *with && without && *without);
  EXPECT_TRUE((*with)->evaluation);
  EXPECT_FALSE((*without)->evaluation);
  EXPECT_EQ(hash((*with)->step.plan), hash((*without)->step.plan));
}

// ---- texts

const std::string prompts =
    "[evaluation]\nevery = 2\nprompts = [\"\\u0001\\u0005\", \"\\u0007\", \"\\u0003\\u0004\\u0009\"]\n"
    "max_new_tokens = 6\n";
const std::map<std::string, std::string> text_schedules = {
    {"1f1b, zero 2", std::string(two_by_two)},
    {"dualpipev",
     "mesh(pp=2)\nsplit(batch, parts=4, as=mb)\nplace({}, along=pp, stages=4, shape=v)\nuse dualpipev(stages=stage, "
     "microbatches=mb)\n"},
    {"zero 3", "mesh(dp=2)\nplace({}, mesh={})\nreplicate({}, along=dp, zero=3)\n"},
    {"tp 2", "mesh(tp=2)\nplace({}, mesh={})\nshard({layer=*}, along=tp)\n"},
    {"tp 2, vocabulary and sequence",
     "mesh(tp=2)\nsplit(batch, parts=2, as=mb)\nplace({}, mesh={})\nshard({}, along=tp, vocabulary=on, sequence=on)\n"},
};

std::string text_run(const std::string& rest = "", const std::string& arch = "llama3") {
  return "[model]\nname = \"small\"\narch = \"" + arch +
         "\"\nlayers = 4\nhidden = 16\nheads = 2\nvocab = 256\nffn = 32\nseq = 8\n[step]\nbatch = 8\nsequence = "
         "8\nweights = "
         "\"float64\"\n[optimizer]\nlearning_rate = 0.05\n[data]\nkind = \"text\"\npaths = \"" PIPER_SOURCE_DIR
         "/README.md\"\n[run]\nsteps = 2\n" +
         prompts + rest;
}

std::vector<std::string> texts_of(Training& run) {
  std::vector<std::string> out;
  for (const WrittenText& text : run.evaluate().samples) out.push_back(text.prompt + text.text);
  return out;
}
std::vector<std::string> written(const std::string& text, std::string_view schedule = two_by_two) {
  auto run = training_of(text, schedule);
  while (run->run().steps() < 2) run->step();
  return texts_of(*run);
}

/// Of every token that may follow, the one with the smallest loss: by the module itself, on one device.
std::string likeliest(const TrainableModel& module, std::string text, int64_t sequence) {
  const at::NoGradGuard no_gradient;
  for (int more = 0; more < 6 && static_cast<int64_t>(text.size()) < sequence; ++more) {
    const at::Tensor tokens = at::zeros({1, sequence}, at::kLong), targets = at::full({1, sequence}, -100, at::kLong);
    for (size_t t = 0; t < text.size(); ++t) tokens[0][static_cast<int64_t>(t)] = static_cast<unsigned char>(text[t]);
    std::pair<double, int64_t> best = {1e9, 0};
    for (int64_t token = 0; token < module.vocabulary; ++token) {
      targets[0][static_cast<int64_t>(text.size()) - 1] = token;
      best = std::min(best, {module.meta.loss({tokens, targets}).item<double>(), token});
    }
    text += static_cast<char>(best.second);
  }
  return text;
}

TEST(EvaluationTexts, AreTheLikeliestOfOneDevice) {
  const SourceFilePtr file = make_source("config.toml", text_run());
  TrainableModel module = *build_model(*parse_config(file, training_sections), 0, BuildOn::Cpu);
  auto run = training_of(text_run());
  while (run->run().steps() < 2) run->step();
  {
    const at::NoGradGuard no_gradient;
    for (NamedTensor& parameter : module.meta.parameters)
      parameter.tensor.copy_(run->run().parameter(parameter.name, Kept::Weight));
  }
  std::vector<std::string> expected;
  for (const char* prompt : {"\x01\x05", "\x07", "\x03\x04\x09"})
    expected.push_back(likeliest(module, prompt, module.step.sequence));
  EXPECT_EQ(texts_of(*run), expected);
}

TEST(ThoroughEvaluationTexts, AreThoseOfEverySchedule) {
  for (const std::string temperature : {"", "temperature = 1.5\n"}) {
    const auto one = written(text_run(temperature), "devices(1)\nplace({}, devices=[0])\n");
    for (const auto& [name, schedule] : text_schedules)
      EXPECT_EQ(written(text_run(temperature), schedule), one) << name;
  }
}

TEST(EvaluationTexts, AreDrawnBySeedAndStep) {
  const std::string drawn = text_run("temperature = 2\n");
  auto run = training_of(drawn);
  const auto first = texts_of(*run);
  EXPECT_EQ(texts_of(*run), first);
  EXPECT_NE(first, texts_of(*training_of(text_run())));
  run->step();
  EXPECT_NE(texts_of(*run), first);
}

TEST(EvaluationTexts, ChangeNothing) {
  auto plain = training_of(text_run()), writing = training_of(text_run("temperature = 1\n"));
  writing->evaluate();
  for (int step = 0; step < 2; ++step) EXPECT_EQ(plain->step().loss, writing->step().loss);
  EXPECT_EQ(plain->evaluate().loss, writing->evaluate().loss);
}

/// The balance of experts is that of each slice: both have the same slices.
TEST(EvaluationTexts, OfMixturesAndLearnedPositions) {
  const std::string one_device_in_turn = "devices(1)\nsplit(batch, parts=4, as=mb)\nplace({}, devices=[0])\n";
  for (const std::string arch : {"gpt", "mixtral"}) {
    std::string text = text_run("", arch);
    if (arch == "mixtral")
      text.replace(text.find("ffn = 32"), 8, "experts = 4\ntop_k = 2\nmoe_ffn = 32\ncapacity_factor = 4.0");
    EXPECT_EQ(written(text), written(text, one_device_in_turn)) << arch;
  }
}

/// More prompts than a batch has samples; and one that is too long.
TEST(EvaluationTexts, OfAnyNumber) {
  std::string many = text_run();
  many.replace(many.find("prompts = ["), 11, "prompts = [\"a\", \"b\", \"c\", \"d\", \"e\", \"f\", \"g\", ");
  const auto all = written(many), few = written(text_run());
  ASSERT_EQ(all.size(), 10u);
  EXPECT_EQ(std::vector(all.begin() + 7, all.end()), few);
  std::string longer = text_run();
  longer.replace(longer.find("prompts = ["), 11, "prompts = [\"12345678\", ");
  const SourceFilePtr file = make_source("config.toml", longer);
  const auto refused =
      Training::make(file, *parse_train_config(file), *parse_schedule(make_source("s", std::string(two_by_two))), {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::E111);
}

struct CheckedPlans {
  Plan step, evaluation;
};
CheckedPlans checked_plans(const std::string& rest, const std::shared_ptr<KernelStore>& kernels = nullptr) {
  const Schedule schedule = *parse_schedule(make_source("schedule", std::string(two_by_two)));
  auto found = check_training(make_source("config.toml", small_gpt(no_dropout, 1, rest)), {}, schedule, {}, kernels);
  if (!found) throw std::runtime_error(render(found.error()));
  return {std::move((*found)->step.plan), std::move((*found)->evaluation->plan)};
}
int64_t highest_peak(const Plan& plan) {
  int64_t out = 0;
  for (const PlanTemplate& t : plan.templates) out = std::max(out, memory_peak(plan, t).total);
  return out;
}

/// What the run's section says of the loss and of its data holds for the evaluation that is checked, too.
TEST(Evaluation, IsCheckedAsItWillRun) {
  const std::string whole = "loss_block = 0\n" + every_two, blocks = "loss_block = 2\n" + every_two;
  EXPECT_NE(hash(checked_plans(whole).evaluation), hash(checked_plans(blocks).evaluation));
  const SourceFilePtr file = make_source("config.toml", small_gpt(no_dropout, 1, whole));
  const auto trained =
      prepare(file, *parse_train_config(file), *parse_schedule(make_source("schedule", std::string(two_by_two))), {},
              PlanFor::Evaluation);
  ASSERT_TRUE(trained) << render(trained.error());
  EXPECT_EQ(highest_peak(checked_plans(whole).evaluation), highest_peak(*trained->prepared.plan));
}

/// Compiled chunks save less for backward, and nothing is compiled to know it.
TEST(Checked, SavesLessWithCompiledKernels) {
  const auto kernels = std::make_shared<KernelStore>(KernelOptions());
  const CheckedPlans compiled = checked_plans(every_two, kernels), recorded = checked_plans(every_two);
  EXPECT_LT(highest_peak(compiled.step), highest_peak(recorded.step));
  EXPECT_EQ(kernels->count().kernels, 0u);
  const CheckedPlans asked = checked_plans("saved_activations = \"fewest\"\n" + every_two);
  EXPECT_EQ(hash(compiled.step), hash(asked.step));
  EXPECT_EQ(hash(checked_plans("saved_activations = \"recorded\"\n" + every_two, kernels).step), hash(recorded.step));
}

}  // namespace
}  // namespace piper
