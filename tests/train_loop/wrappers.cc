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

class IntervenedComputations : public Computations {
 public:
  IntervenedComputations(Computations& in, Intervention intervention)
      : in_(in), intervention_(std::move(intervention)) {}
  ComputationForm form(std::string_view name, Pass pass) const override { return in_.form(name, pass); }
  std::unique_ptr<Computation> make(const ComputationSite& site) override {
    return std::make_unique<IntervenedComputation>(in_.make(site), site, intervention_);
  }
  TensorForm value(std::string_view name, int64_t samples) const override { return in_.value(name, samples); }
  int64_t sample_dim(std::string_view value) const override { return in_.sample_dim(value); }
  ExchangeForm exchange(std::string_view value, int64_t samples, int64_t parts, bool inwards) const override {
    return in_.exchange(value, samples, parts, inwards);
  }
  ParameterForm parameter(std::string_view name) const override { return in_.parameter(name); }

 private:
  Computations& in_;
  Intervention intervention_;
};

}  // namespace

std::unique_ptr<Computations> intervene(Computations& in, Intervention intervention) {
  return std::make_unique<IntervenedComputations>(in, std::move(intervention));
}

}  // namespace piper
