// Tensor parallelism: parameters cut among devices that share samples, alone and together with everything else, equal
// one device; every sum that was put in is needed.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "models/configurations.h"
#include "schedule/schedule_text.h"
#include "train_loop/trained.h"
#include "train_loop/wrappers.h"

namespace piper {
namespace {

constexpr int64_t batch = 16;

/// Configurations of [model], without sizes that all share.
const std::map<std::string, std::string>& models() {
  static const std::string llama = "arch = \"llama3\"\nheads = 4\nkv_heads = 2\nffn = 12\n";
  static const std::map<std::string, std::string> all = {
      {"reference", "arch = \"reference\"\nheads = 4\n"},
      {"reference_mixture", "arch = \"reference-moe\"\nheads = 4\nexperts = 4\ntop_k = 2\ncapacity_factor = 1.25\n"},
      {"grouped", llama},
      {"one_key", "arch = \"llama3\"\nheads = 4\nkv_heads = 1\nffn = 12\ntie_embeddings = true\n"},
      {"biased",
       "arch = \"gpt\"\nheads = 4\nffn = 12\nact = \"gelu\"\nnorm = \"layernorm\"\nbias = true\ndropout = false\n"},
      {"four_keys", "arch = \"llama3\"\nheads = 4\nkv_heads = 4\nffn = 12\n"},
      {"normed_keys", "arch = \"qwen3-dense\"\nheads = 4\nkv_heads = 2\nffn = 12\n"},
      {"normed_one_key", "arch = \"qwen3-dense\"\nheads = 4\nkv_heads = 1\nffn = 12\n"},
      {"dropout", llama + "dropout = true\ndropout_rate = 0.2\n"},
      {"mixture",
       "arch = \"qwen3-moe\"\nheads = 4\nkv_heads = 2\nmoe_ffn = 8\nexperts = 4\ntop_k = 2\ncapacity_factor = 1.25\n"},
  };
  return all;
}

struct Case {
  std::string name, model;
  int devices, slices;   // slices: microbatches x replicas
  std::string schedule;  // without split
  int microbatches = 4;
  DType dtype = DType::Float64;

  std::string text() const { return fmt::format("split(batch, parts={}, as=mb)\n", microbatches) + schedule; }
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

TrainableModel model_of(const Case& c, int layers = 4) {
  TrainableModel model =
      built(fmt::format("[model]\nhidden = 16\nvocab = 32\nseq = 4\nlayers = {}\n{}\n[step]\nbatch = {}\n"
                        "weights = \"{}\"\ngradients = \"{}\"\noptimizer = \"adamw\"\n",
                        layers, models().at(c.model), batch, name(c.dtype), name(c.dtype)),
            BuildOn::Meta);
  model.initialize = [usual = model.initialize](const std::string& name, at::Tensor& whole) {
    usual(name, whole);
    if (whole.dim() > 1) whole.mul_(5);  // small models need larger weights, or gradients are mostly rounding errors
  };
  return model;
}

TrainSettings settings(const Case& c) {
  TrainSettings out;
  out.optimizer.kind = Optimizer::AdamW;
  out.optimizer.learning_rate = c.dtype == DType::Float64 ? 1e-4 : 1e-5;
  out.job.patience.first = 60;
  return out;
}

const std::string cut = "cut({layer=*}, along=tp)\n";
const std::string sequence = "cut({layer=*}, along=tp, sequence=on)\n";
const std::string regather = "cut({layer=*}, along=tp, sequence=on, regather=on)\n";
const std::string vocabulary = "cut({}, along=tp, vocabulary=on)\n";
const std::string everything = "cut({}, along=tp, vocabulary=on, sequence=on)\n";
const std::string whole = "place({}, mesh={})\n";

/// One device that runs all slices in turn, with the model recorded as it is for a cut.
std::string one_device(const Case& c) {
  const size_t begin = c.schedule.find("cut("), end = c.schedule.find('\n', begin) + 1;
  return fmt::format("mesh(tp=1)\nsplit(batch, parts={}, as=mb)\n", c.slices) + whole +
         c.schedule.substr(begin, end - begin);
}

std::vector<Case> all() {
  std::vector<Case> out;
  for (const auto& [model, config] : models())
    out.push_back({model + "_tp2", model, 2, 4, "mesh(tp=2)\n" + whole + cut});
  for (const std::string model : {"reference", "four_keys", "one_key", "reference_mixture"})
    out.push_back({model + "_tp4", model, 4, 4, "mesh(tp=4)\n" + whole + cut});
  for (const int zero : {0, 1, 2, 3})
    for (const std::string model : {"normed_keys", "one_key"})
      out.push_back(
          {fmt::format("{}_dp2_zero{}", model, zero), model, 4, 8,
           "mesh(dp=2, tp=2)\n" + whole + fmt::format("replicate({{}}, along=dp, zero={}, bucket=1KB)\n", zero) + cut});
  const auto piped = [&](const std::string& model, const std::string& timeline, const std::string& more = "") {
    const bool v = timeline == "dualpipev" || timeline == "zb-v";
    std::string name = timeline;
    std::replace(name.begin(), name.end(), '-', '_');
    out.push_back(
        {fmt::format("{}_{}{}", model, name, more.empty() ? "" : "_more"), model, 4, 4,
         fmt::format("mesh(pp=2, tp=2)\nplace({{}}, along=pp, stages={}{})\n", v ? 4 : 2, v ? ", shape=v" : "") + cut +
             more + fmt::format("use {}(stages=stage, microbatches=mb)\n", timeline)});
  };
  piped("reference", "1f1b");
  piped("biased", "zb-h1");
  piped("one_key", "1f1b", "recompute({layer=*})\n");
  piped("normed_keys", "zb-h1");
  piped("dropout", "zb-v");
  piped("grouped", "dualpipev");
  piped("dropout", "gpipe", "recompute({layer=*})\n");
  out.push_back({"three_dimensions", "one_key", 8, 8,
                 "mesh(pp=2, dp=2, tp=2)\nplace({}, along=pp, stages=2)\n"
                 "replicate({}, along=dp, zero=3, bucket=1KB)\n" +
                     cut + "use 1f1b(stages=stage, microbatches=mb)\n"});
  for (const std::string model : {"reference_mixture", "mixture"})
    out.push_back(
        {model + "_experts", model, 4, 8,
         "mesh(ep=2, tp=2)\n" + whole + "replicate({}, along=ep, zero=1)\nshard({experts=*}, along=ep)\n" + cut});
  out.push_back({"float32", "grouped", 4, 8, "mesh(dp=2, tp=2)\n" + whole + "replicate({}, along=dp, zero=2)\n" + cut,
                 4, DType::Float32});
  return out;
}

/// The same with other cuts, in turn.
std::vector<Case> all_with(const std::string& even, const std::string& odd) {
  std::vector<Case> out;
  for (Case c : all()) {
    const size_t at = c.schedule.find(cut);
    c.schedule.replace(at, cut.size(), out.size() % 2 == 0 ? even : odd);
    out.push_back(std::move(c));
  }
  return out;
}

/// Softmax does not feel a bias of the keys: its gradient is rounding errors, which AdamW makes steps of.
Trained without_key_bias(Trained of) {
  const auto is_bias = [](const auto& item) { return item.first.ends_with(".k.bias"); };
  for (Tensors* tensors : {&of.weights, &of.moment1, &of.moment2}) std::erase_if(*tensors, is_bias);
  for (Tensors& gradients : of.gradients) std::erase_if(gradients, is_bias);
  std::erase_if(of.ordered, is_bias);
  return of;
}

class CutModels : public testing::TestWithParam<Case> {};

TEST_P(CutModels, EqualOneDevice) {
  const Case& c = GetParam();
  SCOPED_TRACE(c.text());
  const TrainableModel model = model_of(c);
  const auto trained = [&](const std::string& schedule) {
    return without_key_bias(train(model, schedule, settings(c)));
  };
  const Trained run = trained(c.text());
  EXPECT_EQ(run.devices, c.devices);
  const double tolerance = c.dtype == DType::Float64 ? 1e-12 : 1e-5;
  EXPECT_THAT(complaints(run, trained(one_device(c)), tolerance), testing::IsEmpty());
  if (c.model != "dropout") {  // random numbers inside are drawn head by head where heads may be cut
    EXPECT_THAT(complaints(run, trained(in_turn(c.slices)), tolerance), testing::IsEmpty());
  }
  for (size_t d = 0; d < run.peak_bytes.size(); ++d) EXPECT_LE(run.peak_bytes[d], run.planned_bytes[d]) << d;
}
INSTANTIATE_TEST_SUITE_P(All, CutModels, testing::ValuesIn(all()), [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Sequence, CutModels, testing::ValuesIn(all_with(sequence, regather)),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(Vocabulary, CutModels, testing::ValuesIn(all_with(vocabulary, everything)),
                         [](const auto& info) { return info.param.name; });

PreparedTraining prepared(const TrainableModel& model, const std::string& schedule) {
  auto parsed = parse_schedule(make_source("schedule.piper", schedule));
  auto out = prepare_training(model, *parsed);
  if (!out) throw std::runtime_error(render(out.error()));
  return *std::move(out);
}

/// Collectives of a plan among the devices of the cut.
std::vector<int64_t> sums_of(const Plan& plan) {
  int among = -1;
  for (const PlanWork& work : plan.works) among = std::max(among, work.layout);
  std::vector<int64_t> out;
  for (size_t c = 0; c < plan.communications.size(); ++c)
    if (!plan.communications[c].transfer && plan.communications[c].over == among)
      out.push_back(static_cast<int64_t>(c));
  return out;
}

/// Two in forward and two in backward of every layer, each of batch x sequence x hidden numbers: Megatron's count.
TEST(CutSums, AreAsManyAsMegatronHas) {
  for (const std::string model : {"reference", "grouped"}) {
    const Case c{model, model, 2, 1, "mesh(tp=2)\n" + whole + cut, 1};
    const PreparedTraining training = prepared(model_of(c), c.text());
    std::vector<int64_t> bytes;
    for (const int64_t sum : sums_of(*training.plan))
      bytes.push_back(training.plan->communications[static_cast<size_t>(sum)].bytes);
    EXPECT_EQ(bytes, std::vector<int64_t>(4 * 4, batch * 4 * 16 * 8)) << model;
  }
}

/// With the sequence divided each of them is two: tokens are joined in front of what is cut, and every sum leaves each
/// device its own. The first and the last chunk have all tokens: what the last one gives back need not be joined.
TEST(CutSums, AreTwoWithASequence) {
  constexpr int layers = 4;
  for (const bool again : {false, true}) {
    const Case c{"", "grouped", 2, 1, "mesh(tp=2)\n" + whole + (again ? regather : sequence), 1};
    const PreparedTraining training = prepared(model_of(c), c.text());
    std::map<OpKind, int> count;
    for (const PlannedOp& op : training.plan->templates[0].ops) {
      const bool weights =
          op.writes.empty() ||
          training.plan->templates[0].buffers[static_cast<size_t>(op.writes[0])].category != Category::Activations;
      if (op.communication < 0 || weights) continue;
      ++count[op.kind];
      EXPECT_EQ(training.plan->communications[static_cast<size_t>(op.communication)].bytes,
                batch * 4 * 16 * 8 / (op.kind == OpKind::TakePart ? 2 : 1));
    }
    const std::map<OpKind, int> expected = {
        {OpKind::ReduceScatter, 4 * layers}, {OpKind::AllGather, (again ? 6 : 4) * layers + 1}, {OpKind::TakePart, 2}};
    EXPECT_EQ(count, expected);
  }
}

/// Keeps its part of one sum, or its tokens, to itself.
class LeavesOut : public PassingCommunicator {
 public:
  LeavesOut(std::unique_ptr<Communicator> to, int64_t number) : PassingCommunicator(std::move(to)), number_(number) {}
  void all_reduce(int circle, int64_t number, std::span<std::byte> data, Number of, Combine how) override {
    if (number != number_) PassingCommunicator::all_reduce(circle, number, data, of, how);
  }
  void reduce_scatter(int circle, int64_t number, std::span<const std::byte> whole, int64_t run,
                      std::span<std::byte> part, Number of, Into into) override {
    if (number != number_)
      PassingCommunicator::reduce_scatter(circle, number, whole, run, part, of, into);
    else
      std::fill(part.begin(), part.end(), std::byte{0});
  }
  void all_gather(int circle, int64_t number, std::span<const std::byte> part, std::span<std::byte> whole,
                  int64_t run) override {
    if (number != number_)
      PassingCommunicator::all_gather(circle, number, part, whole, run);
    else
      std::fill(whole.begin(), whole.end(), std::byte{0});
  }

 private:
  int64_t number_;
};

TEST(CutSums, AreAllNeeded) {
  // one key for all heads: its gradient and those of norms inside are parts that are summed once per step
  for (const auto& [model, directive] : {std::pair<std::string, std::string>{"normed_keys", cut},
                                         {"one_key", cut},
                                         {"normed_keys", sequence},
                                         {"one_key", vocabulary},
                                         {"reference", everything}}) {
    const Case c{model, model, 2, 1, "mesh(tp=2)\n" + whole + directive, 1};
    const TrainableModel trained = model_of(c);
    const PreparedTraining training = prepared(trained, c.text());
    TrainSettings once = settings(c);
    once.steps = 1;
    const Trained expected = train(trained, one_device(c), once);
    EXPECT_THAT(complaints(train(trained, *training.captured, training.plan, once), expected, 1e-12),
                testing::IsEmpty());
    const std::vector<int64_t> sums = sums_of(*training.plan);
    EXPECT_GT(sums.size(), 16u);
    std::set<int64_t> local;  // nothing is sent
    for (const PlannedOp& op : training.plan->templates[0].ops)
      if (op.kind == OpKind::TakePart) local.insert(op.communication);
    for (const int64_t sum : sums) {
      if (local.contains(sum)) continue;
      TrainSettings faulty = once;
      faulty.communicator = [&](std::unique_ptr<Communicator> to) {
        return std::make_unique<LeavesOut>(std::move(to), sum);
      };
      const Trained run = train(trained, *training.captured, training.plan, faulty);
      EXPECT_GT(compare(run, expected).error, 1e-6)
          << model << ": "
          << training.plan
                 ->names[static_cast<size_t>(training.plan->communications[static_cast<size_t>(sum)].label.name)];
    }
  }
}

/// A feed-forward written in some way: x [samples, 4, 8], a [16, 8], b [8, 16], whose second dimension is cut, c [8].
struct Coding {
  std::string name;
  std::function<at::Tensor(const at::Tensor& x, const at::Tensor& a, const at::Tensor& b, const at::Tensor& c)> run;
  bool accepted = true;
};
void PrintTo(const Coding& coding, std::ostream* out) {
  *out << coding.name;
}

std::vector<Coding> codings() {
  using at::Tensor;
  const auto up = [](const Tensor& x, const Tensor& a) { return at::linear(x, a); };
  const auto down = [](const Tensor& h, const Tensor& b) { return at::linear(h, b); };
#define CODING(body)                                                        \
  [=](const Tensor& x, const Tensor& a, const Tensor& b, const Tensor& c) { \
    (void)c;                                                                \
    return body;                                                            \
  }
  return {
      {"plain", CODING(down(up(x, a).relu(), b))},
      {"residual", CODING(x + down(up(x, a).relu(), b))},
      {"number_behind", CODING((down(up(x, a).relu(), b) + 1).square())},
      {"number_inside", CODING(down(up(x, a) + 1, b))},
      {"scaled_twice", CODING(down(up(x, a).relu(), b) * 2 / 3)},
      {"squared", CODING(down(up(x, a), b).square())},
      {"rounded", CODING(at::div(down(up(x, a).relu(), b), 0.01, "floor") + x * c)},
      {"in_place", CODING(down(up(x, a).relu(), b).add_(x))},
      {"bias", CODING(at::linear(up(x, a).relu(), b, c))},
      {"two_of_them", CODING(down(up(x, a).relu(), b) + down(up(x, a).sigmoid(), b))},
      {"one_behind_the_other", CODING(down(up(down(up(x, a).relu(), b), a).relu(), b))},
      {"times_whole", CODING(down(up(x, a).relu(), b) * c)},
      {"times_itself", CODING(down(up(x, a), b) * down(up(x, a).relu(), b))},
      {"gated_by_sum", CODING(down(up(x, a).relu() * down(up(x, a), b).sigmoid().sum(-1, true), b))},
      {"heads",
       CODING(down(
           up(x, a).view({x.size(0), 4, 4, 4}).transpose(1, 2).relu().transpose(1, 2).reshape({x.size(0), 4, 16}), b))},
      {"halves_joined", CODING(down(at::cat({up(x, a).view({x.size(0), 4, 4, 2, 2}).select(3, 0),
                                             up(x, a).view({x.size(0), 4, 4, 2, 2}).select(3, 1)},
                                            -1)
                                        .reshape({x.size(0), 4, 16}),
                                    b))},
      {"softmax", CODING(down(at::softmax(up(x, a), -1), b)), false},
      {"mean", CODING(down(up(x, a) - up(x, a).mean(-1, true), b)), false},
      {"norm", CODING(down(at::rms_norm(up(x, a), {16}), b)), false},
      {"slice", CODING(down(at::cat({up(x, a).narrow(-1, 0, 8), up(x, a).narrow(-1, 8, 8)}, -1), b)), false},
      {"flip", CODING(down(up(x, a).flip(-1), b)), false},
      {"cumsum", CODING(down(up(x, a).cumsum(-1), b)), false},
      {"index", CODING(down(up(x, a).index_select(-1, at::arange(16, at::TensorOptions(x.device())).flip(0)), b)),
       false},
  };
#undef CODING
}

TrainableModel model_of(const Coding& coding) {
  TrainableModel model;
  model.name = coding.name;
  model.step.batch = 4;
  model.step.weights = model.step.gradients = DType::Float64;
  model.step.optimizer = Optimizer::AdamW;
  const auto parameter = [&](const std::string& name, std::vector<int64_t> sizes) {
    model.meta.parameters.push_back(
        {name, at::empty(sizes, at::TensorOptions(at::kMeta).dtype(at::kDouble)).set_requires_grad(true)});
    return model.meta.parameters.back().tensor;
  };
  const at::Tensor e = parameter("e", {32, 8}), a = parameter("a", {16, 8}), b = parameter("b", {8, 16}),
                   c = parameter("c", {8});
  model.meta.loss = [=](const std::vector<at::Tensor>& inputs) {
    const at::Tensor x = at::embedding(e, inputs[0]);
    return ((coding.run(x, a, b, c) + c) * x).square().mean();
  };
  model.inputs = {{"tokens", DType::Int64, {4}}};
  model.initialize = [](const std::string& name, at::Tensor& whole) {
    whole.copy_(at::arange(whole.numel(), whole.options()).mul(0.37 + 0.01 * name[0]).sin().view(whole.sizes()));
  };
  return model;
}

class CutCodings : public testing::TestWithParam<Coding> {};

TEST_P(CutCodings, AreRightOrRefused) {
  const Coding& coding = GetParam();
  const TrainableModel model = model_of(coding);
  const auto schedule = [&](int devices) {
    return fmt::format("mesh(tp={})\n", devices) + whole + "cut({}, along=tp, parameters=\"b: 1\")\n";
  };
  TrainSettings once;
  once.optimizer.kind = Optimizer::AdamW;
  once.optimizer.learning_rate = 1e-4;
  for (const int devices : {2, 4}) {
    auto training = prepare_training(model, *parse_schedule(make_source("schedule.piper", schedule(devices))));
    ASSERT_EQ(bool(training), coding.accepted) << (training ? "" : render(training.error()));
    if (!training) {
      EXPECT_EQ(name(training.error().code), "E317") << render(training.error());
      continue;
    }
    const Trained run = train(model, *training->captured, training->plan, once);
    EXPECT_THAT(complaints(run, train(model, in_turn(1), once), 1e-12), testing::IsEmpty());
  }
}
INSTANTIATE_TEST_SUITE_P(All, CutCodings, testing::ValuesIn(codings()),
                         [](const auto& info) { return info.param.name; });

/// A loss over a vocabulary, written in some way: x [samples, 4, 8], w [16, 8], e [32, 8], both cut by rows, targets
/// [samples, 4] among 16.
struct HeadCoding {
  std::string name;
  std::function<at::Tensor(const at::Tensor& x, const at::Tensor& w, const at::Tensor& e, const at::Tensor& targets)>
      loss;
  bool accepted = true;
};
void PrintTo(const HeadCoding& coding, std::ostream* out) {
  *out << coding.name;
}

std::vector<HeadCoding> head_codings() {
  using at::Tensor;
  const auto logits = [](const Tensor& x, const Tensor& w) { return at::linear(x, w).view({-1, w.size(0)}); };
  const auto loss = [](const Tensor& scores, const Tensor& t, int64_t reduction = at::Reduction::Mean,
                       int64_t ignored = -100, double smoothing = 0) {
    return at::cross_entropy_loss(scores, t.reshape({-1}), {}, reduction, ignored, smoothing);
  };
#define CODING(body)                                                        \
  [=](const Tensor& x, const Tensor& w, const Tensor& e, const Tensor& t) { \
    (void)w, (void)e, (void)t;                                              \
    return body;                                                            \
  }
  return {
      {"mean", CODING(loss(logits(x, w), t))},
      {"sum", CODING(loss(logits(x, w), t, at::Reduction::Sum))},
      {"each", CODING(loss(logits(x, w), t, at::Reduction::None).square().mean())},
      {"ignored", CODING(loss(logits(x, w), t, at::Reduction::Mean, 3))},
      {"ignored_sum", CODING(loss(logits(x, w), t, at::Reduction::Sum, 3))},
      {"scaled", CODING(loss(logits(x, w) / 3, t) * 2)},
      {"capped", CODING(loss((logits(x, w) / 2).tanh() * 2, t))},
      {"shifted", CODING(loss(at::linear(x, w).narrow(1, 0, 3).reshape({-1, 16}), t.narrow(1, 1, 3)))},
      {"tied", CODING(loss(logits(x, e), t))},
      {"two", CODING(loss(logits(x, w), t) + loss(logits(x, e), t))},
      {"two_on_one", CODING(loss(logits(x, w), t) + loss(logits(x, w) / 2, t))},
      {"narrow", CODING(loss(logits(x, w).to(at::kFloat), t).to(at::kDouble))},
      {"large", CODING(loss(logits(x * 300, w), t))},  // overflows without the greatest
      {"smoothed", CODING(loss(logits(x, w), t, at::Reduction::Mean, -100, 0.1)), false},
      {"weighted", CODING(at::cross_entropy_loss(logits(x, w), t.reshape({-1}), at::ones({16}, x.options()))), false},
      {"probabilities", CODING(at::softmax(logits(x, w), -1).square().mean()), false},
      {"logarithms", CODING(at::log_softmax(logits(x, w), -1).mean()), false},
      {"both_uses", CODING(loss(logits(x, w), t) + at::log_softmax(logits(x, w), -1).square().mean()), false},
  };
#undef CODING
}

TrainableModel model_of(const HeadCoding& coding) {
  TrainableModel model = model_of(Coding{coding.name, {}});
  model.meta.parameters.clear();
  const auto parameter = [&](const std::string& name, std::vector<int64_t> sizes) {
    model.meta.parameters.push_back(
        {name, at::empty(sizes, at::TensorOptions(at::kMeta).dtype(at::kDouble)).set_requires_grad(true)});
    return model.meta.parameters.back().tensor;
  };
  const at::Tensor e = parameter("e", {32, 8}), w = parameter("w", {16, 8}), c = parameter("c", {8});
  model.meta.loss = [=](const std::vector<at::Tensor>& inputs) {
    const at::Tensor x = at::embedding(e, inputs[0]) * c;
    return coding.loss(x, w, e, inputs[0].remainder(16)) + w.square().sum() * 0.1;
  };
  return model;
}

class CutHeads : public testing::TestWithParam<HeadCoding> {};

TEST_P(CutHeads, AreRightOrRefused) {
  const HeadCoding& coding = GetParam();
  const TrainableModel model = model_of(coding);
  TrainSettings once;
  once.optimizer.kind = Optimizer::AdamW;
  once.optimizer.learning_rate = 1e-4;
  for (const int devices : {2, 4}) {
    const std::string schedule =
        fmt::format("mesh(tp={})\n", devices) + whole + "cut({}, along=tp, parameters=\"e: 0, w: 0\")\n";
    auto training = prepare_training(model, *parse_schedule(make_source("schedule.piper", schedule)));
    ASSERT_EQ(bool(training), coding.accepted) << (training ? "" : render(training.error()));
    if (!training) {
      EXPECT_EQ(name(training.error().code), "E317") << render(training.error());
      continue;
    }
    const Trained run = train(model, *training->captured, training->plan, once);
    EXPECT_THAT(complaints(run, train(model, in_turn(1), once), coding.name == "narrow" ? 1e-6 : 1e-12),
                testing::IsEmpty());
  }
}
INSTANTIATE_TEST_SUITE_P(All, CutHeads, testing::ValuesIn(head_codings()),
                         [](const auto& info) { return info.param.name; });

/// Whatever is cut: it is refused, or right.
TEST(CutSeeds, AreRefusedOrRight) {
  int right = 0, refused = 0;
  for (const auto& [kind, config] : models()) {
    const Case c{kind, kind, 2, 1, "", 1};
    const TrainableModel model = model_of(c, 1);
    TrainSettings once = settings(c);
    once.steps = 1;
    for (const NamedTensor& parameter : model.meta.parameters)
      for (int64_t at = 0; at < 2 * parameter.tensor.dim(); ++at) {
        const auto schedule = [&](int devices) {
          return fmt::format("mesh(tp={})\n", devices) + whole +
                 fmt::format("cut({{}}, along=tp, parameters=\"{}: {}\"{})\n", parameter.name, at / 2,
                             at % 2 ? ", sequence=on" : "");
        };
        SCOPED_TRACE(kind + "\n" + schedule(2));
        auto parsed = parse_schedule(make_source("schedule.piper", schedule(2)));
        ASSERT_TRUE(parsed) << render(parsed.error());
        auto training = prepare_training(model, *parsed);
        if (!training) {
          EXPECT_EQ(name(training.error().code), "E317") << render(training.error());
          ++refused;
          continue;
        }
        const Trained run = without_key_bias(train(model, *training->captured, training->plan, once));
        EXPECT_THAT(complaints(run, without_key_bias(train(model, schedule(1), once)), 1e-12), testing::IsEmpty());
        ++right;
      }
  }
  EXPECT_GT(right, 20);
  EXPECT_GT(refused, 20);
  std::cout << right << " right, " << refused << " refused\n";
}

}  // namespace
}  // namespace piper
