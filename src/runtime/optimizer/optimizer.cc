#include "runtime/optimizer/optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/invariant.h"
#include "base/match_pattern.h"
#include "runtime/optimizer/element_blocks.h"
#include "runtime/optimizer/element_steps.h"

namespace piper {
namespace {

/// How moments are kept that are rounded at random; none: to the nearest.
struct Rounding {
  RoundedElements elements;
  int64_t update;
  template <class T>
  void operator()(int64_t begin, int64_t end, Block<T> (&m)[2]) const {
    uint32_t words[block_size];
    const auto count = static_cast<int>(end - begin);
    random_words(elements, update, begin, count, words);
    for (int i = 0; i < count; ++i) round_moments(m[0][i], m[1][i], words[i]);
  }
};

template <class T, class Step>
void update_blocks(const Step& step, const ElementTypes& types, int64_t kept, const ScaleStep<T>& scale,
                   const ElementPlaces& at, int64_t count, T ema_weight, const std::optional<Rounding>& rounding) {
  Block<T> w{}, g{}, m[2] = {}, mean{};  // beyond the end of the range: numbers left from before, which no one looks at
  for (int64_t begin = 0; begin < count; begin += block_size) {
    const int64_t end = std::min(begin + block_size, count);
    load(types.master.value_or(types.weights), at.master ? at.master : at.weights, begin, end, w);
    load(types.gradients, at.gradients, begin, end, g);
    for (int64_t k = 0; k < kept; ++k) load(types.moments, at.moments[k], begin, end, m[k]);
    for (T& x : g) x = scale(x);
    if (at.master_gradients) {
      store(*types.master_gradients, g, at.master_gradients, begin, end);
      load(*types.master_gradients, at.master_gradients, begin, end, g);
    }
    for (int i = 0; i < block_size; ++i) step(w[i], g[i], m[0][i], m[1][i]);
    if (rounding) (*rounding)(begin, end, m);
    for (int64_t k = 0; k < kept; ++k) store(types.moments, m[k], at.moments[k], begin, end);
    if (at.master) store(*types.master, w, at.master, begin, end);
    store(types.weights, w, at.weights, begin, end);
    if (!at.ema) continue;
    load(*types.ema, at.ema, begin, end, mean);
    for (int i = 0; i < block_size; ++i) mean[i] += ema_weight * (w[i] - mean[i]);
    store(*types.ema, mean, at.ema, begin, end);
  }
}

Diagnostic unknown_type(std::string_view what, DType dtype) {
  if (dtype == DType::Float16)
    return error(ErrorCode::E105, {},
                 fmt::format("{} of dtype float16 cannot be trained: there is no loss scaler", what))
        .help("small gradients become 0 in float16; bfloat16 has the range of float32 and needs no scaler");
  return error(ErrorCode::E105, {}, fmt::format("{} of dtype {} cannot be updated", what, name(dtype)))
      .help("the optimizer computes with float64, float32 and bfloat16");
}

}  // namespace

ElementPlaces places_of(const ElementTypes& types, Optimizer kind, std::byte* weights, const std::byte* gradients,
                        std::byte* state, int64_t count) {
  ElementPlaces at{weights, gradients, {}};
  const auto take = [&](DType dtype) { return std::exchange(state, state + count * bytes_of(dtype)); };
  for (int64_t m = 0; m < moments(kind); ++m) at.moments[m] = take(types.moments);
  if (types.master) at.master = take(*types.master);
  if (types.ema) at.ema = take(*types.ema);
  if (types.master_gradients) at.master_gradients = take(*types.master_gradients);
  return at;
}

ElementPlaces places_from(ElementPlaces at, const ElementTypes& types, int64_t first) {
  const auto move = [&](auto*& place, DType dtype) {
    if (place) place += first * bytes_of(dtype);
  };
  move(at.weights, types.weights);
  move(at.gradients, types.gradients);
  for (std::byte*& moment : at.moments) move(moment, types.moments);
  if (types.master) move(at.master, *types.master);
  if (types.master_gradients) move(at.master_gradients, *types.master_gradients);
  if (types.ema) move(at.ema, *types.ema);
  return at;
}

std::optional<size_t> group_of(const std::vector<ParameterGroup>& groups, std::string_view parameter) {
  for (size_t g = 0; g < groups.size(); ++g)
    if (matches_pattern(parameter, groups[g].pattern)) return g;
  return std::nullopt;
}

OptimizerSettings settings_of(const OptimizerSettings& all, const ParameterGroup& group) {
  OptimizerSettings out = all;
  out.learning_rate *= group.rate;
  out.weight_decay = group.weight_decay.value_or(all.weight_decay);
  out.sign_rate = group.sign_rate;
  return out;
}

OptimizerSettings settings_of(const OptimizerSettings& all, Optimizer kind) {
  OptimizerSettings out = all;
  if (kind != all.kind) out.learning_rate *= all.adamw_rate;
  out.kind = kind;
  return out;
}

Checked check_types(const ElementTypes& types) {
  if (!has_kernels(types.weights)) return unknown_type("weights", types.weights);
  if (!has_kernels(types.moments)) return unknown_type("moments", types.moments);
  if (!has_kernels(types.gradients)) return unknown_type("gradients", types.gradients);
  if (types.master_gradients && !has_kernels(*types.master_gradients))
    return unknown_type("master gradients", *types.master_gradients);
  if (!types.master) return Ok{};
  if (!has_kernels(*types.master)) return unknown_type("a master copy", *types.master);
  if (bytes_of(*types.master) <= bytes_of(types.weights))
    return error(ErrorCode::E105, {},
                 fmt::format("a {} master copy of {} weights loses digits", name(*types.master), name(types.weights)))
        .help("the master copy must be wider than the weights; without one, write master = \"none\"");
  return Ok{};
}

void initialize_state(const ElementTypes& types, Optimizer kind, const std::byte* weights, std::byte* state,
                      int64_t count) {
  std::fill_n(state, state_bytes(types, kind, count), std::byte{});
  if (!types.master && !types.ema) return;
  const ElementPlaces at = places_of(types, kind, nullptr, nullptr, state, count);
  Block<double> w;
  for (int64_t begin = 0; begin < count; begin += block_size) {
    const int64_t end = std::min(begin + block_size, count);
    load(types.weights, weights, begin, end, w);
    if (at.master) store(*types.master, w, at.master, begin, end);
    if (at.ema) store(*types.ema, w, at.ema, begin, end);
  }
}

void update(const OptimizerSettings& settings, const ElementTypes& types, int64_t step, const GradientScale& scale,
            std::byte* weights, const std::byte* gradients, std::byte* state, int64_t count, ElementPart part) {
  invariant(step >= 1, "the steps of an optimizer count from 1");
  const ElementPlaces at =
      places_from(places_of(types, settings.kind, weights, gradients, state, count), types, part.begin);
  const std::optional<Rounding> rounding =
      types.random_rounding ? std::optional(Rounding{part.rounded, step}) : std::nullopt;
  const auto update_as = [&]<class T>(const ScaleStep<T>& scaled) {
    with_step<T>(settings, step, [&](const auto& one) {
      update_blocks<T>(one, types, moments(settings.kind), scaled, at, part.end - part.begin,
                       static_cast<T>(1 - settings.ema_decay), rounding);
    });
  };
  if (types.arithmetic() == DType::Float64)
    update_as(ScaleStep<double>(scale));
  else
    update_as(ScaleStep<float>(scale));
}

}  // namespace piper
