#include "capture/zoo.h"

#include <torch/torch.h>

#include "capture/record/annotate.h"

namespace piper::zoo {
namespace {

namespace F = torch::nn::functional;
using torch::Tensor;

struct Norm : torch::nn::Module {
  Norm(const Config& config, bool layer) : dim(config.dim), layer(layer) {
    weight = register_parameter("weight", torch::rand({dim}) + 0.5);
    if (layer) bias = register_parameter("bias", torch::randn({dim}) * 0.1);
  }
  Tensor forward(const Tensor& x) {
    if (layer) return torch::layer_norm(x, {dim}, weight, bias);
    return x * torch::rsqrt(x.pow(2).mean({-1}, true) + 1e-5) * weight;
  }
  int64_t dim;
  bool layer;
  Tensor weight, bias;
};

struct Attention : torch::nn::Module {
  explicit Attention(const Config& config) : config(config) {
    qkv = register_module("qkv", torch::nn::Linear(config.dim, 3 * config.dim));
    out = register_module("out", torch::nn::Linear(torch::nn::LinearOptions(config.dim, config.dim).bias(false)));
  }
  Tensor forward(const Tensor& x) {
    const annotate scope("attention");
    const int64_t b = x.size(0), t = x.size(1), width = config.dim / config.heads;
    const Tensor parts = qkv(x).view({b, t, 3, config.heads, width}).permute({2, 0, 3, 1, 4});
    Tensor scores = torch::matmul(parts[0], parts[1].transpose(-2, -1)) / std::sqrt(static_cast<double>(width));
    const Tensor mask = torch::ones({t, t}, torch::TensorOptions().device(x.device())).triu(1).to(torch::kBool);
    scores = config.in_place ? scores.masked_fill_(mask, -INFINITY) : scores.masked_fill(mask, -INFINITY);
    const Tensor weights = torch::dropout(torch::softmax(scores, -1), config.dropout, true);
    return out(torch::matmul(weights, parts[2]).transpose(1, 2).reshape({b, t, config.dim}));
  }
  Config config;
  torch::nn::Linear qkv{nullptr}, out{nullptr};
};

struct Mlp : torch::nn::Module {
  explicit Mlp(const Config& config) : config(config) {
    up = register_module("up", torch::nn::Linear(config.dim, config.hidden));
    if (config.swiglu) gate = register_module("gate", torch::nn::Linear(config.dim, config.hidden));
    down = register_module("down", torch::nn::Linear(config.hidden, config.dim));
  }
  Tensor forward(const Tensor& x) {
    const annotate scope("mlp");
    const Tensor h = config.swiglu ? torch::silu(gate(x)) * up(x) : torch::gelu(up(x));
    return torch::dropout(down(h), config.dropout, true);
  }
  Config config;
  torch::nn::Linear up{nullptr}, gate{nullptr}, down{nullptr};
};

struct Experts : torch::nn::Module {
  explicit Experts(const Config& c) : config(c) {
    router = register_module("router", torch::nn::Linear(torch::nn::LinearOptions(c.dim, c.experts).bias(false)));
    gate = register_parameter("gate", torch::randn({c.experts, c.dim, c.hidden}) * 0.2);
    up = register_parameter("up", torch::randn({c.experts, c.dim, c.hidden}) * 0.2);
    down = register_parameter("down", torch::randn({c.experts, c.hidden, c.dim}) * 0.2);
    counts = register_buffer("counts", torch::zeros({c.experts}));
  }
  Tensor experts(const Tensor& x) {
    const annotate scope("experts", {.experts = config.experts});
    Tensor h = torch::silu(torch::bmm(x, gate)) * torch::bmm(x, up);
    if (config.expert_dropout > 0) h = torch::dropout(h, config.expert_dropout, true);
    return torch::bmm(h, down);
  }
  Tensor forward(const Tensor& input) {
    const int64_t e = config.experts, k = config.top_k, d = config.dim;
    const Tensor x = input.reshape({-1, d});
    const int64_t n = x.size(0), slots = static_cast<int64_t>(
                                     std::ceil(static_cast<double>(n * k) * config.capacity / static_cast<double>(e)));
    const auto ints = torch::TensorOptions().dtype(torch::kLong).device(x.device());
    const Tensor probabilities = torch::softmax(router(x), -1);
    auto [weight, index] = probabilities.topk(k, -1);
    weight = weight / weight.sum(-1, true);
    const Tensor chosen = index.reshape({-1});
    const Tensor hot = (chosen.unsqueeze(-1) == torch::arange(e, ints)).to(x.dtype());
    const Tensor place = ((hot.cumsum(0) - 1) * hot).sum(-1).to(torch::kLong);
    const Tensor kept = place < slots;
    {
      const torch::NoGradGuard no_gradient;
      counts.add_(hot.sum(0));
    }
    auxiliary = (probabilities.mean(0) * hot.mean(0)).sum() * static_cast<double>(e);
    if (config.mixture == Mixture::OneHot) {
      const Tensor in_slot = (place.unsqueeze(-1) == torch::arange(slots, ints)).to(x.dtype());
      const Tensor dispatch = torch::einsum("ne,nc->nec", {hot, in_slot}).view({n, k, e, slots});
      const Tensor y = experts(torch::einsum("nec,nd->ecd", {dispatch.sum(1), x}));
      return torch::einsum("nec,ecd->nd", {(dispatch * weight.view({n, k, 1, 1})).sum(1), y}).view_as(input);
    }
    const Tensor slot = torch::where(kept, chosen * slots + place, torch::full({}, e * slots, ints));
    const Tensor copies = x.unsqueeze(1).expand({n, k, d}).reshape({-1, d});
    Tensor buffer = torch::zeros({e * slots + 1, d}, x.options());
    if (config.mixture == Mixture::IndexAdd)
      buffer = buffer.index_add(0, slot, copies);
    else
      buffer.index_put_({slot}, copies);
    Tensor y = experts(buffer.narrow(0, 0, e * slots).view({e, slots, d})).reshape({e * slots, d});
    y = torch::cat({y, torch::zeros({1, d}, x.options())}, 0);
    const Tensor back = config.mixture == Mixture::IndexAdd ? y.index_select(0, slot) : y.index({slot});
    return (back * (weight.reshape({-1, 1}) * kept.unsqueeze(-1))).view({n, k, d}).sum(1).view_as(input);
  }
  Config config;
  torch::nn::Linear router{nullptr};
  Tensor gate, up, down, counts, auxiliary;
};

struct Layer : torch::nn::Module {
  Layer(const Config& c, int64_t index) : config(c) {
    const bool layer = c.layer_norm && index % 2 == 0;
    norm1 = register_module("norm1", std::make_shared<Norm>(c, layer));
    norm2 = register_module("norm2", std::make_shared<Norm>(c, layer));
    attention = register_module("attention", std::make_shared<Attention>(c));
    if (c.mixture != Mixture::None && index % 2 == 1)
      experts = register_module("experts", std::make_shared<Experts>(c));
    else
      mlp = register_module("mlp", std::make_shared<Mlp>(c));
  }
  Tensor forward(Tensor x) {
    const annotate scope("layer");
    x = x + attention->forward(norm1->forward(x));
    const Tensor h = norm2->forward(x);
    Tensor y = mlp ? mlp->forward(h) : experts->forward(h);
    return config.in_place ? y.add_(x) : x + y;
  }
  Config config;
  std::shared_ptr<Norm> norm1, norm2;
  std::shared_ptr<Attention> attention;
  std::shared_ptr<Mlp> mlp;
  std::shared_ptr<Experts> experts;
};

struct Decoder : torch::nn::Module {
  explicit Decoder(const Config& c) : config(c) {
    table = register_module("table", torch::nn::Embedding(c.vocabulary, c.dim));
    positions = register_parameter("positions", torch::randn({c.length, c.dim}) * 0.1);
    for (int64_t i = 0; i < c.layers; ++i)
      layers.push_back(register_module("layer" + std::to_string(i), std::make_shared<Layer>(c, i)));
    if (c.two_branches) other = register_module("other", std::make_shared<Mlp>(c));
    norm = register_module("norm", std::make_shared<Norm>(c, true));
    if (!c.tied) head = register_parameter("head", torch::randn({c.vocabulary, c.dim}) * 0.2);
  }
  Tensor embed(const Tensor& tokens) {
    const annotate scope("embed");
    return table(tokens) * std::sqrt(static_cast<double>(config.dim)) + positions;
  }
  Tensor loss(const Tensor& tokens, const Tensor& targets) {
    Tensor x = embed(tokens), side;
    if (other) {
      const annotate scope("branch");
      side = other->forward(x.flip({1}));
    }
    for (const auto& layer : layers) x = layer->forward(x);
    const annotate scope("head");
    if (side.defined()) x = x + torch::tanh(side);
    const Tensor logits = F::linear(norm->forward(x), config.tied ? table->weight : head);
    Tensor loss = F::cross_entropy(logits.view({-1, config.vocabulary}), targets.view({-1}));
    for (const auto& layer : layers)
      if (layer->experts) loss = loss + 0.01 * layer->experts->auxiliary;
    return loss;
  }
  Config config;
  torch::nn::Embedding table{nullptr};
  Tensor positions, head;
  std::vector<std::shared_ptr<Layer>> layers;
  std::shared_ptr<Mlp> other;
  std::shared_ptr<Norm> norm;
};

}  // namespace

void PrintTo(const Named& named, std::ostream* out) {
  *out << named.name;
}

std::vector<Named> all() {
  std::vector<Named> out;
  const auto add = [&](std::string name, auto change) {
    Config config;
    change(config);
    out.push_back({std::move(name), config});
  };
  add("dense", [](Config&) {});
  add("rms_swiglu", [](Config& c) { c.layer_norm = false, c.swiglu = true, c.tied = false; });
  add("dropout", [](Config& c) { c.dropout = 0.1; });
  add("in_place", [](Config& c) { c.in_place = true; });
  add("index_add", [](Config& c) { c.mixture = Mixture::IndexAdd; });
  add("one_hot", [](Config& c) { c.mixture = Mixture::OneHot; });
  add("index_put", [](Config& c) { c.mixture = Mixture::IndexPut, c.in_place = true; });
  add("mixture_dropout", [](Config& c) { c.mixture = Mixture::IndexAdd, c.dropout = 0.2, c.layers = 4; });
  add("two_branches", [](Config& c) { c.two_branches = true, c.dropout = 0.1; });
  return out;
}

MetaModel make(const Config& config) {
  const auto module = std::make_shared<Decoder>(config);
  MetaModel out;
  for (const auto& item : module->named_parameters()) out.parameters.push_back({item.key(), item.value()});
  for (const auto& item : module->named_buffers()) out.buffers.push_back({item.key(), item.value()});
  out.loss = [module](const std::vector<Tensor>& inputs) { return module->loss(inputs[0], inputs[1]); };
  return out;
}

CaptureOptions options(const Config& config, std::vector<int64_t> samples) {
  CaptureOptions out;
  out.name = "zoo";
  out.step.batch = 16;
  out.step.sequence = config.length;
  out.inputs = {{"tokens", DType::Int64, {config.length}}, {"targets", DType::Int64, {config.length}}};
  out.samples = std::move(samples);
  return out;
}

CapturedModel captured(const Config& config, std::vector<int64_t> samples) {
  MetaModel meta;
  if (auto built = build_on_meta([&] { meta = make(config); }); !built) throw std::runtime_error(render(built.error()));
  auto result = capture(meta, options(config, std::move(samples)));
  if (!result) throw std::runtime_error(render(result.error()));
  return *std::move(result);
}

std::vector<Tensor> batch(const Config& config, int64_t samples, uint64_t seed) {
  torch::manual_seed(seed);
  return {torch::randint(config.vocabulary, {samples, config.length}),
          torch::randint(config.vocabulary, {samples, config.length})};
}

}  // namespace piper::zoo
