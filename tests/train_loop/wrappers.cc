#include "train_loop/wrappers.h"

namespace piper {
namespace {

class IntervenedComputation : public Computation {
 public:
  IntervenedComputation(std::unique_ptr<Computation> in, const ComputationSite& site, const Intervention& intervention)
      : in_(std::move(in)), name_(site.name), site_(site), intervention_(intervention) {
    site_.name = name_;
  }
  void run(const ComputationArguments& arguments) override {
    intervention_(site_, arguments, [&](const ComputationArguments& given) { in_->run(given); });
  }

 private:
  std::unique_ptr<Computation> in_;
  std::string name_;
  ComputationSite site_;
  const Intervention& intervention_;
};

class IntervenedComputations : public PassingComputations {
 public:
  IntervenedComputations(Computations& in, Intervention intervention)
      : PassingComputations(in), intervention_(std::move(intervention)) {}
  std::unique_ptr<Computation> make(const ComputationSite& site) override {
    return std::make_unique<IntervenedComputation>(to_.make(site), site, intervention_);
  }

 private:
  Intervention intervention_;
};

}  // namespace

std::function<std::vector<DeviceProgress>(std::vector<DeviceProgress>)> shown_when(
    std::function<bool(const std::vector<DeviceProgress>&)> happened) {
  return
      [happened = std::move(happened), shown = false, looks = int64_t{0}](std::vector<DeviceProgress> devices) mutable {
        shown = shown || happened(devices);
        ++looks;
        if (!shown)
          for (DeviceProgress& device : devices) {
            device.streams.clear();
            device.moved = looks;
          }
        return devices;
      };
}

std::unique_ptr<Computations> intervene(Computations& in, Intervention intervention) {
  return std::make_unique<IntervenedComputations>(in, std::move(intervention));
}

}  // namespace piper
