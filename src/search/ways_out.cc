// ways_out: what would make something fit.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/bytes.h"
#include "search/answer.h"

namespace piper {
namespace {

using Clock = std::chrono::steady_clock;

/// A number that takes the place of one of the problem's, with the schedule that fits then.
struct Found {
  int64_t number = 0;
  WayOut way;
};

class WaysOut {
 public:
  WaysOut(const Problem& problem, const SearchOptions& options)
      : problem_(problem), options_(options), start_(Clock::now()) {
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
  /// Twice as many until something fits; then those between it and the last that were too few.
  void add_devices() {
    const int64_t most = std::min(device_limit(problem_.cluster), most_parts);
    std::optional<Found> found;
    int64_t too_few = problem_.limits.devices;
    while (!found && too_few < most) {
      const int64_t more = std::min(2 * too_few, most);
      found = with_devices(more);
      if (!found) too_few = more;
    }
    if (!found) return;
    std::vector<int64_t> between;
    for (int64_t devices = too_few + 1; devices < found->number; ++devices)
      if (is_whole(devices) && has_candidates(of_devices(devices))) between.push_back(devices);
    bisect(between, std::move(*found), [&](int64_t devices) { return with_devices(devices); });
  }

  /// The same downwards, with halves of the batch.
  void add_batch() {
    std::optional<Found> found;
    int64_t too_many = problem_.limits.batch;
    while (!found && too_many > 1) {
      found = with(too_many / 2);
      if (!found) too_many /= 2;
    }
    if (!found) return;
    std::vector<int64_t> between;  // the largest first: what fits comes last, as with devices
    for (int64_t batch = too_many - 1; batch > found->number; --batch) {
      SpaceLimits limits = problem_.limits;
      limits.batch = batch;
      if (check_space(limits)) between.push_back(batch);
    }
    bisect(between, std::move(*found), [&](int64_t batch) { return with(batch); });
  }

  /// The first of these numbers with which something fits, if whatever comes after one that does does too; else
  /// `found`.
  template <class Try>
  void bisect(const std::vector<int64_t>& numbers, Found found, Try tried) {
    size_t low = 0, high = numbers.size();
    while (low < high && !is_over()) {
      const size_t middle = (low + high) / 2;
      if (auto made = tried(numbers[middle])) {
        found = std::move(*made);
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    out_.push_back(std::move(found.way));
  }

  /// More than one node are whole nodes.
  bool is_whole(int64_t devices) const {
    const int node = problem_.cluster.levels[0].joins;
    return node == 0 || devices < node || devices % node == 0;
  }

  Problem of_devices(int64_t devices) const {
    Problem out = problem_;
    out.limits.devices = static_cast<int>(devices);
    return out;
  }
  static bool has_candidates(const Problem& problem) { return static_cast<bool>(check_space(problem.limits)); }

  std::optional<Found> with_devices(int64_t devices) {
    return first_that_fits(of_devices(devices), devices, fmt::format("--devices {}", devices));
  }
  std::optional<Found> with(int64_t batch) {
    return first_that_fits(with_batch(problem_, batch), batch, fmt::format("--batch {}", batch));
  }

  std::optional<Found> first_that_fits(const Problem& problem, int64_t number, std::string what) {
    if (is_over() || !has_candidates(problem)) return std::nullopt;
    SearchOptions options = options_;
    options.budget = options_.budget - work_;
    options.time = options_.time - elapsed();
    const auto result = search(problem, {}, options);
    if (result) work_ += result->work;
    if (!result || !result->best()) return std::nullopt;
    return Found{number, {std::move(what), explained(problem, *result->best()), *result->best()}};
  }

  double elapsed() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  /// As much as the search itself may take.
  bool is_over() const {
    return (options_.stop && *options_.stop) || work_ > options_.budget || elapsed() > options_.time;
  }

  const Problem& problem_;
  SearchOptions options_;
  Clock::time_point start_;
  double work_ = 0;  // of the budget
  std::vector<WayOut> out_;
};

}  // namespace

std::vector<WayOut> ways_out(const Problem& problem, const SearchResult& result, const SearchOptions& options) {
  return WaysOut(problem, options).find(result);
}

}  // namespace piper
