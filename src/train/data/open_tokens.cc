#include <numeric>
#include "base/invariant.h"

#include "train/data/sources.h"

namespace piper {

void TokenSource::places(int64_t, std::span<int64_t> places) const {
  std::iota(places.begin(), places.end(), 0);
}

Result<TokenSourcePtr> open_tokens(const DataConfig& config, const SampleShape& shape, DataSplit split) {
  invariant(shape.sequence > 0 && shape.vocabulary > 0, "the sizes of samples are positive");
  switch (config.kind) {
    case DataKind::Synthetic:
      return synthetic_tokens(config.seed, shape);
    case DataKind::Reference:
      return reference_tokens(shape);
    case DataKind::Text:
    case DataKind::Tokens:
      return mixture_of_files(config, shape, split);
  }
  internal_error("every kind of data can be opened");
}

}  // namespace piper
