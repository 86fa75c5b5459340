#include "models/reference_decoder.h"

#include <ATen/ATen.h>

#include "capture/experts/grouped_mm.h"
#include "capture/record/annotate.h"
#include "models/attend.h"
#include "models/initial_values.h"
#include "models/sorted_rows.h"

namespace piper {
namespace {

using at::Tensor;

Tensor rms(const Tensor& x, const Tensor& gain) {
  return at::rms_norm(x, {x.size(-1)}, gain, 1e-6);
}

struct ReferenceMlp : torch::nn::Module {
  ReferenceMlp(const ModelConfig& c, const TensorMaker& make)
      : w_gate(register_parameter("w_gate", make({c.ffn, c.hidden}))),
        w_up(register_parameter("w_up", make({c.ffn, c.hidden}))),
        w_down(register_parameter("w_down", make({c.hidden, c.ffn}))) {}
  Tensor forward(const Tensor& x) const {
    return at::linear(at::silu(at::linear(x, w_gate)) * at::linear(x, w_up), w_down);
  }
  Tensor w_gate, w_up, w_down;
};

struct ReferenceMixture : torch::nn::Module {
  ReferenceMixture(const ModelConfig& c, const TensorMaker& make)
      : config(c),
        router(register_parameter("router", make({c.experts, c.hidden}))),
        w_gate(register_parameter("w_gate", make({c.experts, c.hidden, c.moe_ffn}))),
        w_up(register_parameter("w_up", make({c.experts, c.hidden, c.moe_ffn}))),
        w_down(register_parameter("w_down", make({c.experts, c.moe_ffn, c.hidden}))) {}
  template <class Product>
  Tensor experts(const Tensor& x, Product product) const {
    const annotate scope("experts", {.experts = config.experts});
    return product(at::silu(product(x, w_gate)) * product(x, w_up), w_down);
  }
  Tensor forward(const Tensor& input) const {
    const Tensor x = input.reshape({-1, config.hidden});
    const Choices choices = choose(at::linear(x, router), router_form(config));
    if (config.dropless) {
      const SortedRows rows = sort_rows(choices);
      const auto product = [&](const Tensor& a, const Tensor& w) { return grouped_mm(a, w, rows.ends); };
      return combine(experts(dispatch(x, rows), product), rows).view_as(input);
    }
    const SlotRouting routing = route(choices, config.capacity_factor);
    const auto product = [](const Tensor& a, const Tensor& w) { return at::bmm(a, w); };
    return combine(experts(dispatch(x, routing), product), routing).view_as(input);
  }
  ModelConfig config;
  Tensor router, w_gate, w_up, w_down;
};

struct ReferenceLayer : torch::nn::Module {
  ReferenceLayer(const ModelConfig& c, const TensorMaker& make)
      : heads(c.heads),
        target(make.target),
        norm1(register_parameter("norm1", make({c.hidden}))),
        norm2(register_parameter("norm2", make({c.hidden}))),
        wqkv(register_parameter("wqkv", make({3 * c.hidden, c.hidden}))),
        wo(register_parameter("wo", make({c.hidden, c.hidden}))) {
    if (has_experts(c.arch))
      mixture = register_module("mlp", std::make_shared<ReferenceMixture>(c, make));
    else
      mlp = register_module("mlp", std::make_shared<ReferenceMlp>(c, make));
  }
  Tensor attention(const Tensor& h) const {
    const annotate scope("attention");
    const int64_t b = h.size(0), t = h.size(1), d = h.size(2);
    const Tensor qkv = at::linear(rms(h, norm1), wqkv).view({b, t, 3, heads, d / heads}).permute({2, 0, 3, 1, 4});
    const Tensor mixed = attend(qkv[0], qkv[1], qkv[2], Mask::Causal, target);
    return h + at::linear(mixed.transpose(1, 2).reshape({b, t, d}), wo);
  }
  Tensor forward(const Tensor& x) const {
    const annotate scope("layer");
    const Tensor h = attention(x), normed = rms(h, norm2);
    return h + (mlp ? mlp->forward(normed) : mixture->forward(normed));
  }
  int64_t heads;
  c10::DeviceType target;
  Tensor norm1, norm2, wqkv, wo;
  std::shared_ptr<ReferenceMlp> mlp;
  std::shared_ptr<ReferenceMixture> mixture;
};

struct ReferenceLayers : torch::nn::Module {
  ReferenceLayers(const ModelConfig& c, const TensorMaker& make) {
    for (int64_t i = 0; i < c.layers; ++i)
      all.push_back(register_module(std::to_string(i), std::make_shared<ReferenceLayer>(c, make)));
  }
  std::vector<std::shared_ptr<ReferenceLayer>> all;
};

struct ReferenceDecoder : ModelModule {
  ReferenceDecoder(const ModelConfig& c, int64_t sequence, const TensorMaker& make)
      : sequence(sequence),
        tok_emb(register_parameter("tok_emb", make({c.vocab, c.hidden}))),
        pos_emb(register_parameter("pos_emb", make({c.seq, c.hidden}))),
        layers(register_module("layers", std::make_shared<ReferenceLayers>(c, make))),
        norm(register_parameter("norm", make({c.hidden}))),
        head(register_parameter("head", make({c.vocab, c.hidden}))) {}

  std::vector<InputSpec> inputs() const override {
    return {{"tokens", DType::Int64, {sequence}}, {"targets", DType::Int64, {sequence}}};
  }
  Tensor embed(const Tensor& tokens) const {
    const annotate scope("embed");
    return at::embedding(tok_emb, tokens) + pos_emb.narrow(0, 0, tokens.size(1));
  }
  Tensor loss(const std::vector<Tensor>& inputs) override {
    Tensor h = embed(inputs[0]);
    for (const auto& layer : layers->all) h = layer->forward(h);
    const annotate scope("head");
    return mean_cross_entropy(at::linear(rms(h, norm), head), inputs[1]);
  }
  void initialize(uint64_t, const std::string& name, Tensor& whole) const override {
    const at::NoGradGuard no_gradient;
    if (name.substr(name.rfind('.') + 1).starts_with("norm"))
      whole.fill_(1);
    else
      fill_reference(whole, name);
  }
  int64_t sequence;
  Tensor tok_emb, pos_emb;
  std::shared_ptr<ReferenceLayers> layers;
  Tensor norm, head;
};

}  // namespace

std::shared_ptr<ModelModule> make_reference_decoder(const ModelConfig& config, int64_t sequence,
                                                    const TensorMaker& make) {
  return std::make_shared<ReferenceDecoder>(config, sequence, make);
}

}  // namespace piper
