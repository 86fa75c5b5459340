#include "property/random_model.h"

#include <fmt/format.h>

#include <map>
#include <set>

namespace piper::property {
namespace {

/// A value that forward computes, and the gradients its readers leave.
struct Activation {
  ValueId value;
  Shape shape;
  bool needs_gradient = true;
  std::vector<ValueId> gradients;
};

/// Forward of a chunk, from which its backward follows.
struct Draft {
  ChunkId chunk;
  std::vector<ValueId> inputs;
  std::vector<int> reads, writes;  // activations
  std::vector<ParameterId> parameters;
  std::vector<ValueId> saved;
  Shape handed;  // of what BI leaves for BW
  bool computes_loss = false;
  bool has_backward = true;
};

class Writer {
 public:
  Writer(Random& random, const ModelWish& wish) : random_(random), wish_(wish), build_("random", step()) {}

  RandomModel write() {
    out_.splits_backward = wish_.splits_backward || random_.percent(50);
    add_encoders();
    const int layers = random_.between(wish_.fewest_layers, wish_.most_layers);
    for (int l = 0; l < layers; ++l) random_.percent(35) ? add_experts(l) : add_dense(l);
    out_.layers = layers;
    add_head();
    for (auto draft = drafts_.rbegin(); draft != drafts_.rend(); ++draft) add_backward(*draft);
    out_.graph = std::move(build_).finish();
    return std::move(out_);
  }

 private:
  StepConfig step() {
    StepConfig step;
    step.batch = wish_.batch;
    step.optimizer = random_.pick<Optimizer>({Optimizer::Sgd, Optimizer::Momentum, Optimizer::AdamW});
    if (random_.percent(30)) step.master = DType::Float32;
    step.gradients = random_.percent(30) ? DType::BFloat16 : DType::Float32;
    return step;
  }

  static Dim fixed(int64_t size) { return {size, false, 1, ""}; }
  static Dim samples() { return {1, true, 1, ""}; }
  Shape plain() { return {samples(), fixed(random_.between(1, 3) * 8)}; }
  static Shape slots() { return {{expert_count, false, 1, "expert"}, {3, true, 2, "capacity"}, fixed(8)}; }

  int activation(const std::string& name, Shape shape) {
    const ValueId value = build_.value(name, ValueKind::Computed, DType::Float32, shape);
    activations_.push_back({value, std::move(shape), true, {}});
    return static_cast<int>(activations_.size()) - 1;
  }
  ParameterId parameter(const std::string& name, Shape shape) {
    return build_.parameter(name, random_.percent(20) ? DType::BFloat16 : DType::Float32, std::move(shape));
  }
  ParameterId matrix(const std::string& name) {
    return parameter(name, {fixed(random_.between(1, 5)), fixed(random_.between(1, 40))});
  }
  /// An input that several layers may read.
  ValueId mask() {
    if (!mask_.valid()) mask_ = build_.value("mask", ValueKind::Input, DType::Bool, {samples(), fixed(4)});
    return mask_;
  }
  /// Now and then the parameter of an earlier chunk.
  ParameterId matrix_or_tied(const std::string& name) {
    if (shareable_.empty() || !random_.percent(12)) {
      shareable_.push_back(matrix(name));
      return shareable_.back();
    }
    out_.shares = true;
    return random_.pick(shareable_);
  }

  Draft& draft(const std::string& name, std::vector<ScopeTag> scopes) {
    Draft next;
    next.chunk = build_.chunk(name, std::move(scopes));
    drafts_.push_back(std::move(next));
    return drafts_.back();
  }

  void add_encoders() {
    out_.encoders = random_.percent(30) ? random_.between(2, 3) : 1;
    for (int e = 0; e < out_.encoders; ++e) {
      const std::string name = fmt::format("encoder.{}", e);
      const ValueId input =
          build_.value(fmt::format("input.{}", e), ValueKind::Input, DType::Int64, {samples(), fixed(4)});
      const int written = activation(name + ".out", plain());
      Draft& chunk = draft(name, {{"encoder", e}});
      chunk.inputs = {input};
      chunk.writes = {written};
      if (out_.encoders > 1 && e == 1 && random_.percent(40)) {  // frozen: nothing flows back
        chunk.has_backward = false;
        chunk.parameters = {matrix(name + ".frozen")};
        build_.freeze(chunk.parameters[0]);
        activations_[static_cast<size_t>(written)].needs_gradient = false;
      } else {
        chunk.parameters = {matrix_or_tied(name + ".w")};
      }
      finish_forward(chunk);
      ends_.push_back(written);
    }
    masked_ = random_.percent(50);
  }

  /// What a layer reads: the previous one (the first layer: all encoders), sometimes something from further back.
  std::vector<int> entering(int layer) {
    std::vector<int> reads = layer == 0 ? ends_ : std::vector<int>{ends_.back()};
    const int further = random_.below(static_cast<int>(ends_.size()));
    if (random_.percent(20) && ends_[static_cast<size_t>(further)] != reads.back() && layer > 0)
      reads.push_back(ends_[static_cast<size_t>(further)]);
    return reads;
  }

  void add_dense(int layer) {
    const std::string name = fmt::format("layer.{}", layer);
    const int written = activation(name + ".out", plain());
    const std::vector<int> reads = entering(layer);
    Draft& chunk = draft(name, {{"layer", layer}});
    chunk.reads = reads;
    chunk.writes = {written};
    if (!random_.percent(15)) chunk.parameters.push_back(matrix_or_tied(name + ".w"));
    if (!chunk.parameters.empty() && random_.percent(40)) chunk.parameters.push_back(matrix(name + ".b"));
    if (masked_ && random_.percent(30)) chunk.inputs = {mask()};
    add_saved(chunk, name, plain());
    if (wish_.aux && random_.percent(10)) add_aux(chunk, name);
    finish_forward(chunk);
    ends_.push_back(written);
  }

  void add_aux(Draft& chunk, const std::string& name) {
    const int aux = activation(name + ".aux", {});
    chunk.writes.push_back(aux);
    aux_.push_back(aux);
    out_.has_aux = true;
  }

  void add_saved(Draft& chunk, const std::string& name, Shape shape) {
    chunk.handed = {shape[0]};
    if (shape.size() > 2) chunk.handed = shape;
    if (random_.percent(70)) chunk.saved = {build_.value(name + ".saved", ValueKind::Computed, DType::BFloat16, shape)};
  }

  /// Dispatch, one or two chunks of experts, combine.
  void add_experts(int layer) {
    out_.has_experts = true;
    const std::string name = fmt::format("layer.{}", layer);
    const int kept = activation(name + ".kept", plain()), sent = activation(name + ".sent", slots());
    const std::vector<int> reads = entering(layer);
    Draft& dispatch = draft(name + ".dispatch", {{"layer", layer}});
    dispatch.reads = reads;
    dispatch.writes = {kept, sent};
    dispatch.parameters = {matrix(name + ".router")};
    add_saved(dispatch, name + ".dispatch", plain());
    if (wish_.aux && random_.percent(15)) add_aux(dispatch, name);
    finish_forward(dispatch);
    int last = sent;
    const int parts = random_.between(1, 2);
    for (int p = 0; p < parts; ++p) last = add_expert_chunk(layer, p, last);
    const int written = activation(name + ".out", plain());
    Draft& combine = draft(name + ".combine", {{"layer", layer}});
    combine.reads = {kept, last};
    combine.writes = {written};
    finish_forward(combine);
    ends_.push_back(written);
  }

  int add_expert_chunk(int layer, int part, int from) {
    const std::string name = fmt::format("layer.{}.experts.{}", layer, part);
    const int written = activation(name + ".out", slots());
    Draft& chunk = draft(name, {{"layer", layer}, {"experts", 0}});
    chunk.reads = {from};
    chunk.writes = {written};
    chunk.parameters = {parameter(name + ".w", {{expert_count, false, 1, "expert"}, fixed(random_.between(1, 9))})};
    if (random_.percent(40)) chunk.parameters.push_back(matrix(name + ".scale"));  // replicated inside the region
    add_saved(chunk, name, slots());
    finish_forward(chunk);
    return written;
  }

  void add_head() {
    const ValueId labels = build_.value("labels", ValueKind::Input, DType::Int64, {samples(), fixed(4)});
    const ValueId loss = build_.value("loss", ValueKind::Loss, DType::Float32, {});
    Draft& head = draft("head", {{"head", 0}});
    head.inputs = {labels};
    head.reads = {ends_.back()};
    head.reads.insert(head.reads.end(), aux_.begin(), aux_.end());
    head.parameters = {matrix_or_tied("head.w")};
    head.computes_loss = true;
    add_saved(head, "head", plain());
    finish_forward(head);
    build_.work(head.chunk, Pass::F).writes.insert(build_.work(head.chunk, Pass::F).writes.begin(), loss);
  }

  void finish_forward(const Draft& draft) {
    PassWork& work = build_.work(draft.chunk, Pass::F);
    work.reads = draft.inputs;
    for (const int a : draft.reads) work.reads.push_back(activations_[static_cast<size_t>(a)].value);
    for (const int a : draft.writes) work.writes.push_back(activations_[static_cast<size_t>(a)].value);
    work.writes.insert(work.writes.end(), draft.saved.begin(), draft.saved.end());
    work.parameters = draft.parameters;
    work.flops = {1000, random_.between(1, 9) * 100'000'000};
    work.temporaries = {0, random_.between(0, 3) * 16};
  }

  /// Reads what forward read, saved and the gradients of what it wrote; leaves one gradient per activation it read.
  void add_backward(const Draft& draft) {
    if (!draft.has_backward) return;
    const std::string name = fmt::format("d.{}", draft.chunk.value);
    PassWork whole;
    whole.reads = draft.inputs;
    whole.reads.insert(whole.reads.end(), draft.saved.begin(), draft.saved.end());
    for (const int a : draft.reads) whole.reads.push_back(activations_[static_cast<size_t>(a)].value);
    for (const int a : draft.writes)
      for (const ValueId gradient : activations_[static_cast<size_t>(a)].gradients) whole.reads.push_back(gradient);
    for (const int a : draft.reads) {
      Activation& activation = activations_[static_cast<size_t>(a)];
      if (!activation.needs_gradient) continue;
      const ValueId gradient =
          build_.value(fmt::format("{}.{}", name, a), ValueKind::Computed, DType::Float32, activation.shape);
      activation.gradients.push_back(gradient);
      whole.writes.push_back(gradient);
    }
    whole.parameters = draft.parameters;
    whole.gradients = draft.parameters;
    whole.flops = {1000, 300'000'000};
    if (out_.splits_backward || random_.percent(30)) split_backward(draft, whole, name);
    build_.work(draft.chunk, Pass::B) = std::move(whole);
  }

  /// Values BI needs, values BW needs, and sometimes one that only goes from BI to BW.
  void split_backward(const Draft& draft, const PassWork& whole, const std::string& name) {
    if (whole.writes.empty() || whole.gradients.empty()) return;  // all of it is one part
    PassWork input = whole, weight = whole;
    input.gradients.clear();
    weight.writes.clear();
    weight.parameters.clear();
    if (!draft.saved.empty() && random_.percent(50)) std::erase(weight.reads, draft.saved[0]);
    if (random_.percent(50)) std::erase(input.reads, activations_[static_cast<size_t>(draft.reads[0])].value);
    if (random_.percent(50) && !draft.handed.empty()) {
      const ValueId handed = build_.value(name + ".handed", ValueKind::Computed, DType::Float32, draft.handed);
      input.writes.push_back(handed);
      weight.reads.push_back(handed);
    }
    build_.work(draft.chunk, Pass::BI) = std::move(input);
    build_.work(draft.chunk, Pass::BW) = std::move(weight);
  }

  Random& random_;
  ModelWish wish_;
  ModelBuilder build_;
  RandomModel out_;
  std::vector<Activation> activations_;
  std::vector<Draft> drafts_;
  std::vector<ParameterId> shareable_;
  std::vector<int> ends_, aux_;  // outputs of encoders and layers; values without batch dimension
  bool masked_ = false;
  ValueId mask_;
};

}  // namespace

RandomModel random_model(Random& random, const ModelWish& wish) {
  return Writer(random, wish).write();
}

}  // namespace piper::property
