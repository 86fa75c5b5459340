#include "train_loop/subjects.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <set>

#include "models/configurations.h"
#include "must.h"
#include "schedule/schedule_text.h"

namespace piper {
namespace {

struct Kind {
  std::string name;
  std::string config;  // of [model], without sizes that all share
  bool in_matrix = true;
};

const std::vector<Kind>& kinds() {
  static const std::string llama = "arch = \"llama3\"\nkv_heads = 1\nffn = 12\n";
  static const std::string qwen =
      "arch = \"qwen3-moe\"\nkv_heads = 1\nmoe_ffn = 8\nexperts = 4\ntop_k = 2\ncapacity_factor = 1.25\n";
  static const std::string dropout = "dropout = true\ndropout_rate = 0.2\n";
  static const std::vector<Kind> all = {
      {"dense", llama},
      {"tied", llama + "tie_embeddings = true\n"},
      {"dropout", llama + dropout},
      {"mixture", qwen + "router_aux_loss_coef = 0.01\n"},
      {"mixture_dropout", qwen + dropout + "shared_experts = 1\ntie_embeddings = true\n"},
      {"two_branch", "arch = \"two-branch\"\nffn = 12\nencoder_layers = 2\n" + dropout},
      {"mixture_plain", qwen + "router_aux_loss_coef = 0\n", false},  // nothing leaves a layer but its tokens
  };
  return all;
}

/// Usual first values are meant for wide models. In a narrow one they are so small that gradients of attention are
/// mostly rounding errors, which no comparison of sums in different orders could survive.
void enlarge_weights(TrainableModel& model) {
  std::set<std::string> matrices;
  for (const NamedTensor& parameter : model.meta.parameters)
    if (parameter.tensor.dim() > 1) matrices.insert(parameter.name);
  model.initialize = [usual = model.initialize, matrices](const std::string& name, at::Tensor& whole) {
    usual(name, whole);
    if (matrices.contains(name)) whole.mul_(10);
  };
}

TrainableModel make(const Subject& subject) {
  for (const Kind& kind : kinds()) {
    if (kind.name != subject.kind) continue;
    TrainableModel model =
        built(fmt::format("[model]\nhidden = 8\nheads = 2\nvocab = 32\nseq = 4\nlayers = {}\n{}\n[step]\n"
                          "batch = {}\nweights = \"{}\"\ngradients = \"{}\"\noptimizer = \"{}\"\n",
                          subject.layers, kind.config, subject.batch, name(subject.dtype),
                          name(subject.gradients.value_or(subject.dtype)), name(subject.optimizer)),
              BuildOn::Meta, 1, (subject.on ? *subject.on : host_processor()).device());
    enlarge_weights(model);
    return model;
  }
  throw std::runtime_error("no kind of model " + subject.kind);
}

/// Made when first wanted, and kept.
template <class Key, class Value, class Make>
const Value& kept(std::map<Key, Value>& all, const Key& key, Make make) {
  const auto found = all.find(key);
  return found != all.end() ? found->second : all.emplace(key, make()).first->second;
}

}  // namespace

const std::vector<std::string>& subject_kinds() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out;
    for (const Kind& kind : kinds())
      if (kind.in_matrix) out.push_back(kind.name);
    return out;
  }();
  return names;
}

bool has_experts(const std::string& kind) {
  return kind.starts_with("mixture");
}
bool has_tied_weights(const std::string& kind) {
  return kind == "tied" || kind == "mixture_dropout";
}

const TrainableModel& model_of(const Subject& subject) {
  static std::map<Subject, TrainableModel> all;
  return kept(all, subject, [&] { return make(subject); });
}

const CapturedModel& captured(const Subject& subject, const std::vector<int64_t>& samples) {
  static std::map<std::pair<Subject, std::vector<int64_t>>, CapturedModel> all;
  return kept(all, {subject, samples}, [&] {
    const TrainableModel& model = model_of(subject);
    CaptureOptions options;
    options.name = model.name;
    options.step = model.step;
    options.inputs = model.inputs;
    options.samples = samples;
    options.target = model.target;
    return must(capture(model.meta, options));
  });
}

TrainSettings usual_settings(const Subject& subject) {
  TrainSettings settings;
  settings.job.run.processor = subject.on;
  settings.optimizer.kind = subject.optimizer;
  if (subject.optimizer == Optimizer::AdamW) {
    // where a gradient nearly vanishes rounding decides on the direction of a step, which is as long as this
    settings.optimizer.learning_rate = subject.dtype == DType::Float64 ? 1e-4 : 1e-5;
  } else {
    // after a longer step gradients may be so small that float32 is farther from float64 than the bound allows
    settings.optimizer.learning_rate = 0.01;
  }
  return settings;
}

const Trained& reference(const Subject& subject, int64_t slices) {
  static std::map<std::pair<Subject, int64_t>, Trained> all;
  return kept(all, {subject, slices}, [&] {
    const std::vector<int64_t> samples = {subject.batch / slices};
    const CapturedModel& model = captured(subject, samples);
    const Compiled compiled = must(compile_for(model, in_turn(slices)));
    return train(model_of(subject), model, std::make_shared<const Plan>(compiled.plan), usual_settings(subject));
  });
}

Result<Compiled> compile_for(const CapturedModel& captured, const std::string& schedule) {
  PIPER_TRY(const Schedule parsed, parse_schedule(make_source("schedule.piper", schedule)));
  return compile(captured.graph(), parsed);
}

}  // namespace piper
