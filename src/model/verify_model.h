// What every ModelGraph must satisfy, whoever produced it.
#pragma once

#include <functional>

#include "model/model_graph.h"

namespace piper {

/// Where the user wrote a chunk, value or parameter; nowhere if the model was not written by hand.
struct ModelPlaces {
  std::vector<SourceRange> values;
  std::vector<SourceRange> parameters;
  std::vector<SourceRange> chunks;
};

/// Names are unique, every value has one producer that runs before its readers, BI and BW together do what B does,
/// sizes are positive and bounded, and nothing is there that nothing uses.
Checked verify(const ModelGraph& model, const ModelPlaces& places = {});

}  // namespace piper
