// ways_out: what would make something fit.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/bytes.h"
#include "search/answer.h"

namespace piper {
namespace {

constexpr int most_doublings = 10;

class WaysOut {
 public:
  WaysOut(const Problem& problem, const SearchOptions& options) : problem_(problem), options_(options) {
    options_.first = true;
    options_.progress = nullptr;
  }

  std::vector<WayOut> find(const SearchResult& result) && {
    if (result.end == SearchEnd::Proved) {  // otherwise it is not known that nothing fits
      add_devices();
      add_batch();
    }
    if (result.smallest)
      if (auto made = evaluate(problem_, *result.smallest)) {
        const int64_t gigabytes = (made->memory.total + 999'999'999) / 1'000'000'000;
        out_.push_back({fmt::format("--memory {}GB", gigabytes), explained(problem_, *made), *made});
      }
    return std::move(out_);
  }

 private:
  void add_devices() {
    for (int devices = problem_.limits.devices, i = 0; i < most_doublings; ++i) {
      devices *= 2;
      if (devices > device_limit(problem_.cluster) || devices > most_parts) break;
      Problem more = problem_;
      more.limits.devices = devices;
      if (add(more, fmt::format("--devices {}", devices))) break;
    }
  }

  void add_batch() {
    for (int64_t batch = problem_.limits.batch; batch % 2 == 0;) {
      batch /= 2;
      if (add(with_batch(batch), fmt::format("--batch {}", batch))) break;
    }
  }

  Problem with_batch(int64_t batch) const {
    Problem out = problem_;
    for (auto& model : out.models) {
      auto smaller = std::make_shared<ModelGraph>(*model);
      smaller->step.batch = batch;
      model = std::move(smaller);
    }
    out.limits.batch = batch;
    return out;
  }

  /// Whether something fits.
  bool add(const Problem& problem, std::string what) {
    if (options_.stop && *options_.stop) return true;
    const auto result = search(problem, {}, options_);
    if (!result || !result->best()) return false;
    out_.push_back({std::move(what), explained(problem, *result->best()), *result->best()});
    return true;
  }

  const Problem& problem_;
  SearchOptions options_;
  std::vector<WayOut> out_;
};

}  // namespace

std::vector<WayOut> ways_out(const Problem& problem, const SearchResult& result, const SearchOptions& options) {
  return WaysOut(problem, options).find(result);
}

}  // namespace piper
