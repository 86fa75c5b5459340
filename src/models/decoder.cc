#include "models/decoder.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "capture/record/annotate.h"
#include "models/mixture.h"
#include "models/next_token.h"

namespace piper {
namespace {

using at::Tensor;

struct DecoderLayer : torch::nn::Module {
  DecoderLayer(const ModelConfig& c, int64_t index, const TensorMaker& make)
      : attention(register_module("attention", std::make_shared<Attention>(c, make))) {
    if (is_mixture_layer(c, index))
      mixture = std::make_unique<Mixture>(*this, c, make);
    else
      mlp = register_module("mlp", std::make_shared<Mlp>(c, dense_width(c), make));
  }
  HiddenState forward(HiddenState in, const Rotation* rotation, const Tensor& places) const {
    const annotate scope("layer");
    in.x = attention->forward(in.x, rotation, Mask::Causal, places);
    if (mixture) return mixture->forward(in);
    in.x = mlp->forward(in.x);
    return in;
  }
  std::shared_ptr<Attention> attention;
  std::shared_ptr<Mlp> mlp;
  std::unique_ptr<Mixture> mixture;
};

struct Decoder : ModelModule {
  Decoder(const ModelConfig& c, int64_t sequence, const TensorMaker& make)
      : config(c),
        sequence(sequence),
        embed(register_module("embed", std::make_shared<Embedding>(c, make))),
        layers(register_module("layer",
                               std::make_shared<LayerList<DecoderLayer>>(
                                   c.layers, [&](int64_t i) { return std::make_shared<DecoderLayer>(c, i, make); }))),
        head(register_module("head", std::make_shared<Head>(c, make))) {
    if (!has_learned_positions(c.arch))
      rotation = register_module("rope", std::make_shared<Rotation>(sequence, head_width(c), make));
  }
  std::vector<InputSpec> inputs() const override {
    std::vector<InputSpec> out = {{"tokens", DType::Int64, {sequence}}, {"targets", DType::Int64, {sequence}}};
    if (documents) out.push_back({"places", DType::Int64, {sequence}});
    if (temperature) std::ranges::copy(next_token_inputs(), std::back_inserter(out));
    return out;
  }
  Tensor loss(const std::vector<Tensor>& inputs) override {
    const Tensor places = documents ? inputs[2] : Tensor();
    HiddenState state;
    state.x = embed->forward(inputs[0], places);
    for (const auto& layer : layers->all) state = layer->forward(std::move(state), rotation.get(), places);
    const annotate scope("head");
    const Tensor normed = head->norm(state.x);
    const Tensor loss = mean_cross_entropy(head->project(normed, embed->weight), inputs[1]);
    if (temperature) choose(normed, inputs[inputs.size() - 2], inputs.back());
    return with_losses_of_routers(loss, state);
  }
  Tensor with_losses_of_routers(Tensor loss, const HiddenState& state) {
    of_routers.clear();
    const auto add = [&](const char* name, const Tensor& value, double weight) {
      of_routers.push_back({name, value.detach()});
      loss = loss + weight * value;
    };
    if (state.imbalance.defined()) add("aux_loss", state.imbalance.mean(), config.router_aux_loss_coef);
    if (state.probabilities.defined())
      add("aux_loss", joint_imbalance(state, config.layers - config.dense_layers), config.router_aux_loss_coef);
    if (state.squares.defined()) add("z_loss", state.squares.mean(), config.router_z_loss_coef);
    for (size_t i = 0; i < state.loads.size(); ++i)
      of_routers.push_back(
          {fmt::format("{}{}", expert_load_metric, config.dense_layers + static_cast<int64_t>(i)), state.loads[i]});
    return loss;
  }
  void choose(const Tensor& x, const Tensor& sample, const Tensor& last) {
    const at::NoGradGuard no_gradient;
    const Tensor token = choose_token(head->project(at_place(x, last), embed->weight), *temperature);
    chosen = at::stack({sample.to(token.scalar_type()), token}, 1);
  }
  bool attend_within_documents() override { return documents = true; }
  bool choose_next_token(double of_temperature) override {
    temperature = of_temperature;
    return true;
  }
  Tensor next_token() const override { return chosen; }
  std::vector<NamedTensor> metrics() const override { return of_routers; }
  void initialize(uint64_t seed, const std::string& name, Tensor& whole) const override {
    initialize_by_name(seed, name, config.rope_theta, 2 * config.layers, whole);
  }
  ModelConfig config;
  int64_t sequence;
  bool documents = false;               // attention stays within them
  std::optional<double> temperature;    // at which it chooses the next token
  std::vector<NamedTensor> of_routers;  // of the last call: metrics; aux_loss: as transformers calls it
  Tensor chosen;                        // of the last call
  std::shared_ptr<Embedding> embed;
  std::shared_ptr<LayerList<DecoderLayer>> layers;
  std::shared_ptr<Head> head;
  std::shared_ptr<Rotation> rotation;
};

}  // namespace

std::shared_ptr<ModelModule> make_decoder(const ModelConfig& config, int64_t sequence, const TensorMaker& make) {
  return std::make_shared<Decoder>(config, sequence, make);
}

}  // namespace piper
