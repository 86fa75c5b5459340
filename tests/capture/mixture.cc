#include "capture/mixture.h"

#include <torch/torch.h>

#include <functional>
#include <map>

#include "capture/record/annotate.h"

namespace piper::mixture {
namespace {

using torch::Tensor;

struct Model;

/// What a formulation is made of. `inside` computes the experts on x [experts, capacity, dim].
struct Body {
  std::function<Tensor(Model&, Tensor x)> inside;
  std::string refused;
  std::function<Tensor(Model&, Tensor y, Tensor x)> outside = nullptr;  // what comes after the region, with its input
  bool router_weights_inside = false;
  bool flat_border = false;
  bool around_router = false;
  int64_t tokens = 0;  // other than usual
};

const std::map<std::string, Body>& bodies();

struct Model : torch::nn::Module {
  Model(const std::string& formulation, const Sizes& sizes) : body(bodies().at(formulation)), sizes(sizes) {
    const int64_t e = sizes.experts, d = sizes.dim, h = sizes.hidden;
    const bool stacked = formulation == "stacked_weights";
    table = add("table", {sizes.vocabulary, d}, 1);
    router = add("router", {d, e}, 1);
    w1 = add("w1",
             stacked ? std::vector<int64_t>{e * d, h} : std::vector<int64_t>{e, d, formulation == "fused" ? 2 * h : h});
    if (formulation != "fused")
      w3 = add("w3", stacked ? std::vector<int64_t>{e * d, h} : std::vector<int64_t>{e, d, h});
    w2 = add("w2", stacked ? std::vector<int64_t>{e * h, d} : std::vector<int64_t>{e, h, d});
    bias = add("bias", {e, 1, d});
    scale = add("scale", {d}, 1);
    if (formulation == "shared_linear") shared = add("shared", {d, d});
    if (formulation == "layer_norm") {
      norm_weight = add("norm_weight", {d}, 1);
      norm_bias = add("norm_bias", {d}, 1);
    }
    head = add("head", {d, sizes.vocabulary}, 1);
  }
  Tensor add(const char* name, const std::vector<int64_t>& shape, double deviation = 0.4) {
    return register_parameter(name, torch::randn(shape) * deviation);
  }

  Tensor swiglu(const Tensor& x) { return torch::bmm(torch::silu(torch::bmm(x, w1)) * torch::bmm(x, w3), w2); }
  Tensor finish(const Tensor& y) { return (y + bias) * scale; }

  Tensor experts(const Tensor& x, const Tensor& factor) {
    std::unique_ptr<annotate> scope;
    if (!body.around_router) scope = std::make_unique<annotate>("experts", ScopeAttributes{sizes.experts});
    const Tensor y = body.inside(*this, x);
    return factor.defined() ? y * factor : y;
  }

  Tensor block(const Tensor& x) {
    std::unique_ptr<annotate> around;
    if (body.around_router) around = std::make_unique<annotate>("experts", ScopeAttributes{sizes.experts});
    const int64_t n = x.size(0), e = sizes.experts, k = sizes.top_k, d = sizes.dim;
    const int64_t slots =
        static_cast<int64_t>(std::ceil(static_cast<double>(n * k) * sizes.capacity / static_cast<double>(e)));
    const auto ints = x.options().dtype(torch::kLong);
    const Tensor probabilities = torch::softmax(torch::mm(x, router), -1);
    auto [weight, index] = probabilities.topk(k, -1);
    weight = weight / weight.sum(-1, true);
    const Tensor chosen = index.reshape({-1});
    const Tensor hot = (chosen.unsqueeze(-1) == torch::arange(e, ints)).to(x.dtype());
    const Tensor place = ((hot.cumsum(0) - 1) * hot).sum(-1).to(torch::kLong);
    const Tensor kept = place < slots;
    auxiliary = (probabilities.mean(0) * hot.mean(0)).sum() * static_cast<double>(e);
    const Tensor slot = torch::where(kept, chosen * slots + place, torch::full({}, e * slots, ints));
    const Tensor copies = x.unsqueeze(1).expand({n, k, d}).reshape({-1, d});
    const Tensor buffer =
        torch::zeros({e * slots + 1, d}, x.options()).index_add(0, slot, copies).narrow(0, 0, e * slots);
    Tensor factor;
    if (body.router_weights_inside)
      factor = torch::zeros({e * slots + 1}, x.options())
                   .index_put({slot}, weight.reshape({-1}))
                   .narrow(0, 0, e * slots)
                   .view({e, slots, 1});
    const Tensor dispatched = body.flat_border ? buffer : buffer.view({e, slots, d});
    Tensor y = experts(dispatched, factor);
    if (body.outside) y = body.outside(*this, y, dispatched);
    y = torch::cat({y.reshape({e * slots, d}), torch::zeros({1, d}, x.options())}, 0).index_select(0, slot);
    const Tensor mask = kept.unsqueeze(-1).to(x.dtype());
    y = body.router_weights_inside ? y * mask : y * (weight.reshape({-1, 1}) * mask);
    return x + y.view({n, k, d}).sum(1);
  }

  Tensor loss(const Tensor& tokens, const Tensor& targets) {
    Tensor x, total;
    {
      const annotate scope("embed");
      x = torch::embedding(table, tokens.reshape({-1}));
    }
    for (int64_t i = 0; i < sizes.layers; ++i) {
      const annotate scope("layer");
      x = block(x);
      if (sizes.layers > 1) x = x * torch::rsqrt(x.pow(2).mean(-1, true) + 1e-5);
      total = total.defined() ? total + 0.01 * auxiliary : 0.01 * auxiliary;
    }
    const annotate scope("head");
    total = total + torch::nll_loss(torch::log_softmax(torch::mm(x, head), -1), targets.reshape({-1}));
    return leaked.defined() ? total + leaked : total;
  }

  Body body;
  Sizes sizes;
  Tensor table, router, w1, w3, w2, bias, scale, shared, norm_weight, norm_bias, head, auxiliary, leaked;
};

Body simple(std::function<Tensor(Model&, Tensor)> before, std::string refused = "") {
  return {[before = std::move(before)](Model& m, Tensor x) { return m.finish(m.swiglu(before(m, x))); },
          std::move(refused)};
}
Body afterwards(std::function<Tensor(Model&, Tensor)> after, std::string refused) {
  return {[after = std::move(after)](Model& m, Tensor x) { return after(m, m.finish(m.swiglu(x))); },
          std::move(refused)};
}

std::map<std::string, Body> make_accepted() {
  std::map<std::string, Body> out;
  out["plain"] = simple([](Model&, Tensor x) { return x; });
  out["dropout"] = {[](Model& m, Tensor x) {
                      const Tensor h = torch::silu(torch::bmm(x, m.w1)) * torch::bmm(x, m.w3);
                      return m.finish(torch::bmm(torch::dropout(h, 0.3, true), m.w2));
                    },
                    ""};
  out["fused"] = {[](Model& m, Tensor x) {
                    const auto halves = torch::bmm(x, m.w1).chunk(2, -1);
                    return m.finish(torch::bmm(torch::silu(halves[0]) * halves[1], m.w2));
                  },
                  ""};
  out["einsum"] = {[](Model& m, Tensor x) {
                     const Tensor h = torch::silu(torch::einsum("ecd,edh->ech", {x, m.w1})) *
                                      torch::einsum("ecd,edh->ech", {x, m.w3});
                     return m.finish(torch::bmm(h, m.w2));
                   },
                   ""};
  out["shared_linear"] = simple([](Model& m, Tensor x) {
    Tensor flat = x.reshape({x.size(0) * x.size(1), m.sizes.dim});
    flat = flat * torch::rsqrt(flat.pow(2).mean(-1, true) + 1e-5);
    return torch::mm(flat, m.shared).view({x.size(0), x.size(1), m.sizes.dim});
  });
  out["stacked_weights"] = {
      [](Model& m, Tensor x) {
        const int64_t d = m.sizes.dim, h = m.sizes.hidden;
        const Tensor inner = torch::silu(torch::bmm(x, m.w1.view({-1, d, h}))) * torch::bmm(x, m.w3.view({-1, d, h}));
        return m.finish(torch::bmm(inner, m.w2.view({-1, h, d})));
      },
      ""};
  out["size_as_number"] = simple([](Model&, Tensor x) { return x / std::sqrt(static_cast<double>(x.size(1))); });
  out["factories"] = simple([](Model& m, Tensor x) {
    const Tensor half = torch::full({x.size(0), x.size(1), 1}, 0.5, x.options());
    x = torch::where(x > 0, x * half, torch::zeros({x.size(0), x.size(1), m.sizes.dim}, x.options()));
    x = torch::softmax(x, -1) * 2;
    return x.add_(0.25);
  });
  out["baddbmm"] = {[](Model& m, Tensor x) {
                      const Tensor h = torch::silu(torch::bmm(x, m.w1)) * torch::bmm(x, m.w3);
                      return torch::baddbmm(m.bias, h, m.w2) * m.scale;
                    },
                    ""};
  out["router_weights_inside"] = simple([](Model&, Tensor x) { return x; });
  out["router_weights_inside"].router_weights_inside = true;
  out["sizes_from_configuration"] = {
      [](Model& m, Tensor x) {
        const Sizes& s = m.sizes;
        const Tensor w = m.w1.view({s.experts, s.dim, s.hidden});
        return m.finish(torch::bmm(torch::silu(torch::bmm(x, w)) * torch::bmm(x, m.w3), m.w2));
      },
      ""};
  out["layer_norm"] =
      simple([](Model& m, Tensor x) { return torch::layer_norm(x, {m.sizes.dim}, m.norm_weight, m.norm_bias); });
  out["matmul_4d"] = {
      [](Model& m, Tensor x) {
        const Tensor first = torch::matmul(x.view({x.size(0), x.size(1), 1, m.sizes.dim}), m.w1.unsqueeze(1));
        return m.finish(torch::bmm(torch::silu(first.squeeze(2)) * torch::matmul(x, m.w3), m.w2));
      },
      ""};
  out["transposed_result"] = afterwards([](Model&, Tensor y) { return y.transpose(0, 1); }, "");
  out["transposed_result"].outside = [](Model&, Tensor y, Tensor) { return y.transpose(0, 1); };
  out["constant_per_expert"] = simple([](Model& m, Tensor x) {
    std::vector<double> factors;
    for (int64_t e = 0; e < m.sizes.experts; ++e) factors.push_back(1 + 0.1 * static_cast<double>(e));
    return x *
           torch::tensor(factors, torch::TensorOptions().dtype(x.dtype())).to(x.device()).view({m.sizes.experts, 1, 1});
  });
  out["rms_norm"] = simple([](Model& m, Tensor x) { return torch::rms_norm(x, {m.sizes.dim}, m.scale); });
  out["input_used_outside"] = simple([](Model&, Tensor x) { return x; });
  out["input_used_outside"].outside = [](Model&, Tensor y, Tensor x) { return y * 0.5 + x.sin(); };
  out["plain_parameter_outside"] = simple([](Model&, Tensor x) { return x; });
  out["plain_parameter_outside"].outside = [](Model& m, Tensor y, Tensor) { return y * m.scale; };
  return out;
}

std::map<std::string, Body> make_refused() {
  std::map<std::string, Body> out;
  out["loop_by_select"] = {[](Model& m, Tensor x) {
                             std::vector<Tensor> parts;
                             for (int64_t e = 0; e < x.size(0); ++e)
                               parts.push_back(torch::mm(torch::silu(torch::mm(x.select(0, e), m.w1[e])), m.w2[e]));
                             return m.finish(torch::stack(parts, 0));
                           },
                           "aten::select.int on [E, C, 6]: select of the expert dimension"};
  out["loop_by_unbind"] = {[](Model& m, Tensor x) {
                             const auto xs = x.unbind(0), first = m.w1.unbind(0), second = m.w2.unbind(0);
                             std::vector<Tensor> parts;
                             for (size_t e = 0; e < xs.size(); ++e)
                               parts.push_back(torch::mm(torch::silu(torch::mm(xs[e], first[e])), second[e]));
                             return m.finish(torch::stack(parts, 0));
                           },
                           "unbind of the expert dimension"};
  out["index_add_inside"] = afterwards(
      [](Model& m, Tensor y) {
        const int64_t rows = y.size(0) * y.size(1);
        const Tensor flat = y.reshape({rows, m.sizes.dim});
        return torch::zeros_like(flat)
            .index_add(0, torch::arange(rows - 1, -1, -1, y.options().dtype(torch::kLong)), flat)
            .view_as(y);
      },
      "index_add, whose indices name experts and slots of one slice");
  out["mean_over_capacity"] =
      simple([](Model&, Tensor x) { return x - x.mean(1, true); }, "mean over the capacity dimension");
  out["softmax_over_capacity"] =
      simple([](Model&, Tensor x) { return torch::softmax(x, 1); }, "_softmax along the capacity dimension");
  out["gather_inside"] =
      simple([](Model&, Tensor x) { return x.gather(1, torch::zeros(x.sizes(), x.options().dtype(torch::kLong))); },
             "gather, whose indices name experts and slots of one slice");
  out["positions"] = simple(
      [](Model&, Tensor x) {
        return x * torch::arange(x.size(1), x.options()).view({1, x.size(1), 1});
      },
      "arange, whose values depend on the position, along the capacity dimension");
  out["sum_over_capacity"] =
      afterwards([](Model&, Tensor y) { return y - y.sum(1, true); }, "it sums over the capacity dimension");
  out["sum_over_experts"] =
      afterwards([](Model&, Tensor y) { return y + y.sum(0, true); }, "it sums over the expert dimension");
  out["cut_capacity"] = simple(
      [](Model&, Tensor x) {
        return (x.view({x.size(0), x.size(1) / 2, 2, x.size(2)}) * 1.5).view(x.sizes());
      },
      "a view cuts through the expert or capacity dimension");
  out["cut_capacity"].tokens = 32;
  out["cat_experts"] = afterwards(
      [](Model&, Tensor y) {
        return torch::cat({y, torch::zeros({1, y.size(1), y.size(2)}, y.options())}, 0);
      },
      "cat along the expert dimension");
  out["cat_experts"].outside = [](Model& m, Tensor y, Tensor) { return y.narrow(0, 0, m.sizes.experts); };
  out["flat_result"] = afterwards(
      [](Model& m, Tensor y) {
        return y.reshape({-1, m.sizes.dim});
      },
      "a value [E*C, 6] leaves the region, without an expert and a capacity dimension of its own");
  out["number_leaves"] = afterwards(
      [](Model& m, Tensor y) {
        m.leaked = y.pow(2).mean();
        return y;
      },
      "mean over the");
  out["flat_border"] = {[](Model& m, Tensor x) {
                          const Tensor y = m.finish(m.swiglu(x.view({m.sizes.experts, -1, m.sizes.dim})));
                          return y.view({-1, m.sizes.dim});
                        },
                        "enters the region; it must be [8, capacity, ...]"};
  out["flat_border"].flat_border = true;
  out["around_router"] = {[](Model& m, Tensor x) { return m.finish(m.swiglu(x)); },
                          "enters the region; it must be [8, capacity, ...]"};
  out["around_router"].around_router = true;
  out["noise_vector"] =
      simple([](Model& m, Tensor x) { return x * torch::bernoulli(torch::full({m.sizes.dim}, 0.5, x.options())); },
             "random numbers [6] without expert and capacity dimension");
  out["expert_weight_outside"] =
      simple([](Model&, Tensor x) { return x; }, "parameter w1 of the region is also used in");
  out["expert_weight_outside"].outside = [](Model& m, Tensor y, Tensor) { return y + m.w1.pow(2).mean(); };
  out["in_place_on_input"] =
      simple([](Model&, Tensor x) { return x.mul_(0.5); }, "enters the region; it must be [8, capacity, ...]");
  out["one_slot"] = simple([](Model&, Tensor x) { return x; }, "[8, 1, 6] has one slot for each expert");
  out["one_slot"].tokens = 3;
  return out;
}

const std::map<std::string, Body>& bodies() {
  static const std::map<std::string, Body> all = [] {
    std::map<std::string, Body> out = make_accepted();
    out.merge(make_refused());
    return out;
  }();
  return all;
}

std::vector<Formulation> names(const std::map<std::string, Body>& of) {
  std::vector<Formulation> out;
  for (const auto& [name, body] : of) out.push_back({name, body.refused});
  return out;
}

int64_t tokens_of(const std::string& formulation, const Sizes& sizes) {
  const int64_t own = bodies().at(formulation).tokens;
  return own > 0 ? own : sizes.tokens;
}

}  // namespace

void PrintTo(const Formulation& formulation, std::ostream* out) {
  *out << formulation.name;
}

std::vector<Formulation> accepted() {
  return names(make_accepted());
}
std::vector<Formulation> refused() {
  return names(make_refused());
}

MetaModel make(const std::string& formulation, const Sizes& sizes) {
  torch::set_default_dtype(torch::scalarTypeToTypeMeta(torch::kFloat64));
  torch::manual_seed(1);
  const auto model = std::make_shared<Model>(formulation, sizes);
  torch::set_default_dtype(torch::scalarTypeToTypeMeta(torch::kFloat32));
  MetaModel out;
  for (const auto& item : model->named_parameters()) out.parameters.push_back({item.key(), item.value()});
  out.loss = [model](const std::vector<Tensor>& inputs) { return model->loss(inputs[0], inputs[1]); };
  return out;
}

CapturedModel captured(const std::string& formulation, const Sizes& sizes) {
  MetaModel meta;
  if (auto built = build_on_meta([&] { meta = make(formulation, sizes); }); !built)
    throw std::runtime_error(render(built.error()));
  CaptureOptions options;
  options.step.batch = 8;
  options.step.gradients = DType::Float64;
  const int64_t tokens = tokens_of(formulation, sizes);
  options.inputs = {{"tokens", DType::Int64, {tokens}}, {"targets", DType::Int64, {tokens}}};
  options.samples = {1};
  auto result = capture(meta, options);
  if (!result) throw std::runtime_error(render(result.error()));
  return *std::move(result);
}

std::vector<Tensor> batch(const Sizes& sizes, int64_t samples) {
  torch::manual_seed(7);
  return {torch::randint(sizes.vocabulary, {samples, sizes.tokens}),
          torch::randint(sizes.vocabulary, {samples, sizes.tokens})};
}

}  // namespace piper::mixture
