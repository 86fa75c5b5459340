#include <fmt/format.h>

#include "train/data/corpus.h"
#include "train/data/sources.h"

namespace piper {
namespace {

constexpr size_t period = 1 << 16;  // samples after which the sources come in the same order again

/// Every source has its share in any number of samples, up to one.
class Mixture final : public TokenSource {
 public:
  explicit Mixture(std::vector<std::unique_ptr<Corpus>> sources, const std::vector<SourceConfig>& configs)
      : sources_(std::move(sources)), of_period_(sources_.size(), 0) {
    double sum = 0;
    for (const SourceConfig& config : configs) sum += config.weight;
    for (const SourceConfig& config : configs) shares_.push_back(config.weight / sum);
    turns_.reserve(period);
    for (size_t n = 0; n < period; ++n) {
      size_t furthest = 0;  // behind its share
      const auto behind = [&](size_t s) {
        return shares_[s] * static_cast<double>(n + 1) - static_cast<double>(of_period_[s]);
      };
      for (size_t s = 1; s < sources_.size(); ++s)
        if (behind(s) > behind(furthest)) furthest = s;
      turns_.push_back({static_cast<uint32_t>(furthest), static_cast<uint32_t>(of_period_[furthest]++)});
    }
  }

  Checked sample(int64_t number, std::span<int64_t> tokens, std::span<int64_t> targets) const override {
    const auto [source, of_source] = find(number);
    return source->sample(of_source, tokens, targets);
  }

  void places(int64_t number, std::span<int64_t> places) const override {
    const auto [source, of_source] = find(number);
    source->places(of_source, places);
  }

  Checked check_length(int64_t samples) const override {
    for (size_t s = 0; s < sources_.size(); ++s) {
      int64_t taken = samples / static_cast<int64_t>(period) * of_period_[s];
      for (int64_t n = 0; n < samples % static_cast<int64_t>(period); ++n)
        taken += turns_[static_cast<size_t>(n)].source == s ? 1 : 0;
      PIPER_CHECK(sources_[s]->check_length(taken));
    }
    return Ok{};
  }

  int64_t vocabulary() const override { return sources_[0]->vocabulary(); }

  std::string describe() const override {
    std::string out;
    for (size_t s = 0; s < sources_.size(); ++s)
      out += fmt::format("{}{:.3g} % of {}", s == 0 ? "" : "; ", 100 * shares_[s], sources_[s]->describe());
    return out;
  }

 private:
  struct Turn {
    uint32_t source;
    uint32_t before;  // samples of it in this period
  };

  /// Whose sample it is, and its number there.
  std::pair<const Corpus*, int64_t> find(int64_t number) const {
    const auto [periods, place] =
        std::pair(number / static_cast<int64_t>(period), number % static_cast<int64_t>(period));
    const Turn& turn = turns_[static_cast<size_t>(place)];
    return {sources_[turn.source].get(), periods * of_period_[turn.source] + turn.before};
  }

  std::vector<std::unique_ptr<Corpus>> sources_;
  std::vector<double> shares_;
  std::vector<int64_t> of_period_;  // samples of each source
  std::vector<Turn> turns_;
};

}  // namespace

Result<TokenSourcePtr> mixture_of_files(const DataConfig& config, const SampleShape& shape, DataSplit split) {
  std::vector<std::unique_ptr<Corpus>> sources;
  for (size_t s = 0; s < config.sources.size(); ++s) {
    PIPER_TRY(auto source, Corpus::open(config, s, shape, split));
    sources.push_back(std::move(source));
  }
  if (sources.size() == 1) return TokenSourcePtr(std::move(sources[0]));
  return TokenSourcePtr(std::make_unique<Mixture>(std::move(sources), config.sources));
}

}  // namespace piper
