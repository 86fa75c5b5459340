#include "models/two_branch.h"

#include <ATen/ATen.h>

#include "capture/record/annotate.h"
#include "models/layers.h"

namespace piper {
namespace {

using at::Tensor;

/// A layer of an encoder, which sees all tokens, or with cross-attention of the decoder, which sees earlier ones.
struct BranchLayer : torch::nn::Module {
  enum class Kind { Encoder, Decoder };
  BranchLayer(Kind kind, const ModelConfig& c, const TensorMaker& make)
      : mask(kind == Kind::Encoder ? Mask::None : Mask::Causal),
        attention(register_module("attention", std::make_shared<Attention>(c, make))) {
    if (kind == Kind::Decoder) cross = register_module("cross", std::make_shared<Attention>(c, make));
    mlp = register_module("mlp", std::make_shared<Mlp>(c, c.ffn, make));
  }
  Tensor forward(Tensor x, const Rotation& rotation, const Tensor& memory) const {
    const annotate scope("layer");
    x = attention->forward(x, &rotation, mask);
    if (cross) x = cross->forward_to(x, memory);
    return mlp->forward(x);
  }
  Mask mask;
  std::shared_ptr<Attention> attention, cross;
  std::shared_ptr<Mlp> mlp;
};
using BranchLayers = LayerList<BranchLayer>;

std::shared_ptr<BranchLayers> branch_layers(BranchLayer::Kind kind, int64_t count, const ModelConfig& c,
                                            const TensorMaker& make) {
  return std::make_shared<BranchLayers>(count, [&](int64_t) { return std::make_shared<BranchLayer>(kind, c, make); });
}

struct Encoder : torch::nn::Module {
  Encoder(std::string scope, const ModelConfig& c, const TensorMaker& make)
      : scope_name(std::move(scope)),
        embed(register_module("embed", std::make_shared<Embedding>(c, make))),
        layers(register_module("layer", branch_layers(BranchLayer::Kind::Encoder, c.encoder_layers, c, make))),
        norm(register_module("norm", std::make_shared<NormLayer>(c, c.hidden, make))) {}
  Tensor forward(const Tensor& tokens, const Rotation& rotation) const {
    const annotate scope(scope_name);
    Tensor x = embed->forward(tokens);
    for (const auto& layer : layers->all) x = layer->forward(x, rotation, {});
    return norm->forward(x);
  }
  std::string scope_name;
  std::shared_ptr<Embedding> embed;
  std::shared_ptr<BranchLayers> layers;
  std::shared_ptr<NormLayer> norm;
};

struct TwoBranch : ModelModule {
  TwoBranch(const ModelConfig& c, int64_t sequence, const TensorMaker& make)
      : config(c),
        sequence(sequence),
        rotation(register_module("rope", std::make_shared<Rotation>(sequence, head_width(c), make))),
        left(register_module("left", std::make_shared<Encoder>("left", c, make))),
        right(register_module("right", std::make_shared<Encoder>("right", c, make))),
        embed(register_module("embed", std::make_shared<Embedding>(c, make))),
        layers(register_module("layer", branch_layers(BranchLayer::Kind::Decoder, c.layers, c, make))),
        head(register_module("head", std::make_shared<Head>(c, make))) {}

  std::vector<InputSpec> inputs() const override {
    std::vector<InputSpec> out;
    for (const char* name : {"left", "right", "tokens", "targets"}) out.push_back({name, DType::Int64, {sequence}});
    return out;
  }
  /// Both encoders' results one after another.
  static Tensor join(const Tensor& first, const Tensor& second) {
    const annotate scope("join");
    return at::cat({first, second}, 1);
  }
  Tensor loss(const std::vector<Tensor>& inputs) override {
    const Tensor first = left->forward(inputs[0], *rotation), second = right->forward(inputs[1], *rotation);
    const Tensor memory = join(first, second);
    Tensor x = embed->forward(inputs[2]);
    for (const auto& layer : layers->all) x = layer->forward(x, *rotation, memory);
    const annotate scope("head");
    return mean_cross_entropy(head->forward(x, embed->weight), inputs[3]);
  }
  void initialize(uint64_t seed, const std::string& name, Tensor& whole) const override {
    initialize_by_name(seed, name, config.rope_theta, 2 * config.encoder_layers + 3 * config.layers, whole);
  }
  ModelConfig config;
  int64_t sequence;
  std::shared_ptr<Rotation> rotation;
  std::shared_ptr<Encoder> left, right;
  std::shared_ptr<Embedding> embed;
  std::shared_ptr<BranchLayers> layers;
  std::shared_ptr<Head> head;
};

}  // namespace

std::shared_ptr<ModelModule> make_two_branch(const ModelConfig& config, int64_t sequence, const TensorMaker& make) {
  return std::make_shared<TwoBranch>(config, sequence, make);
}

}  // namespace piper
