#include "train/loop/profile.h"

#include <algorithm>

#include "runtime/stream/flight_recorder.h"

namespace piper {

class TimedComputation : public Computation {
 public:
  TimedComputation(TimedComputations& owner, std::unique_ptr<Computation> inner, CostTable::Key key)
      : owner_(owner), inner_(std::move(inner)), key_(std::move(key)) {}
  void run(const ComputationArguments& arguments) override {
    const std::lock_guard lock(owner_.running_);
    const Nanoseconds start = now();
    inner_->run(arguments);
    owner_.seconds_[key_].push_back(static_cast<double>(now() - start) * 1e-9);
  }

 private:
  TimedComputations& owner_;
  std::unique_ptr<Computation> inner_;
  CostTable::Key key_;
};

std::unique_ptr<Computation> TimedComputations::make(const ComputationSite& site) {
  return std::make_unique<TimedComputation>(*this, to_.make(site),
                                            CostTable::Key{std::string(site.name), site.pass, site.samples});
}

void TimedComputations::forget() {
  const std::lock_guard lock(running_);
  seconds_.clear();
}

double median(std::vector<double> numbers) {
  const auto middle = numbers.begin() + static_cast<std::ptrdiff_t>(numbers.size() / 2);
  std::nth_element(numbers.begin(), middle, numbers.end());
  return *middle;
}

CostTable TimedComputations::costs() const {
  const std::lock_guard lock(running_);
  CostTable out;
  for (const auto& [key, seconds] : seconds_) out.seconds[key] = median(seconds);
  return out;
}

}  // namespace piper
