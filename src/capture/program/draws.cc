#include "capture/program/draws.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <map>

#include "runtime/draw/draw_operator.h"

namespace piper {
namespace {

uint64_t mix(uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

/// What an operator draws, and the names of the arguments that are its numbers, where it has them.
struct DrawnName {
  Distribution kind;
  const char *a, *b;
  double usual_a, usual_b;
};
const std::map<std::string_view, DrawnName>& drawn_names() {
  static const std::map<std::string_view, DrawnName> names = {
      {"aten::bernoulli", {Distribution::Bernoulli, "p", "", 0, 1}},
      {"aten::bernoulli_", {Distribution::Bernoulli, "p", "", 0, 1}},
      {"aten::rand", {Distribution::Uniform, "", "", 0, 1}},
      {"aten::rand_like", {Distribution::Uniform, "", "", 0, 1}},
      {"aten::uniform_", {Distribution::Uniform, "from", "to", 0, 1}},
      {"aten::randn", {Distribution::Normal, "", "", 0, 1}},
      {"aten::randn_like", {Distribution::Normal, "", "", 0, 1}},
      {"aten::normal_", {Distribution::Normal, "mean", "std", 0, 1}},
      {"aten::exponential_", {Distribution::Exponential, "lambd", "", 1, 0}},
      {"aten::randint", {Distribution::Integer, "low", "high", 0, 0}},
      {"aten::randint_like", {Distribution::Integer, "low", "high", 0, 0}},
  };
  return names;
}

/// Of a dimension, what is plain in one piece.
Factors joined_plain(const Factors& dim) {
  Factors out;
  for (const Factor& factor : dim)
    if (factor.mark == Mark::Plain && !out.empty() && out.back().mark == Mark::Plain)
      out.back().size *= factor.size;
    else
      out.push_back(factor);
  return out;
}

}  // namespace

std::optional<DrawnBy> drawn_by(const c10::OperatorHandle& op, const std::vector<Argument>& arguments) {
  const auto found = drawn_names().find(op.operator_name().name);
  if (found == drawn_names().end()) return std::nullopt;
  const DrawnName& known = found->second;
  DrawnBy out{{known.kind, known.usual_a, known.usual_b}, -1};
  const auto& names = op.schema().arguments();
  bool has_a = false;
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string& name = names[i].name();
    if (name == "out") return std::nullopt;
    if (name != known.a && name != known.b) continue;
    has_a = has_a || name == known.a;
    double& number = name == known.a ? out.drawing.a : out.drawing.b;
    if (const auto* real = std::get_if<double>(&arguments[i]))
      number = *real;
    else if (const auto* whole = std::get_if<int64_t>(&arguments[i]))
      number = static_cast<double>(*whole);
    else if (known.kind == Distribution::Bernoulli && std::holds_alternative<TensorId>(arguments[i]))
      out.probabilities = static_cast<int>(i);
    else
      return std::nullopt;
  }
  if (known.kind == Distribution::Bernoulli && !has_a) out.probabilities = 0;  // of the tensor itself
  return out;
}

std::string drawn_operators() {
  return "dropout, bernoulli, rand, uniform_, randn, normal_, exponential_, randint";
}

bool refine(Drawn& drawn, const TensorLabels& labels) {
  for (size_t d = 0; d < drawn.dims.size(); ++d) {
    Factors out;
    Factors known = joined_plain(drawn.dims[d]), added = joined_plain(labels.dims[d]);
    size_t at = 0;
    const auto keep_ones = [&] {  // a slice of one sample still goes by its number
      while (at < known.size() && known[at].size == 1) out.push_back(known[at++]);
    };
    for (Factor factor : added) {
      const bool slots = factor.mark == Mark::Capacity;
      if (slots) out.push_back({1, Mark::Capacity});  // so many slices, one after another
      while (factor.size > 1) {
        keep_ones();
        if (at >= known.size()) return false;
        Factor& next = known[at];
        const bool plain = factor.mark == Mark::Plain || slots;
        if (factor.size % next.size == 0) {
          if (!plain && (next.mark != Mark::Plain || next.size != factor.size)) return false;
          out.push_back({next.size, plain ? next.mark : factor.mark});
          factor.size /= next.size;
          ++at;
        } else if (next.size % factor.size == 0 && next.mark == Mark::Plain) {
          out.push_back({factor.size, plain ? Mark::Plain : factor.mark});
          next.size /= factor.size;
          factor.size = 1;
        } else {
          return false;
        }
      }
    }
    keep_ones();
    drawn.dims[d] = std::move(out);
  }
  return true;
}

DrawSite::DrawSite(int random_call, const Drawn& drawn, const LocalShards& shards) : random(random_call) {
  bool by_sample = false;
  int64_t step = 1;
  for (size_t d = drawn.dims.size(); d-- > 0;)
    for (size_t f = drawn.dims[d].size(); f-- > 0;) {
      const Factor& factor = drawn.dims[d][f];
      const auto add = [&](int64_t size, int64_t element, int64_t sample, int64_t slice) {
        sizes.push_back(size);
        for (const int64_t of : {slice, sample, element}) steps.push_back(of);  // turned round below
      };
      const LocalShard shard = shards[kind_of(factor.mark, shards.counts())];
      if (factor.mark == Mark::Capacity) {
        gathers = true;
        add(shard.count, 0, 0, 1);
        continue;
      }
      if (factor.mark == Mark::Sample) {
        by_sample = true;
        add(factor.size, 0, 1, 0);
        continue;
      }
      if (drawn.zigzag && factor.mark == Mark::Sharded && shard.count > 1) {
        const int64_t block = factor.size / (2 * shard.count), before = shard.index * block;
        start += before * step;
        add(block, step, 0, 0);
        add(2, (factor.size - 2 * before - block) * step, 0, 0);
      } else if (factor.mark == Mark::Sharded || factor.mark == Mark::Expert) {
        start += shard.index * (factor.size / shard.count) * step;
        add(factor.size / shard.count, step, 0, 0);
      } else {
        add(factor.size, step, 0, 0);
      }
      step *= factor.size;
    }
  std::reverse(sizes.begin(), sizes.end());
  std::reverse(steps.begin(), steps.end());
  shared = !gathers && !by_sample && !drawn.by_slice;
}

void DrawSite::add_words(const RandomKey& of, std::vector<uint64_t>& words) const {
  words.push_back(mix(mix(of.step_seed) + static_cast<uint64_t>(random)));
  if (gathers && !of.gathered_samples.empty())
    for (const int64_t sample : of.gathered_samples) words.push_back(static_cast<uint64_t>(sample));
  else
    words.push_back(static_cast<uint64_t>(shared ? -1 : of.first_sample));
}

void draw_of_slice(const at::Tensor& into, const Drawing& drawing, int random_call, const RandomKey& random,
                   int64_t samples) {
  Drawn drawn;
  for (const int64_t size : into.sizes()) drawn.dims.push_back({{size, Mark::Plain}});
  drawn.by_slice = samples == 0;
  if (samples > 0) drawn.dims[0] = {{samples, Mark::Sample}, {into.size(0) / samples, Mark::Plain}};
  const DrawSite site(random_call, drawn, {});
  std::vector<uint64_t> words;
  site.add_words(random, words);
  draw_into(into.view(site.sizes), drawing, site.start, site.steps,
            at::from_blob(words.data(), {static_cast<int64_t>(words.size())}, at::kLong));
}

}  // namespace piper
