#include "models/configurations.h"

#include <fmt/format.h>

#include <stdexcept>

namespace piper {

TrainableModel built(const std::string& config, BuildOn on, uint64_t seed, c10::Device target) {
  auto model = build_model(make_source("model.toml", config), seed, on, target);
  if (!model) throw std::runtime_error(render(model.error()));
  return *std::move(model);
}

std::string ReferenceSize::config() const {
  std::string out =
      fmt::format("[model]\narch = \"{}\"\nlayers = {}\nhidden = {}\nheads = {}\nvocab = {}\nseq = {}\n",
                  experts > 0 ? "reference-moe" : "reference", layers, hidden, heads, vocabulary, sequence);
  if (experts > 0) out += fmt::format("experts = {}\n", experts);
  return out + fmt::format("[step]\nbatch = {}\n", batch);
}

ReferenceSize reference_size(const std::string& name) {
  for (const ReferenceSize& size :
       {ReferenceSize{"tiny", 16, 64, 4, 256, 32, 16, 16, 0}, ReferenceSize{"S", 8, 256, 8, 2048, 128, 16, 8, 0},
        ReferenceSize{"M", 8, 512, 8, 2048, 256, 16, 8, 0}, ReferenceSize{"MoE-S", 8, 256, 8, 2048, 128, 16, 8, 8}})
    if (size.name == name) return size;
  throw std::runtime_error("no reference size " + name);
}

}  // namespace piper
