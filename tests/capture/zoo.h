// Small models for the tests: everything a decoder may be made of, and the odd ways to write it.
#pragma once

#include <string>
#include <vector>

#include "capture/capture.h"

namespace piper::zoo {

enum class Mixture {
  None,
  IndexAdd,  // tokens into slots by index_add
  OneHot,    // by einsum with one-hot matrices
  IndexPut,  // by index_put_, in place
};

struct Config {
  int64_t vocabulary = 53, dim = 16, heads = 2, layers = 2, length = 8, hidden = 24, experts = 4, top_k = 2;
  double capacity = 1.25, dropout = 0, expert_dropout = 0;
  Mixture mixture = Mixture::None;
  bool layer_norm = true;  // in even layers; RMS norms written out elsewhere
  bool swiglu = false;
  bool in_place = false;  // masked_fill_, and the residual added in place to the result of another scope
  bool tied = true;
  bool two_branches = false;  // two encoders into one decoder
};

struct Named {
  std::string name;
  Config config;
};
void PrintTo(const Named& named, std::ostream* out);

/// All of it that bit-equality is asked of.
std::vector<Named> all();

/// On the device that is current: real tensors, or meta ones inside build_on_meta.
MetaModel make(const Config& config);

/// The same model on meta, captured; throws what is refused.
CapturedModel captured(const Config& config, std::vector<int64_t> samples = {2});
CaptureOptions options(const Config& config, std::vector<int64_t> samples);

/// Tokens and targets of a slice.
std::vector<at::Tensor> batch(const Config& config, int64_t samples, uint64_t seed = 7);

}  // namespace piper::zoo
