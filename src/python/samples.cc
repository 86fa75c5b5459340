// Samples of files, as Python sees them: those of `[data]`.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <limits>

#include "python/bind.h"
#include "python/errors.h"
#include "python/raised.h"
#include "train/data/token_source.h"

namespace piper::python {
namespace {

namespace py = pybind11;

class Samples {
 public:
  Samples(const DataConfig& config, const SampleShape& shape, DataSplit split)
      : shape_(shape), source_(unwrap(open_tokens(config, shape, split))) {}

  /// Tokens and targets of consecutive samples.
  std::pair<at::Tensor, at::Tensor> batch(int64_t first, int64_t count) const {
    at::Tensor tokens = at::empty({count, shape_.sequence}, at::kLong), targets = at::empty_like(tokens);
    const auto sequence = static_cast<size_t>(shape_.sequence);
    for (int64_t i = 0; i < count; ++i)
      unwrap(source_->sample(first + i, {tokens.mutable_data_ptr<int64_t>() + i * shape_.sequence, sequence},
                             {targets.mutable_data_ptr<int64_t>() + i * shape_.sequence, sequence}));
    return {std::move(tokens), std::move(targets)};
  }
  /// Of every token in its document.
  at::Tensor places(int64_t first, int64_t count) const {
    at::Tensor out = at::empty({count, shape_.sequence}, at::kLong);
    for (int64_t i = 0; i < count; ++i)
      source_->places(first + i,
                      {out.mutable_data_ptr<int64_t>() + i * shape_.sequence, static_cast<size_t>(shape_.sequence)});
    return out;
  }
  std::string describe() const { return source_->describe(); }

 private:
  SampleShape shape_;
  std::unique_ptr<TokenSource> source_;
};

/// Paths, weight, epochs.
using SourceNumbers = std::tuple<std::vector<std::string>, double, std::optional<double>>;

std::unique_ptr<Samples> open_samples(const std::string& kind, const std::vector<SourceNumbers>& sources,
                                      const std::string& dtype, const std::string& packing,
                                      const std::string& attention, const std::optional<std::string>& loss,
                                      std::optional<int64_t> window, double validation, uint64_t seed, int64_t sequence,
                                      std::optional<int64_t> vocabulary, bool held) {
  DataConfig config;
  config.kind = kind == "text" ? DataKind::Text : DataKind::Tokens;
  for (const auto& [paths, weight, epochs] : sources) {
    SourceConfig source{{}, weight, epochs, {}};
    for (const std::string& path : paths) source.paths.push_back({path, {}});
    config.sources.push_back(std::move(source));
  }
  config.width = dtype == "uint32" ? TokenWidth::Bits32 : TokenWidth::Bits16;
  config.packing = packing == "none"       ? DocumentPacking::None
                   : packing == "truncate" ? DocumentPacking::Truncate
                                           : DocumentPacking::Carry;
  if (attention == "document") config.attention = AttentionWithin::Document;
  if (loss) config.loss = *loss == "all" ? LossOn::All : LossOn::Completions;
  if (window) config.shuffle_window = *window;
  config.validation = validation;
  config.seed = seed;
  const SampleShape shape{sequence, vocabulary.value_or(std::numeric_limits<int64_t>::max())};
  return std::make_unique<Samples>(config, shape, held ? DataSplit::Validation : DataSplit::Training);
}

}  // namespace

void bind_samples(py::module_& module) {
  py::class_<Samples>(module, "Samples")
      .def(py::init(&open_samples), py::call_guard<py::gil_scoped_release>())
      .def("batch", &Samples::batch, py::call_guard<py::gil_scoped_release>())
      .def("places", &Samples::places, py::call_guard<py::gil_scoped_release>())
      .def("describe", &Samples::describe);
}

}  // namespace piper::python
